"""A run of verify beside the screen: findings as they come, how far it is, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from rmqtool.browse.browsed_store import BrowsedStore
from rmqtool.browse.list_model import BAD, FAINT, PLAIN, Line, ReadyList
from rmqtool.errors import RmqtoolError
from rmqtool.findings.finding import Finding, Severity
from rmqtool.report.text import counted, size_text
from rmqtool.store.directory import Store
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions

Look = Callable[[], tuple[Store, VerifyOptions]]
"""Lists the store again, for a broker may write, roll and delete files while the browser is open."""

KEPT_MAX: Final = 10_000
"""Findings that can be looked at; more are counted."""

STYLES: Final = {Severity.ERROR: BAD, Severity.NOTE: FAINT}
"""Style of a finding by its severity."""


class _CancelledError(Exception):
    """Somebody does not want to wait."""


class Verification(ReadyList):
    """The findings of a store; a list for the screen.

    Attributes:
        findings: the first ones, in the order in which they came.
        status: how far it is, or how it ended, as a sentence.
    """

    def __init__(self, store: BrowsedStore, look: Look) -> None:
        self.store, self._look = store, look
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()
        self.is_running = False
        size = size_text(sum(segment.size for segment in store.store.commitlog))
        self.status = f"not verified yet: r reads the whole store ({size})"
        self._is_cancelled = False

    def begin(self) -> None:
        """Get ready for a run, which may be cancelled from now on."""
        self.findings.clear()
        self.counts.clear()
        self._is_cancelled = False
        self.is_running = True
        self.status = "verifying; c cancels"

    def run(self) -> None:
        """Verify; called in a thread of its own, after `begin`."""

        def take(finding: Finding) -> None:
            if self._is_cancelled:
                raise _CancelledError
            self.counts[finding.severity.value] += 1
            if len(self.findings) < KEPT_MAX:
                self.findings.append(finding)

        def tell(done: int, all_: int) -> None:
            if self._is_cancelled:
                raise _CancelledError
            self.status = f"verifying: {size_text(done)} of {size_text(all_)} of the commit log; c cancels"

        try:
            store, options = self._look()
            summary = verify_store(store, self.store.rules, options, take, tell)
            left_out = len(summary.not_looked_at)
            self.status = self._ending("verified", f"; {counted(left_out, 'place')} not checked" if left_out else "")
        except _CancelledError:
            self.status = self._ending("cancelled", "; not all was checked")
        except RmqtoolError as error:
            self.status = self._ending("ended by an error", f": {error}")
        finally:
            self.is_running = False

    def cancel(self) -> None:
        """End the run at its next step."""
        self._is_cancelled = True
        if self.is_running:
            self.status = "cancelling..."

    def has_place(self, finding: Finding) -> bool:
        """True if a queue or a place of the commit log can be shown for a finding."""
        name = (finding.topic or "", finding.queue_id or 0)
        return finding.physical_offset is not None or name in self.store.queue_names()

    def count(self) -> int:
        return len(self.findings) + (self.counts.total() > len(self.findings))

    def heading(self, width: int) -> str:
        del width
        return "severity finding"

    def line(self, row: int, width: int) -> Line:
        del width
        if row >= len(self.findings):
            return Line(f"({self.counts.total() - len(self.findings)} more, not kept: use rmqtool verify)", FAINT)
        finding = self.findings[row]
        style = STYLES.get(finding.severity, PLAIN)
        return Line(f"{finding.severity.value:<8} {finding.id} {place_text(finding)}: {finding.message}", style)

    def _ending(self, how: str, more: str) -> str:
        counts = ", ".join(counted(count, severity) for severity, count in self.counts.items())
        return f"{how}: {counts or 'no findings'}{more}; r verifies again"


def place_text(finding: Finding) -> str:
    """Where a finding is, shortly."""
    if finding.topic is not None and finding.queue_id is not None:
        at = "" if finding.queue_offset is None else f" at {finding.queue_offset}"
        return f"{finding.topic}/{finding.queue_id}{at}"
    if finding.physical_offset is not None:
        return f"at {finding.physical_offset}"
    return finding.file

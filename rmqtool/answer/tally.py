"""Sums findings up for a verdict as they come; none is kept, for a badly damaged store has very many."""

from __future__ import annotations

from collections import Counter
from typing import Final

from rmqtool.findings.finding import (
    MISSING_LOG_FILE,
    REBUILD_COMPACTION,
    REBUILD_DELAYS,
    REBUILD_TIMER,
    REBUILD_TOPICS,
    Finding,
    Severity,
)

ABORT: Final = "store.abort-present"
TAIL: Final = "commitlog.resurrected-tail"
_OF_FILES: Final = frozenset(
    {
        "commitlog.wrong-file-size",
        "commitlog.empty-file",
        "commitlog.stray-file",
        "commitlog.missing-end-blank",
        "dledger.unloadable-file",
    }
)
"""Errors about files of the log as such: every record can be read."""
_LOGS: Final = ("commitlog.", "dledger.")
_NOT_DERIVED: Final = ("commitlog", "config", "dledger", "store")
"""Kinds of findings that do not say that something differs from the log."""
_URGENT: Final = ("undo", "salvage", "recover", "rebuild")
"""Commands that repair more than the ones after them; what is left are parts of `rebuild`."""


_ALONE: Final = frozenset(
    part
    for repair in (REBUILD_TIMER, REBUILD_DELAYS, REBUILD_TOPICS, REBUILD_COMPACTION)
    for part in repair.split()[1:]
)
"""Parts of `rebuild` that are rebuilt alone, after the others."""


class FindingTally:
    """What findings come to."""

    def __init__(self) -> None:
        self.damaged = 0
        self.missing_files = 0
        self.crashed = False
        self.cut: str | None = None
        """The command that ends the log before records that came back; a person decides."""
        self.came_back = 0
        self._others: dict[str, int] = {}
        self._repairs: dict[str, set[str]] = {}
        self._remedies: dict[str, str] = {}

    def add(self, finding: Finding, remedy: str = "") -> None:
        """Count a finding.

        Args:
            remedy: what the catalog says repairs it.
        """
        if finding.severity is Severity.NOTE:
            return
        if finding.id == TAIL:
            self.cut, self.came_back = finding.repair, finding.count
            return
        if finding.repair is not None:
            self._repairs.setdefault(finding.repair, set()).add(finding.id)
        else:
            self._remedies.setdefault(finding.id, remedy)
        is_of_log = finding.id.startswith(_LOGS) and finding.severity is Severity.ERROR
        if finding.id == MISSING_LOG_FILE:
            self.missing_files += finding.count
        elif is_of_log and finding.id not in _OF_FILES:
            self.damaged += finding.count
        elif finding.id == ABORT:
            self.crashed = True
        else:
            self._others[finding.id] = self._others.get(finding.id, 0) + finding.count

    def repair(self, *, abort_stays: bool = False) -> str | None:
        """The one command that repairs most of it; None where none does.

        Args:
            abort_stays: whether no command may mark the store as cleanly shut down.
        """
        repairs = {repair for repair, ids in self._repairs.items() if not abort_stays or ids != {ABORT}}
        for command in _URGENT:
            if command in repairs:
                return command
        parts = sorted({part for repair in repairs for part in repair.split()[1:]})
        parts = [part for part in parts if part not in _ALONE] or parts[:1]
        return " ".join(["rebuild", *parts]) if repairs else None

    def is_about(self, kind: str) -> bool:
        """Whether a finding is about files of a kind, which is the first part of its id."""
        return any(finding_id.startswith(f"{kind}.") for finding_id in self._others)

    @property
    def remedy(self) -> str | None:
        """What answers the first finding that no command answers, as a sentence."""
        return next((f"{kind}: {text}" for kind, text in self._remedies.items()), None)

    def inconsistent(self, *, is_log_decoded: bool) -> str | None:
        """What does not match the log, as a sentence; None where all that was checked does."""
        counts: Counter[str] = Counter()
        for finding_id, count in self._others.items():
            counts[finding_id.partition(".")[0]] += count
        own = [f"{counts.pop(kind)} in {kind}" for kind in _NOT_DERIVED if kind in counts]
        parts = []
        if self.came_back:
            what = "record of the commit log is" if self.came_back == 1 else "records of the commit log are"
            parts.append(f"the last {self.came_back} {what} older than the one before: a truncated tail came back")
        if counts:
            verb = "does" if len(counts) == 1 else "do"
            parts.append(f"{', '.join(sorted(counts))} {verb} not match the commit log ({counts.total()})")
        if own:
            parts.append(f"findings: {', '.join(own)}")
        if self.crashed and is_log_decoded:
            parts.append("the broker did not stop cleanly")
        return "; ".join(parts) or None

"""The findings of verify, and an explanation of each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Static

from rmqtool.browse.lines_screen import LinesScreen
from rmqtool.browse.list_model import STRONG, Line
from rmqtool.browse.verification import STYLES, Verification, place_text
from rmqtool.browse.virtual_list import VirtualList
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import BY_ID
from rmqtool.report.text import escaped

_REFRESH_S = 0.2


class FindingsScreen(Screen[Finding | None]):
    """All findings; gives back the one to whose place somebody wants to go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("r", "verify", "Verify"),
        Binding("c", "cancel", "Cancel"),
    ]

    def __init__(self, verification: Verification) -> None:
        super().__init__()
        self._verification = verification

    def compose(self) -> ComposeResult:
        yield VirtualList(self._verification)
        yield Static(id="status", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(VirtualList).focus()
        self.set_interval(_REFRESH_S, self._refresh)
        self._refresh()

    def action_verify(self) -> None:
        """Start a run, unless one is going on."""
        if not self._verification.is_running:
            self._verification.begin()
            self.query_one(VirtualList).go(0)
            self.app.run_worker(self._run, thread=True, group="verify")

    def action_cancel(self) -> None:
        """End the run."""
        self._verification.cancel()

    def on_virtual_list_chosen(self, event: VirtualList.Chosen) -> None:
        """Explain a finding."""
        event.stop()
        if event.row < len(self._verification.findings):
            finding = self._verification.findings[event.row]

            def leave(goes_there: bool | None) -> None:
                if goes_there:
                    self.dismiss(finding)

            self.app.push_screen(FindingScreen(finding, self._verification.has_place(finding)), leave)

    def _run(self) -> None:
        """Verify, in a thread; the screen may be left before it ends."""
        self._verification.run()
        self.app.call_from_thread(self._refresh)

    def _refresh(self) -> None:
        if not self.is_attached:  # it was left
            return
        self.query_one("#status", Static).update(escaped(self._verification.status))
        self.query_one(VirtualList).refresh()


class FindingScreen(LinesScreen[bool]):
    """One finding; gives back whether to go to its place."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(False)", "Back"),
        Binding("enter,g", "dismiss(True)", "Go to its place", priority=True),
    ]

    def __init__(self, finding: Finding, has_place: bool) -> None:
        super().__init__()
        self._finding, self._has_place = finding, has_place

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable all actions but Esc for a finding without a place on the screens, as the file `abort`."""
        return self._has_place or (action, parameters) != ("dismiss", (True,))

    def lines(self, width: int) -> list[Line]:
        return list(finding_lines(self._finding, width))


def finding_lines(finding: Finding, width: int) -> Iterator[Line]:
    """A finding, with the catalog's text on its kind."""
    kind = BY_ID[finding.id]
    yield Line(f"{finding.severity.value}: {finding.id}", STYLES.get(finding.severity, STRONG))
    place = place_text(finding)
    where = escaped(finding.file if place == finding.file else f"{finding.file}: {place}")
    yield from (Line(part) for part in textwrap.wrap(where, width))
    texts = [finding.message, finding.expected and f"expected: {finding.expected}"]
    texts += [finding.found and f"found: {finding.found}", finding.candidate and f"perhaps: {finding.candidate}"]
    for text in filter(None, texts):
        yield from (Line(part) for part in textwrap.wrap(escaped(text), width))
    yield Line("")
    yield from (Line(part) for part in textwrap.wrap(kind.meaning, width))
    for versions, effect in kind.brokers:
        yield Line("")
        yield Line(f"Brokers ({versions}):", STRONG)
        yield from (Line(part) for part in textwrap.wrap(effect, width))
    yield Line("")
    yield Line("Repair:", STRONG)
    yield from (Line(part) for part in textwrap.wrap(kind.remedy, width))
    if finding.repair is not None:
        yield Line(f"rmqtool {finding.repair}")

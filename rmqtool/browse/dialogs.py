"""Dialogs of the browser: one line of input, and the help."""

from __future__ import annotations

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from rmqtool.browse.list_model import STRONG, Line, Lines
from rmqtool.browse.virtual_list import VirtualList
from rmqtool.report.text import escaped

_KEYS: Final = (
    ("", "Everywhere"),
    ("arrows, PgUp, PgDn", "move; Home and End: first and last"),
    ("Enter", "open a topic, queue, file, message or finding"),
    ("Esc", "back"),
    ("?", "this help"),
    ("q, Ctrl+C", "quit"),
    ("", "Topics and messages"),
    ("Tab", "between topics and messages"),
    ("/", "show only topics with a text in their name"),
    ("z", "hide the topics, show them again"),
    ("o", "go to a queue offset"),
    ("t", "go to a time in the queue"),
    ("k", "find by message id, or by key in the topic"),
    ("p", "open what is at a physical offset"),
    ("f", "findings: verify the store"),
    ("", "Record"),
    ("n, b", "next and previous message"),
    ("x", "hide the bytes, show them again"),
    ("u", "show the message in its queue"),
    ("", "Findings"),
    ("r, c", "verify the store; cancel"),
    ("Enter", "what a finding means; once more: go to its place"),
    ("", "Signs"),
    ("red lines", "damage: a finding, or what a unit leads to"),
    ("", "The CRC of a body above 64 KiB is checked when its record is"),
    ("", "opened. Nothing is written: the store is opened read-only."),
)


class QuestionDialog(ModalScreen[str | None]):
    """One line of text; Esc for none."""

    DEFAULT_CSS = """
    QuestionDialog { align: center middle; }
    QuestionDialog > Vertical { width: 90%; max-width: 76; height: auto; border: round $accent; background: $surface; }
    QuestionDialog Static { width: 1fr; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question, self._value = question, value

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(escaped(self._question), markup=False)
            yield Input(self._value, max_length=1000)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter gives the answer."""
        self.dismiss(event.value.strip())


class HelpDialog(ModalScreen[None]):
    """Every key."""

    DEFAULT_CSS = """
    HelpDialog { align: center middle; }
    HelpDialog > Vertical { width: 94%; max-width: 100; height: 90%; border: round $accent; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark", "dismiss(None)", "Back")]

    def compose(self) -> ComposeResult:
        lines = [Line(text, STRONG) if not key else Line(f"  {key:<18} {text}") for key, text in _KEYS]
        with Vertical():
            yield VirtualList(Lines(lines), has_cursor=False)

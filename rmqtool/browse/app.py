"""The browser's first screen: places at the left, messages at the right, and the jumps between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from rmqtool.browse.browsed_store import BrowsedStore
from rmqtool.browse.findings_screen import FindingsScreen
from rmqtool.browse.list_model import STRONG, Line, Lines
from rmqtool.browse.message_list import FileRecords, FoundMessages, MessageList, NoMessages, QueueMessages
from rmqtool.browse.place_list import Place, PlaceList
from rmqtool.browse.record_screen import PlaceInQueue, RecordScreen
from rmqtool.browse.verification import Look, Verification
from rmqtool.browse.virtual_list import VirtualList
from rmqtool.engine.reading.stored_message import StoredMessage
from rmqtool.errors import RmqtoolError
from rmqtool.findings.finding import Finding
from rmqtool.formats.queue_name import QueueName
from rmqtool.report.text import counted, escaped
from rmqtool.times import parse_time

_FIRST_SCREEN_ONLY = frozenset(
    {"other_list", "filter", "queue_offset", "time", "key", "physical_offset", "findings", "toggle_places"}
)


class Browser(App[None]):
    """The application."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #title, #status { height: 1; width: 1fr; background: $panel; }
    #status.note { background: $warning; color: $text; }
    #places { width: 26; border-right: solid $panel; }
    Screen > Footer { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),  # stays in sight on a narrow terminal
        Binding("tab", "other_list", "Tab", show=False, priority=False),
        Binding("slash", "filter", "Topics"),
        Binding("o", "queue_offset", "Offset"),
        Binding("t", "time", "Time"),
        Binding("k", "key", "Key, id"),
        Binding("p", "physical_offset", "Physical"),
        Binding("f", "findings", "Findings"),
        Binding("z", "toggle_places", "Wide"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, store: BrowsedStore, look: Look) -> None:
        super().__init__()
        self.store = store
        self.verification = Verification(store, look)
        self._topic: str | None = None
        self._note = self._noted_at = ""

    def compose(self) -> ComposeResult:
        self.places = PlaceList(self.store)
        yield Static(id="title", markup=False)
        with Horizontal():
            yield VirtualList(self.places, name="places")
            advice = "Enter opens a topic, then a queue; ? shows all keys"
            if not self.store.queue_names():
                advice = "the store has no consume queues: open a file of the commit log; ? shows all keys"
            yield VirtualList(NoMessages(advice), name="messages")
        yield Static(id="status", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        title = f"{self.store.label}  read-only  rules of broker {self.store.rules.version}"
        self.query_one("#title", Static).update(escaped(title))
        self._list("places").focus()
        if problems := self.store.problems:
            more = f" (and {counted(len(problems) - 1, 'more place')})" if len(problems) > 1 else ""
            self._tell(f"not all is shown{more}: {problems[0]}")

    def on_unmount(self) -> None:
        """A run of verify ends at its next step."""
        self.verification.cancel()

    @property
    def messages(self) -> MessageList:
        """The list at the right."""
        model = self._list("messages").model
        assert isinstance(model, MessageList)
        return model

    def open_queue(self, name: QueueName, queue_offset: int | None = None) -> None:
        """Show a queue, at a queue offset."""
        self._topic = name[0]
        messages: MessageList
        try:
            messages = QueueMessages(self.store, name)
        except RmqtoolError as error:
            messages = NoMessages(str(error))
        row = 0
        if isinstance(messages, QueueMessages) and queue_offset is not None:
            row = queue_offset - messages.first
        self._list("messages").show(messages, row)
        if (place := self.places.row_of(name)) is not None:
            self._list("places").show(self.places, place)
        if row and not 0 <= row < messages.count():
            self._tell(self._offsets(messages, str(queue_offset)))

    def open_message(self, message: StoredMessage, row: int = 0, *, in_list: bool = False) -> None:
        """Show one record."""

        def go_to_queue(place: PlaceInQueue | None) -> None:
            if place is not None:
                self.open_queue(*place)
                self._list("messages").focus()

        self.push_screen(RecordScreen(self.store, message, self.messages if in_list else None, row), go_to_queue)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Jumps start from the first screen only."""
        del parameters
        return len(self.screen_stack) <= 1 or action not in _FIRST_SCREEN_ONLY

    def on_virtual_list_chosen(self, event: VirtualList.Chosen) -> None:
        """Open the line under the cursor."""
        if event.list.id == "places":
            self._choose(self.places.places[event.row], event.row)
        elif event.list.id == "messages":
            known = self.messages.row(event.row)
            if known is not None and known.message is not None:
                self.open_message(known.message, event.row, in_list=True)
            elif known is not None:
                self._tell(known.problem or known.note or "nothing is there")

    def on_virtual_list_moved(self, event: VirtualList.Moved) -> None:
        """Say where the cursor is."""
        if event.list.id == "messages":
            self._show_status()

    def action_other_list(self) -> None:
        """Between the two lists."""
        is_left = self._list("places").has_focus
        self._list("messages" if is_left or not self._list("places").display else "places").focus()

    def action_toggle_places(self) -> None:
        """Give the messages the whole width, or not."""
        places = self._list("places")
        places.display = not places.display
        (places if places.display else self._list("messages")).focus()

    def action_help(self) -> None:
        """Every key."""
        self.push_screen(HelpDialog())

    def action_filter(self) -> None:
        """Fewer topics."""

        def narrow(text: str) -> None:
            self.places.filter(text)
            self._list("places").show(self.places)

        self._ask("Show only topics with this text in their name (nothing: all)", narrow)

    def action_queue_offset(self) -> None:
        """Go to a queue offset."""
        messages = self.messages
        if not isinstance(messages, QueueMessages):
            self._tell("choose a queue first")
            return

        def go(text: str) -> None:
            if not text.isascii() or not text.isdigit() or not messages.first <= int(text[:20]) < messages.end:
                self._tell(self._offsets(messages, text))
            else:
                self._list("messages").go(int(text) - messages.first)
                self._list("messages").focus()

        self._ask(f"Queue offset, from {messages.first} to {messages.end - 1}", go)

    def action_time(self) -> None:
        """Go to a time."""
        messages = self.messages
        if not isinstance(messages, QueueMessages):
            self._tell("choose a queue first")
            return

        def go(text: str) -> None:
            offset = self.store.offset_by_time(messages.name, parse_time(text, "time"))
            self._list("messages").go(offset - messages.first)
            self._list("messages").focus()

        self._ask("Time: ISO 8601, ms, 2h (ago), 'yesterday 14:00' or now", go)

    def action_physical_offset(self) -> None:
        """Open the message or bytes at a physical offset."""
        self._ask("Physical offset in the commit log", self._open_place)

    def action_key(self) -> None:
        """Find a message by id or key."""
        topic = self._topic
        where = f"or key in topic {topic}" if topic is not None else "(a key: choose a topic first)"
        self._ask(f"Message id {where}", lambda text: self._find(topic, text))

    def action_findings(self) -> None:
        """Verify the store, and show the findings."""
        self.push_screen(FindingsScreen(self.verification), self._go_to_finding)

    def _choose(self, place: Place, row: int) -> None:
        if place.is_group:
            self.places.toggle(row)
            self._topic = place.group or self._topic
            self._list("places").changed()
        elif place.queue is not None:
            self.open_queue(place.queue)
            self._list("messages").focus()
        elif place.segment is not None:
            self._list("messages").show(FileRecords(self.store, place.segment))
            self._list("messages").focus()

    def _go_to_finding(self, finding: Finding | None) -> None:
        if finding is None:
            return
        name = (finding.topic or "", finding.queue_id or 0)
        if finding.queue_offset is not None and name in self.store.queue_names():
            self.open_queue(name, finding.queue_offset)
            self._list("messages").focus()
        elif finding.physical_offset is not None:
            self._open_place(str(finding.physical_offset))
        else:
            self.open_queue(name)
            self._list("messages").focus()

    def _open_place(self, text: str) -> None:
        is_number = text.isascii() and text.isdigit() and len(text) < 20
        message = self.store.message_at(int(text)) if is_number else None
        if message is not None:
            self.open_message(message)
            return
        log = self.store.reader.log
        self._tell(f"nothing can be read at {text}: the commit log goes from {log.minimum} to {log.end}")

    @work(thread=True, group="find", exclusive=True)
    def _find(self, topic: str | None, text: str) -> None:
        """Find a message, which may take long in a large index."""

        def show(messages: list[StoredMessage]) -> None:
            if not messages:
                self._tell(f"no message with {text}" + (f" in the index for {topic}" if topic is not None else ""))
            elif len(messages) == 1:
                self.open_message(messages[0])
            else:
                self._list("messages").show(FoundMessages(messages))
                self._list("messages").focus()

        try:
            messages = self.store.messages_by_name(topic, text)
        except RmqtoolError as error:
            self.call_from_thread(self._tell, str(error))
            return
        self.call_from_thread(show, messages)

    def _offsets(self, messages: MessageList, text: str) -> str:
        if not isinstance(messages, QueueMessages) or not messages.count():
            return f"the queue has no messages, so not {text}"
        return f"the queue has offsets {messages.first} to {messages.end - 1}, not {text}"

    def _ask(self, question: str, use: Callable[[str], object]) -> None:
        """Ask a question and use the answer; an error in it is shown."""

        def answer(text: str | None) -> None:
            if text is None:
                return
            try:
                use(text)
            except RmqtoolError as error:
                self._tell(str(error))

        self.push_screen(QuestionDialog(question), answer)

    def _tell(self, text: str) -> None:
        """Show a text on the last line, until the cursor moves."""
        self._note, self._noted_at = text, self._where()
        self._show_status()

    def _show_status(self) -> None:
        where = self._where()
        if where != self._noted_at:
            self._note = ""
        status = self.screen_stack[0].query_one("#status", Static)
        status.update(escaped(self._note or where))
        status.set_class(bool(self._note), "note")

    def _list(self, name: str) -> VirtualList:
        return self.screen_stack[0].query_one(f"#{name}", VirtualList)

    def _where(self) -> str:
        messages = self.messages
        cursor = self._list("messages").cursor
        if isinstance(messages, QueueMessages):
            name = f"{messages.name[0]}/{messages.name[1]}"
            if not messages.count():
                return f"{name}: no messages"
            number = f"{name}: {cursor + 1:,} of {messages.count():,} messages"
            if messages.served_end < messages.end:
                return f"{number}; a broker ends the queue at {messages.served_end}"
            return number
        if isinstance(messages, FileRecords):
            return f"{messages.segment.path}: record {cursor + 1:,}; more are found as you scroll"
        return f"{cursor + 1} of {messages.count()} found" if isinstance(messages, FoundMessages) else ""


# Dialogs of the browser: one line of input, and the help.


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

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(escaped(self._question), markup=False)
            yield Input(max_length=1000)

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

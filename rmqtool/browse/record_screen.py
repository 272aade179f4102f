"""One record, or the bytes where none is: all of it as lines, and the ones before and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from rmqtool.browse.browsed_store import BrowsedStore
from rmqtool.browse.lines_screen import LinesScreen
from rmqtool.browse.list_model import Line, Lines
from rmqtool.browse.record_lines import record_lines
from rmqtool.browse.virtual_list import VirtualList
from rmqtool.engine.reading.stored_message import StoredMessage
from rmqtool.formats.queue_name import QueueName

if TYPE_CHECKING:
    from rmqtool.browse.message_list import MessageList

PlaceInQueue = tuple[QueueName, int]


class RecordScreen(LinesScreen[PlaceInQueue | None]):
    """A record; gives back its queue and queue offset where somebody wants to see it there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("n", "step(1)", "Next"),
        Binding("b", "step(-1)", "Previous"),
        Binding("x", "bytes", "Bytes"),
        Binding("u", "queue", "In its queue"),
    ]

    def __init__(
        self, store: BrowsedStore, message: StoredMessage, messages: MessageList | None = None, row: int = 0
    ) -> None:
        super().__init__()
        self._store, self._message, self._messages, self._row = store, message, messages, row
        self._has_bytes = True

    def lines(self, width: int) -> list[Line]:
        with self._store.lock:
            return record_lines(self._message, width, self._store.decoder, with_hex=self._has_bytes)

    def action_step(self, rows: int) -> None:
        """Another message of the list from which this one was opened."""
        if self._messages is None:
            return
        row = self._row + rows
        if not 0 <= row < self._messages.count():
            self.notify("there is no further message in this list", timeout=3)
            return
        if not self._messages.is_read(row, 1):
            self._messages.read(row, 1)
        known = self._messages.row(row)
        self._row = row
        if known is not None and known.message is not None:
            self._message = known.message
            self.show_lines(top=True)
        else:
            lines = [Line(f"queue offset {known.queue_offset}"), known.line(())] if known is not None else []
            self.query_one(VirtualList).show(Lines(lines))

    def action_bytes(self) -> None:
        """Show the bytes, or not."""
        self._has_bytes = not self._has_bytes
        self.show_lines()

    def action_queue(self) -> None:
        """Leave for the message's queue."""
        record = self._message.record
        if record is None:
            self.notify("this is not a record, so it belongs to no queue", timeout=3)
        else:
            self.dismiss(((record.topic, record.queue_id), record.queue_offset))

"""One record, or the bytes where none is: all of it as lines, and the ones before and after it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding, BindingType

from rmqtool.browse.browsed_store import BrowsedStore
from rmqtool.browse.lines_screen import LinesScreen
from rmqtool.browse.list_model import BAD, FAINT, PLAIN, STRONG, Line, Lines, wrapped
from rmqtool.browse.virtual_list import VirtualList
from rmqtool.engine.reading.stored_message import StoredMessage, message_finding
from rmqtool.errors import UnreadableError
from rmqtool.findings.registry import BY_ID
from rmqtool.formats.queue_name import QueueName
from rmqtool.report.bodies import BodyChoice, BodyDecoder, BodyForm
from rmqtool.report.body_lines import body_lines, decoded_lines
from rmqtool.report.columns import cell_text
from rmqtool.report.hexview import bare_parts, hex_lines, message_parts
from rmqtool.report.rows import MESSAGE_FIELDS, message_row
from rmqtool.report.text import counted, escaped, field_lines

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
            try:
                return list(_lines(self._message, width, self._store.decoder, with_hex=self._has_bytes))
            except UnreadableError as error:
                return [Line(text, BAD) for text in wrapped(escaped(str(error)), width)]

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
            line = self._messages.line(row, self.size.width)
            self.query_one(VirtualList).show(Lines([] if line is None else [line]))

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


# A record as lines: what it is, what is wrong with it, fields, properties, decoded body, body, and every byte.


BODY_MAX: Final = 64 << 10
"""Bytes of a body that are shown."""
BODY_LINES_MAX: Final = 2000
_NOT_FIELDS: Final = frozenset({"type", "properties"})
_NAME_WIDTH: Final = max(map(len, MESSAGE_FIELDS))


def _lines(message: StoredMessage, width: int, decoder: BodyDecoder | None, *, with_hex: bool) -> Iterator[Line]:
    finding = message_finding(message)
    record = message.record
    what = "Record" if record is not None else "Bytes" if finding is not None else "Blank"
    yield Line(f"{what} at physical offset {message.physical_offset}, {counted(message.size, 'byte')}", STRONG)
    yield Line(f"in {escaped(message.place.path)} at byte {message.place.file_position}", FAINT)
    if finding is not None:
        yield Line(finding, BAD)
        for text in textwrap.wrap(BY_ID[finding].meaning, width):
            yield Line(text)
    if record is not None:
        choice = BodyChoice(BodyForm.TEXT, BODY_MAX, decoder=decoder)
        row = message_row(record, choice, finding=finding, physical_offset=message.physical_offset)
        yield Line("")
        yield from _fields(row, width)
        yield from _body(row, width)
    if with_hex:
        yield Line("")
        yield Line("bytes:", STRONG)
        parts = (bare_parts if record is None else message_parts)(message.range, message.size)
        yield from (Line(text) for text in hex_lines(parts, width, message.physical_offset))


def _fields(row: Mapping[str, Any], width: int) -> Iterator[Line]:
    for name in MESSAGE_FIELDS:
        text = "" if name in _NOT_FIELDS else cell_text(name, row[name])
        if text:
            text = f"{text} ({row[name]})" if name.endswith("_timestamp_ms") else text
            is_bad = name == "finding" or (name == "body_crc_ok" and not row[name])
            yield from _field(name, text, width, BAD if is_bad else PLAIN)
    for name, value in row["properties"].items():
        yield from _field("property", f"{escaped(name)}: {escaped(value)}", width)


def _field(name: str, text: str, width: int, style: str = PLAIN) -> Iterator[Line]:
    for line in field_lines(name, text, _NAME_WIDTH, width):
        for part in wrapped(line, width):
            yield Line(part, style)


def _body(row: Mapping[str, Any], width: int) -> Iterator[Line]:
    yield Line("")
    if decoded := decoded_lines(row):
        yield Line(decoded[0], BAD if row["decoded"] is None else STRONG)
        yield from _wrapped(decoded[1:], width)
        yield Line("")
    if row["body_error"] is not None:
        yield Line("body:", STRONG)
        yield from _wrapped(body_lines(row), width, BAD)
        return
    yield Line(f"body ({row['body_encoding']}):", STRONG)
    yield from _wrapped(body_lines(row), width)


def _wrapped(texts: list[str], width: int, style: str = PLAIN) -> Iterator[Line]:
    count = 0
    for text in texts:
        for part in wrapped(escaped(text), max(1, width - 2)):
            count += 1
            if count > BODY_LINES_MAX:
                yield Line(f"  (more than {BODY_LINES_MAX} lines, cut here)", FAINT)
                return
            yield Line(f"  {part}", style)

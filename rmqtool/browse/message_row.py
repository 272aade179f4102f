"""One line of a table of messages: a record, or the problem in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqtool.browse.list_model import BAD, FAINT, PLAIN, Line
from rmqtool.engine.queues.unit import QueueUnit
from rmqtool.engine.reading.stored_message import StoredMessage, message_finding
from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import FILLER_UNIT
from rmqtool.formats.queue_name import QueueName
from rmqtool.report.columns import Column, fitted, line_of
from rmqtool.report.rows import message_value
from rmqtool.report.text import padded

CHECKED_BODY_MAX: Final = 64 << 10
"""Bytes of a body whose CRC is checked for a line; of a longer one it is checked when the record is opened."""
GAP: Final = 1
COLUMNS: Final = (
    Column("queue_offset", 11, right=True),
    Column("store_timestamp_ms", rank=1),
    Column("tags", 8, rank=2, stretches=True),
    Column("keys", 8, rank=3, stretches=True),
    Column("size", 7, right=True, rank=4),
    Column("physical_offset", 15, right=True, rank=5),
    Column("born_host", 21, rank=6),
    Column("unique_key", 32, rank=7),
)
LOG_COLUMNS: Final = (
    Column("physical_offset", 15, right=True),
    Column("topic", 10, stretches=True),
    Column("store_timestamp_ms", rank=1),
    Column("tags", 8, rank=2, stretches=True),
    Column("keys", 8, rank=3, stretches=True),
    Column("size", 7, right=True, rank=4),
    Column("queue_id", 8, right=True, rank=5),
    Column("queue_offset", 12, right=True, rank=5),
    Column("unique_key", 32, rank=6),
)


@dataclass(frozen=True)
class MessageRow:
    """One place of a queue or of the log.

    Attributes:
        message: what lies there; None where nothing can be read.
        problem: what is wrong, or a finding's id.
        note: why there is no message, where nothing is wrong.
    """

    queue_offset: int | None
    physical_offset: int | None
    message: StoredMessage | None = None
    problem: str | None = None
    note: str | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def line(self, columns: Sequence[Column], width: int) -> Line:
        """The row in the columns that fit side by side."""
        columns = fitted(columns, width, GAP)
        first = columns[0]
        place = getattr(self, first.field)
        number = padded("" if place is None else str(place), first.width, right=True)
        if self.problem is not None:
            return Line(f"{number} {self.problem}", BAD)
        if self.note is not None:
            return Line(f"{number} {self.note}", FAINT)
        return Line(line_of(self.values, columns, GAP), PLAIN)


def heading_of(columns: Sequence[Column], width: int) -> str:
    """The names of the columns that fit side by side, above them."""
    titles = (padded(column.field, column.width, right=column.right) for column in fitted(columns, width, GAP))
    return (" " * GAP).join(titles).rstrip()


def row_of_unit(name: QueueName, queue_offset: int, unit: QueueUnit, message: StoredMessage | None) -> MessageRow:
    """The row of a unit and its message."""
    if (unit.physical_offset, unit.record_size, unit.stored_tags_code) == FILLER_UNIT:
        return MessageRow(queue_offset, None, note="(filler unit: no message)")
    if not (unit.physical_offset or unit.record_size or unit.stored_tags_code):
        return MessageRow(queue_offset, None, problem="gap: zeros, no unit")
    if message is None:
        text = f"points out of the commit log: physical offset {unit.physical_offset}, {unit.record_size} bytes"
        return MessageRow(queue_offset, unit.physical_offset, problem=text)
    row = row_of_message(message, queue_offset)
    record = message.record if row.problem is None else None
    if record is None or (record.queue_offset == unit.queue_offset and (record.topic, record.queue_id) == name):
        is_part = record is not None and unit.message_count > 1 and queue_offset > unit.queue_offset
        note = f"(in the batch of {unit.message_count} messages at {unit.queue_offset})"
        return MessageRow(queue_offset, row.physical_offset, message, note=note) if is_part else row
    if record.topic != name[0] or record.queue_offset != unit.queue_offset:
        text = f"another message: {record.topic}/{record.queue_id} at {record.queue_offset}"
        # Its properties may name further queues, or one that is not its own topic.
        if not any(name.startswith(("INNER_MULTI_", "__LITE_TOPIC")) for name in record.properties):
            return MessageRow(queue_offset, row.physical_offset, message, problem=text)
    return row


def row_of_message(message: StoredMessage, queue_offset: int | None = None) -> MessageRow:
    """The row of the bytes at a position of the log."""
    record, problem = None, None
    try:
        record = message.record
        if record is None or record.body_length <= CHECKED_BODY_MAX:
            problem = message_finding(message)
        elif record.physical_offset != message.physical_offset:
            problem = "commitlog.self-offset-mismatch"
    except UnreadableError as error:
        problem = str(error)
    record = record if problem is None else None
    if record is None:
        note = None if problem is not None else "(blank to the end of the file)"
        return MessageRow(queue_offset, message.physical_offset, message, problem, note)
    own = {
        "type": "message",
        "queue_offset": record.queue_offset if queue_offset is None else queue_offset,
        "physical_offset": message.physical_offset,
    }
    values = {column.field: message_value(record, column.field) for column in (*COLUMNS, *LOG_COLUMNS)} | own
    return MessageRow(values["queue_offset"], message.physical_offset, message, values=values)

"""Half messages of transactions, and the records that end them.

Broker: `TransactionalMessageBridge#putHalfMessage`, `#addRemoveTagInTransactionOp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rmqtool.engine.reading.reader import Reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.timers.waiting import queue_units
from rmqtool.formats.properties import HALF_TOPIC, OPERATION_TOPIC

BODY_MAX: Final = 1 << 20
"""Bytes of an operation record that are read; a broker writes a few kilobytes."""
_DIGITS_MAX: Final = 18


class HalfMessage(NamedTuple):
    """A half message.

    Attributes:
        record: None where it cannot be read.
        operation_queue_offset: of the record that ended it; None while it is open.
    """

    queue_offset: int
    record: Record | None
    operation_queue_offset: int | None


def half_messages(reader: Reader) -> Iterator[HalfMessage]:
    """The half messages of a store, in the order of their queue.

    Raises:
        UnreadableError: a file cannot be read.
        UnsupportedError: the queues are kept in a database that is not read.
    """
    ended = ended_offsets(reader)
    if (HALF_TOPIC, 0) not in reader.queues():
        return
    queue = reader.queue(HALF_TOPIC, 0)
    for unit in queue_units(queue, queue.min_queue_offset, queue.max_queue_offset):
        message = reader.message_at(unit.physical_offset)
        record = message.record if message is not None else None
        yield HalfMessage(unit.queue_offset, record, ended.get(unit.queue_offset))


def ended_offsets(reader: Reader) -> dict[int, int]:
    """Queue offsets of half messages that ended, with the queue offset of the operation record that says so."""
    ended: dict[int, int] = {}
    if (OPERATION_TOPIC, 0) not in reader.queues():
        return ended
    queue = reader.queue(OPERATION_TOPIC, 0)
    for unit in queue_units(queue, queue.min_queue_offset, queue.max_queue_offset):
        message = reader.message_at(unit.physical_offset)
        record = message.record if message is not None else None
        if record is None:
            continue
        for text in record.body(BODY_MAX).split(b","):
            if text.isdigit() and len(text) <= _DIGITS_MAX:
                ended.setdefault(int(text), unit.queue_offset)
    return ended

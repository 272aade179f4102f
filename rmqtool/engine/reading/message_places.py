"""Where a message of the log can be found: in its queue, and by its keys; and messages that only the log has.

A broker dispatches each message into one queue and, by its keys, into the index. Where one of them lacks it, consumers
or queries do not find what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from rmqtool.engine.reading.reader import COUNT_MAX, Reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.reading.stored_message import StoredMessage, message_finding
from rmqtool.errors import UnsupportedError
from rmqtool.formats.properties import INNER_BASE
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.columns import row_tuples
from rmqtool.scan.log import open_log
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.rules import Verdict

SEARCHED_MAX: Final = 256 << 20
"""Bytes of a log that are searched for a message that queues or index do not have: a second or two."""
_QUEUED: Final = frozenset({"none", "commit"})
"""Transaction types of messages that stand in a queue."""
_SECOND_MS: Final = 1000


@dataclass(frozen=True)
class MessagePlaces:
    """Presence of a message in log, queue and index; None where unknown, or where it belongs in none.

    Attributes:
        leads_to: where the unit at its queue offset leads instead; None where there is no unit.
        missing_key: a key by which the index does not find it.
    """

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    in_queue: bool | None
    in_index: bool | None
    leads_to: int | None = None
    missing_key: str | None = None

    @property
    def agree(self) -> bool:
        """True if log, queue and index have the message, as far as it belongs there."""
        return self.in_queue is not False and self.in_index is not False


def places_of(reader: Reader, message: StoredMessage, compacted: frozenset[str]) -> MessagePlaces | None:
    """Where a message of the log can be found; None for bytes that are no sound message.

    Args:
        compacted: topics whose queues are not those that the log is dispatched into.

    Raises:
        UnreadableError: a file of the queue or of the index cannot be read.
    """
    record = message.record
    if record is None or message_finding(message) is not None:
        return None
    if record.prepared_transaction_offset == TOMBSTONE:
        return None
    physical_offset, topic, queue_id = message.physical_offset, record.topic, record.queue_id
    # The header of a batch does not say where it stands in its queue.
    base = record.properties.get(INNER_BASE, "")
    queue_offset = int(base) if base.isdecimal() and len(base) < len(str(JAVA_LONG_MAX)) else record.queue_offset
    in_queue: bool | None = None
    leads_to = None
    if record.transaction in _QUEUED and topic not in compacted:
        with suppress(UnsupportedError):
            unit = reader.queue(topic, queue_id).unit_at(queue_offset)
            in_queue = False
            if unit is not None and unit.record_size > 0:
                in_queue = (unit.physical_offset, unit.record_size) == (physical_offset, record.size)
                leads_to = None if in_queue else unit.physical_offset
    in_index: bool | None = None
    missing_key = None
    keys = tuple(dict.fromkeys((*((record.unique_key,) if record.unique_key else ()), *record.keys)))
    if keys and record.transaction != "rollback" and reader.store.index_files:
        answers = [_finds(reader, record, key, physical_offset) for key in keys]
        missing_key = next((key for key, answer in zip(keys, answers, strict=True) if answer is False), None)
        if missing_key is not None:
            in_index = False
        elif None not in answers:
            in_index = True
    return MessagePlaces(physical_offset, topic, queue_id, queue_offset, in_queue, in_index, leads_to, missing_key)


def search_log(reader: Reader, row_filter: RowFilter, queue_offset: int | None = None) -> Iterator[StoredMessage]:
    """Messages of the log that pass a filter, whatever queues and index say, in log order.

    Raises:
        UnreadableError: a file of the log may not be opened.
    """
    store = reader.store
    with open_log(store.view.open, store.commitlog) as table:
        for batch in table.batches():
            for row in row_tuples(row_filter.chosen(batch)):
                if row.verdict != Verdict.GOOD or queue_offset not in (None, row.queue_offset):
                    continue
                message = reader.message_at(row.physical_offset)
                record = message.record if message is not None else None
                if message is not None and record is not None:
                    texts = (record.keys, record.unique_key, record.tags, record.message_id)
                    if row_filter.has_texts(*texts):
                        yield message


def log_bytes(reader: Reader) -> int:
    """Upper limit of the bytes that a search of the log reads."""
    return sum(segment.entry.allocated_bytes for segment in reader.store.commitlog)


def _finds(reader: Reader, record: Record, key: str, physical_offset: int) -> bool | None:
    """True if a query finds a message by a key; None where others with that key keep it from being read."""
    stored_ms = record.store_timestamp_ms
    full = False
    for begin_ms, end_ms in ((stored_ms - _SECOND_MS, stored_ms + _SECOND_MS), (0, JAVA_LONG_MAX)):
        try:
            result = reader.query_message(record.topic, key, COUNT_MAX, begin_ms, end_ms)
        except UnsupportedError:
            return None
        if physical_offset in result.indexed_physical_offsets:
            return True
        full = full or len(result.indexed_physical_offsets) >= COUNT_MAX
    return None if full else False

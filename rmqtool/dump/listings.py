"""Listings of a store for `dump`: what waits for its time, and which transactions are open."""

from __future__ import annotations

import fnmatch
import heapq
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter

from rmqtool.dump.request import RowSource
from rmqtool.dump.target import DumpKind
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.reading.unread_files import is_rocksdb_used
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.timers.loaded_timer import load_timer, timer_files, timer_queue, timer_record
from rmqtool.engine.timers.transactions import half_messages
from rmqtool.engine.timers.waiting import queue_units, timer_due_ms
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.properties import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_DELETE_KEY,
    TIMER_TOPIC,
)
from rmqtool.formats.rocksdb_store import DELIVERED, SCANNED
from rmqtool.report.rows import DumpRow
from rmqtool.store.config_json import DELAY_OFFSETS, delay_offsets, read_config
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.side_database import DIRECTORY, SideDatabase


class ListingDump(RowSource):
    """The rows of a listing; a message that a queue leads to and that cannot be read is a bad range."""

    def rows(self) -> Iterator[DumpRow]:
        """The rows of the topics that are asked for."""
        assert self.target.store is not None
        rules = rules_for(self.ask.broker_version)
        with open_reader(self.target.store, rules) as reader:
            try:
                is_pending = self.target.kind is DumpKind.PENDING
                for row in self._pending(reader) if is_pending else self._transactions(reader):
                    topics = self.ask.topics
                    if not topics or any(fnmatch.fnmatchcase(row["topic"] or "", pattern) for pattern in topics):
                        yield row
            except (UnreadableError, UnsupportedError) as error:
                self.problems.append(str(error))

    def _pending(self, reader: Reader) -> Iterator[DumpRow]:
        """What waits, by its time."""
        levels = sorted(queue_id + 1 for topic, queue_id in reader.queues() if topic == SCHEDULE_TOPIC)
        known = delay_offsets(read_config(reader.store.view, DELAY_OFFSETS))
        # Without an offset a broker begins at the first message of the level.
        delayed = [self._delayed(reader, level, known.get(level, 0)) for level in levels]
        return heapq.merge(self._timers(reader), *delayed, key=itemgetter("due_timestamp_ms"))

    def _timers(self, reader: Reader) -> Iterator[DumpRow]:
        if (TIMER_TOPIC, 0) not in reader.queues():
            return
        queue = timer_queue(reader)
        timer = load_timer(timer_files(reader.store), reader, queue)
        for slot in timer.pending_slots():
            units, broken = timer.chain(slot)
            self.bad_ranges += broken is not None
            for unit in units:
                record = timer_record(reader, unit)
                self.bad_ranges += record is None
                if record is not None:
                    yield _pending_row(record, "timer", unit.due_timestamp_ms, rolls=unit.rolls, deletes=unit.deletes)
        marks, rows = self._database_timers(reader)
        yield from rows
        first = max(timer.queue_offset, marks.get(SCANNED.decode(), 0))
        for entry in queue_units(queue, first, queue.max_queue_offset):
            record = self._record(reader, entry.physical_offset)
            due_ms = timer_due_ms(record.properties) if record is not None else None
            if record is not None and due_ms is not None:
                yield _pending_row(record, "queue", due_ms, deletes=TIMER_DELETE_KEY in record.properties)

    def _database_timers(self, reader: Reader) -> tuple[dict[str, int], Iterator[DumpRow]]:
        """How far the timers in RocksDB are, and those that wait there."""
        entries = reader.store.files.get(FileKind.ROCKSDB, ())
        if not is_rocksdb_used(entries):
            return {}, iter(())
        database = SideDatabase(reader.store.view, entries)
        marks = database.timer_marks()
        if database.failure is not None:
            self.problems.append(f"{DIRECTORY}: timers in RocksDB: {database.reason}")
        return marks, self._rows_of(reader, database, marks.get(DELIVERED.decode(), 0))

    def _rows_of(self, reader: Reader, database: SideDatabase, from_ms: int) -> Iterator[DumpRow]:
        for row in database.timers_from(from_ms):
            record = self._record(reader, row.physical_offset)
            if record is not None:
                yield _pending_row(record, "timer", row.due_timestamp_ms)

    def _delayed(self, reader: Reader, level: int, queue_offset: int) -> Iterator[DumpRow]:
        queue = reader.queue(SCHEDULE_TOPIC, level - 1)
        for unit in queue_units(queue, max(queue_offset, queue.min_queue_offset), queue.max_queue_offset):
            record = self._record(reader, unit.physical_offset)
            if record is not None:
                yield _pending_row(record, "level", unit.stored_tags_code, level=level)

    def _transactions(self, reader: Reader) -> Iterator[DumpRow]:
        """Half messages in the order of their queue."""
        for half in half_messages(reader):
            self.bad_ranges += half.record is None
            record = half.record
            if record is None:
                continue
            checks = record.properties.get("TRANSACTION_CHECK_TIMES", "0")
            yield {
                "type": "transaction",
                "state": "open" if half.operation_queue_offset is None else "ended",
                **_sent_to(record),
                "producer_group": record.properties.get(PRODUCER_GROUP),
                "check_count": int(checks) if checks.isascii() and checks.isdigit() and len(checks) < 10 else None,
                "half_queue_offset": half.queue_offset,
                "operation_queue_offset": half.operation_queue_offset,
                **_stored(record),
            }

    def _record(self, reader: Reader, physical_offset: int) -> Record | None:
        record = None
        with suppress(UnreadableError):
            message = reader.message_at(physical_offset)
            record = message.record if message is not None else None
        self.bad_ranges += record is None
        return record


def _pending_row(
    record: Record,
    waits_in: str,
    due_timestamp_ms: int,
    *,
    level: int | None = None,
    rolls: bool = False,
    deletes: bool = False,
) -> DumpRow:
    return {
        "type": "pending",
        "waits_in": waits_in,
        "due_timestamp_ms": due_timestamp_ms,
        **_sent_to(record),
        "delay_level": level,
        "rolls": rolls,
        "deletes": deletes,
        **_stored(record),
    }


def _sent_to(record: Record) -> DumpRow:
    """Where the producer sent a message that a broker keeps elsewhere."""
    queue_id = record.properties.get(REAL_QUEUE_ID, "")
    return {
        "topic": record.properties.get(REAL_TOPIC),
        "queue_id": int(queue_id) if queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 11 else None,
        "unique_key": record.unique_key,
    }


def _stored(record: Record) -> DumpRow:
    return {
        "physical_offset": record.place.physical_offset,
        "size": record.size,
        "store_timestamp_ms": record.store_timestamp_ms,
    }

"""Listings of a store for `dump`: waiting messages, open transactions, and messages of pop consumers."""

from __future__ import annotations

import fnmatch
import heapq
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import chain, islice, pairwise
from operator import attrgetter
from typing import IO, Any, Final, NamedTuple

import numpy as np

from rmqtool.dump.request import RowSource
from rmqtool.dump.target import DumpKind
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError, UnsupportedError, WriteError
from rmqtool.formats import properties
from rmqtool.formats.rocksdb.store import DELIVERED, SCANNED
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.report.rows import DumpRow
from rmqtool.sides.pop import DIRECTORY as POP_DIRECTORY
from rmqtool.sides.pop import PopDatabase, PopState, database_messages, popped_messages, read_pop_log
from rmqtool.sides.queue_scan import queue_units
from rmqtool.sides.rocksdb_tables import DIRECTORY, SideDatabase
from rmqtool.sides.timer.loaded import load_timer, timer_files, timer_queue
from rmqtool.sides.timer.waiting import timer_due_ms
from rmqtool.sides.transactions import half_messages
from rmqtool.store.config.config_json import delay_offsets
from rmqtool.store.config.config_kinds import DELAY_OFFSETS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb_files import has_to_open
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import reason


class ListingDump(RowSource):
    """The rows of a listing; a message that a queue leads to and that cannot be read is a bad range."""

    def rows(self) -> Iterator[DumpRow]:
        assert self.target.store is not None
        rules = rules_for(self.ask.broker_version)
        with open_reader(self.target.store, rules) as reader:
            try:
                listing = {DumpKind.PENDING: self._pending, DumpKind.POP: self._popped}
                for row in listing.get(self.target.kind, self._transactions)(reader):
                    topics = self.ask.topics
                    if not topics or any(fnmatch.fnmatchcase(row["topic"] or "", pattern) for pattern in topics):
                        yield row
            except (UnreadableError, UnsupportedError) as error:
                self.problems.append(str(error))

    def _pending(self, reader: Reader) -> Iterator[DumpRow]:
        """Waiting messages, by their time."""
        levels = sorted(queue_id + 1 for topic, queue_id in reader.queues() if topic == properties.SCHEDULE_TOPIC)
        known = delay_offsets(read_config(reader.store.view, DELAY_OFFSETS))

        def delayed(level: int) -> Iterator[Pending]:
            queue = reader.queue(properties.SCHEDULE_TOPIC, level - 1)
            # Without an offset a broker begins at the first message of the level.
            first = max(known.get(level, 0), queue.min_queue_offset)
            for unit in queue_units(queue, first, queue.max_queue_offset):
                yield Pending(unit.stored_tags_code, unit.physical_offset, 0, level)

        for pending in by_time(chain(self._timers(reader), *map(delayed, levels))):
            record = self._record(reader, pending.physical_offset, pending.size)
            if record is not None:
                yield {
                    "type": "pending",
                    "waits_in": {IN_TIMER: "timer", IN_QUEUE: "queue"}.get(pending.level, "level"),
                    "due_timestamp_ms": pending.due_ms,
                    **_sent_to(record),
                    "delay_level": pending.level if pending.level > IN_TIMER else None,
                    "rolls": pending.rolls,
                    "deletes": pending.deletes,
                    **_stored(record),
                }

    def _timers(self, reader: Reader) -> Iterator[Pending]:
        if (properties.TIMER_TOPIC, 0) not in reader.queues():
            return
        queue = timer_queue(reader)
        timer = load_timer(timer_files(reader.store), reader, queue)
        # What is in the log and comes into it again waits once, as a unit if its time is still to come.
        again = {entry.physical_offset for entry in queue_units(queue, timer.queue_offset, timer.logged_offset)}
        in_timer = set()
        for slot in timer.pending_slots():
            units, broken = timer.chain(slot)
            self.bad_ranges += broken is not None
            for unit in units:
                if unit.physical_offset in again:
                    in_timer.add(unit.physical_offset)
                due_ms = min(unit.due_timestamp_ms, JAVA_LONG_MAX)
                yield Pending(due_ms, unit.physical_offset, unit.record_size, IN_TIMER, unit.rolls, unit.deletes)
        marks, from_database = self._database_timers(reader)
        yield from from_database
        first = max(timer.queue_offset, marks.get(SCANNED.decode(), 0))
        for entry in queue_units(queue, first, queue.max_queue_offset):
            if entry.physical_offset in in_timer:
                continue
            record = self._record(reader, entry.physical_offset)
            due = timer_due_ms(record.properties) if record is not None else None
            if record is not None and due is not None:
                deletes = properties.TIMER_DELETE_KEY in record.properties
                yield Pending(due, entry.physical_offset, 0, IN_QUEUE, deletes=deletes)

    def _database_timers(self, reader: Reader) -> tuple[dict[str, int], Iterator[Pending]]:
        """Times up to which the timers in RocksDB were delivered, and those that wait there."""
        entries = reader.store.files.get(FileKind.ROCKSDB, ())
        if not has_to_open(reader.store.view, entries):
            return {}, iter(())
        database = SideDatabase(reader.store.view, entries)
        marks = database.timer_marks()
        if database.failure is not None:
            self.problems.append(f"{DIRECTORY}: timers in RocksDB: {database.reason}")
        rows = database.timers_from(marks.get(DELIVERED.decode(), 0))
        return marks, (Pending(row.due_timestamp_ms, row.physical_offset, 0, IN_TIMER) for row in rows)

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
                "state": half.state.value,
                **_sent_to(record),
                "producer_group": record.properties.get(properties.PRODUCER_GROUP),
                "check_count": int(checks) if checks.isascii() and checks.isdigit() and len(checks) < 10 else None,
                "half_queue_offset": half.queue_offset,
                "operation_queue_offset": half.operation_queue_offset,
                "born_timestamp_ms": record.born_timestamp_ms,
                **_stored(record),
            }

    def _popped(self, reader: Reader) -> Iterator[DumpRow]:
        """Messages of the check points that a broker has still to handle."""
        waiting = by_time(pending for pending in self._timers(reader) if not pending.deletes)
        records = (self._record(reader, pending.physical_offset, pending.size) for pending in waiting)
        log = read_pop_log(reader, (record for record in records if record is not None))
        self.bad_ranges += len(log.bad_records)
        entries = reader.store.files.get(FileKind.POP_ROCKSDB, ())
        database = PopDatabase(reader.store.view, entries if has_to_open(reader.store.view, entries) else ())
        in_database = database_messages(reader, database.rows() if database.entries else ())
        for message in merge(popped_messages(reader, log), in_database, key=attrgetter("revive_timestamp_ms")):
            point, record, key = message.check_point, message.record, message.key
            self.bad_ranges += message.state is PopState.UNREADABLE
            yield {
                "type": "pop",
                "state": message.state.value,
                "topic": key.topic,
                "queue_id": key.queue_id,
                "queue_offset": message.queue_offset,
                "unique_key": record.unique_key if record is not None else None,
                "consumer_group": key.consumer_group,
                "consumer_offset": message.consumer_offset,
                "pop_timestamp_ms": key.pop_timestamp_ms,
                "revive_timestamp_ms": message.revive_timestamp_ms,
                "revive_queue_id": point.revive_queue_id if point is not None else None,
                "revive_queue_offset": point.queue_offset if point is not None else None,
                "physical_offset": record.place.physical_offset if record is not None else None,
                "check_point_physical_offset": point.record.place.physical_offset if point is not None else None,
            }
        self.bad_ranges += database.odd_row_count
        if database.odd_row_count:
            self.problems.append(f"{POP_DIRECTORY}: {database.odd_row_count} odd rows, the first: {database.odd_row}")
        if database.failure is not None:
            self.problems.append(f"{POP_DIRECTORY}: what pop consumers hold is in RocksDB: {database.reason}")

    def _record(self, reader: Reader, physical_offset: int, size: int = 0) -> Record | None:
        """The record at a physical offset; None, which is counted, where a broker gets none, or none of this size."""
        record = None
        with suppress(UnreadableError):
            message = reader.message_at(physical_offset)
            record = message.record if message is not None else None
            record = record if record is not None and size in (0, record.size) else None
        self.bad_ranges += record is None
        return record


def _sent_to(record: Record) -> DumpRow:
    """Original destination of a message that a broker keeps elsewhere."""
    queue_id = record.properties.get(properties.REAL_QUEUE_ID, "")
    return {
        "topic": record.properties.get(properties.REAL_TOPIC),
        "queue_id": int(queue_id) if queue_id.isascii() and queue_id.isdigit() and len(queue_id) < 11 else None,
        "unique_key": record.unique_key,
    }


def _stored(record: Record) -> DumpRow:
    return {
        "physical_offset": record.place.physical_offset,
        "size": record.size,
        "store_timestamp_ms": record.store_timestamp_ms,
    }


# Sorts places of messages by time, some at a time in memory and the rest in a temporary file.


CHUNK_MAX: Final = 1 << 17
"""Messages that are sorted in memory."""
_READ_MAX: Final = 1024
_DTYPE: Final = np.dtype(
    [("due_ms", "i8"), ("physical_offset", "i8"), ("size", "i4"), ("level", "i4"), ("rolls", "?"), ("deletes", "?")]
)


class Pending(NamedTuple):
    """A message that waits in a delay level, or `IN_TIMER`, or `IN_QUEUE`; of a size, if known, or 0."""

    due_ms: int
    physical_offset: int
    size: int
    level: int
    rolls: bool = False
    deletes: bool = False


IN_TIMER: Final = 0
IN_QUEUE: Final = -1


def by_time(messages: Iterable[Pending], chunk_max: int = CHUNK_MAX) -> Iterator[Pending]:
    """The messages by their times, else as they come; WriteError if the disk does not take the temporary file."""
    rest = iter(messages)
    chunk = sorted(islice(rest, chunk_max), key=attrgetter("due_ms"))
    if len(chunk) < chunk_max:
        yield from chunk
        return
    with tempfile.TemporaryFile() as file:
        ends = [0]
        try:
            while chunk:
                file.write(np.array(chunk, _DTYPE).tobytes())
                ends.append(ends[-1] + len(chunk))
                chunk = sorted(islice(rest, chunk_max), key=attrgetter("due_ms"))
            file.flush()
        except OSError as error:
            raise WriteError(f"{tempfile.gettempdir()}: {reason(error)}") from error
        chunks = [_read(file, start, end) for start, end in pairwise(ends)]
        yield from heapq.merge(*chunks, key=attrgetter("due_ms"))


def _read(file: IO[bytes], start: int, end: int) -> Iterator[Pending]:
    for at in range(start, end, _READ_MAX):
        file.seek(at * _DTYPE.itemsize)
        raw = file.read(min(_READ_MAX, end - at) * _DTYPE.itemsize)
        row: Any
        for row in np.frombuffer(raw, _DTYPE).tolist():
            yield Pending(*row)

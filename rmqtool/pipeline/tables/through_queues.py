"""Messages of chosen topics and queues, found by the units of their queues: of the log only their records are read.

A record counts that is good and says what its unit says. Where a unit is missing, bad, or not in the order of the log,
or its record says something else, the log is read from the record before to the record after: its rows are those of the
table `messages`, with what is wrong. After the last record that any queue has, the log is read to its end.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from rmqtool.engine.queues.unit_runs import UnitRun, UnitRuns
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.segments.log_position import newest_with_data
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MESSAGE_MAGICS
from rmqtool.formats.consumequeue import FILLER_UNIT, UNIT, UNIT_SIZE
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import QueueName
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.pipeline.tables.log_splits import LogTask, Splitting, log_tasks, read_task
from rmqtool.pipeline.tables.message_columns import GatheredRecords, MessageBatches, SourceFile
from rmqtool.scan.columns import Row, row_dtype
from rmqtool.scan.judge import TopicTable, judge_frame, judge_record
from rmqtool.scan.log import may_hold_data
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Segment, Settings, Store, survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.probe_lock import lock_report
from rmqtool.store.remote import without_listing
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import DirectoryView, StoreView

UNITS_MAX: Final = 1 << 20
"""Units of a task; each costs as much as some hundred bytes of a log."""
GATHERED_MAX: Final = 4 << 20
"""Bytes of the records of a batch, and one record more."""


@dataclass(frozen=True)
class QueuesTask:
    """The messages of some queues of a store, whose files the task lists itself.

    Attributes:
        dispatched_end: physical offset after the last record that any queue has.
    """

    view: StoreView
    settings: Settings
    names: tuple[QueueName, ...]
    dispatched_end: int


def may_be_found(store: Store, row_filters: Sequence[RowFilter]) -> bool:
    """True if queues tell the places of all messages that filters accept, as far as they were dispatched.

    They do not where a broker was killed, which may have left queues behind the log, and not of batches and of queues
    in RocksDB. Records after the log's end are in no queue.
    """
    asks = any(row_filter.topics is not None or row_filter.queue_ids is not None for row_filter in row_filters)
    has_others = bool(store.batch_queues or store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB))
    takes_stale = any(row_filter.stale for row_filter in row_filters)
    if not asks or has_others or takes_stale or not store.queues:
        return False
    if not store.has_abort:
        return True
    view = store.view
    if not isinstance(view, DirectoryView):
        return False
    return lock_report(view.root, [view.root / named for named in store.settings.commitlog_directories]).is_in_use


def queue_tasks(
    store: Store, row_filters: Sequence[RowFilter], splitting: Splitting
) -> tuple[list[QueuesTask], list[LogTask], RowFilter]:
    """Tasks for the wanted queues, those for the log after the last record of all queues, and the filter of these."""
    last_units = [(0, 0)]
    for queue in store.queues.values():
        for segment in reversed(queue.segments):
            last = _last_unit(store.view, segment)
            if last is not None:
                last_units.append(last)
                break
    # Of a unit that lies about its record nothing is believed.
    told = (begin + size for begin, size in sorted(last_units, reverse=True) if _is_record(store, begin, size))
    dispatched_end = next(told, store.log_start)
    groups: list[list[QueueName]] = [[]]
    room = UNITS_MAX
    for name, queue in store.queues.items():
        if name[0].startswith(LMQ_PREFIX) or not _wants(row_filters, name):
            continue  # a light queue has records of other topics
        count = sum(segment.size for segment in queue.segments) // UNIT_SIZE
        if groups[-1] and count > room:
            groups.append([])
            room = UNITS_MAX
        groups[-1].append(name)
        room -= count
    view = without_listing(store.view)
    tasks = [QueuesTask(view, store.settings, tuple(names), dispatched_end) for names in groups if names]
    behind = RowFilter(from_physical_offset=dispatched_end, stale=False)
    return tasks, log_tasks(store, [behind, *row_filters], splitting, row_at=dispatched_end), behind


def read_queues_task(task: QueuesTask, schema: pa.Schema, row_filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
    """The record batches of a task.

    Raises:
        NotAStoreError, UnreadableError: the store has gone, or may not be read.
    """
    store = survey(task.view, task.settings)
    _, record_crc = newest_with_data(store.view, store.commitlog)
    for name in task.names:
        if name in store.queues:
            yield from _QueueWalk(store, name, schema, row_filters, task.dispatched_end, record_crc).batches()


def _is_record(store: Store, begin: int, size: int) -> bool:
    """True if a good message of a size begins at a physical offset, and says so."""
    segment = store.segment_at(begin)
    if segment is None or not commitlog.RECORD_SIZE_MIN <= size <= segment.end - begin:
        return False
    try:
        with closing(store.view.open(segment.path)) as source:
            record = read_range(source, begin - segment.start, size)
    except UnreadableError:
        return False
    row = _judged(record, begin, size, TopicTable(), record_crc=False)
    return row is not None and row.own_offset == begin


def _judged(record: bytes, begin: int, size: int, topics: TopicTable, *, record_crc: bool) -> Row | None:
    """The row of a good message of a size; None where the bytes are anything else."""
    if len(record) < size:
        return None
    verdict, length, magic = judge_frame(record, size)
    if verdict != Verdict.GOOD or length != size or magic not in MESSAGE_MAGICS:
        return None
    row = judge_record(memoryview(record), begin, topics, parse_delay_levels(), record_crc)
    return row if row.verdict == Verdict.GOOD else None


def _wants(row_filters: Sequence[RowFilter], name: QueueName) -> bool:
    return all(one.may_name(name[0]) and one.may_number(name[1]) for one in row_filters)


def _last_unit(view: StoreView, segment: Segment) -> tuple[int, int] | None:
    """Physical offset and size of the record of a file's last unit; None where the file has none."""
    try:
        with closing(view.open(segment.path)) as source:
            for run in UnitRuns(source, UNIT_SIZE, segment.size, lambda: True, reverse=True).walk():
                if isinstance(run, UnitRun):
                    unit = np.frombuffer(run.raw[-UNIT_SIZE:], UNIT.dtype)[0]
                    return int(unit["physical_offset"]), int(unit["record_size"])
    except UnreadableError:
        pass
    return None


@dataclass
class _QueueWalk:
    """The walk over one queue, in the order of its units."""

    store: Store
    name: QueueName
    schema: pa.Schema
    row_filters: Sequence[RowFilter]
    dispatched_end: int
    record_crc: bool
    _rows: list[Row] = field(default_factory=list)
    _bytes: bytearray = field(default_factory=bytearray)
    _starts: list[int] = field(default_factory=list)
    _topics: TopicTable = field(default_factory=TopicTable)
    _segment: Segment | None = None
    _source: ByteSource | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The record batches of the queue, up to the last record that was dispatched when the task was planned."""
        low = max(self.store.log_start, *(one.offsets[0] for one in self.row_filters))
        high = min(self.dispatched_end, *(one.offsets[1] for one in self.row_filters))
        agreed = low  # end of the last record that its unit names
        # A queue of which a broker has removed files begins with units of removed records.
        segments = self.store.queues[self.name].segments
        is_in_doubt = bool(segments) and segments[0].start > 0
        before: tuple[int, int, int] | None = None  # the last unit of a record below `low`
        try:
            for unit in self._units():
                if unit is None:
                    is_in_doubt = True
                    continue
                queue_offset, begin, size = unit
                if agreed == low and begin >= 0 and size > 0 and begin + size <= low:
                    is_in_doubt = before is not None and begin < before[1]
                    before = unit
                    continue
                if before is not None:  # one that lies about a record further on would be the last of them
                    is_in_doubt |= before[1] >= self.store.log_start and self._record(*before) is None
                    before = None
                row_and_bytes = self._record(queue_offset, begin, size) if begin >= agreed else None
                if row_and_bytes is None:
                    is_in_doubt = True
                    continue
                if is_in_doubt:
                    yield from self._gathered()
                    yield from self._in_log(agreed, min(begin, high))
                    is_in_doubt = False
                if begin >= high:
                    break
                row, record = row_and_bytes
                self._rows.append(row)
                self._starts.append(len(self._bytes))
                self._bytes += record
                agreed = begin + size
                if len(self._bytes) >= GATHERED_MAX:
                    yield from self._gathered()
            yield from self._gathered()
            if is_in_doubt:
                yield from self._in_log(agreed, high)
        finally:
            if self._source is not None:
                self._source.close()

    def _units(self) -> Iterator[tuple[int, int, int] | None]:
        """Queue offset, physical offset and size of each unit; None where units should be and are none."""
        segments = self.store.queues[self.name].segments
        expected: int | None = None
        has_begun = False
        for number, segment in enumerate(segments):
            if expected is not None and segment.start != expected:
                yield None
            expected = segment.start + segment.size
            later = segments[number + 1 :]
            try:
                source = self.store.view.open(segment.path)
            except UnreadableError:
                yield None
                continue
            with closing(source):
                ends_data = partial(self._ends_data, later)
                for run in UnitRuns(source, UNIT_SIZE, segment.size, ends_data).walk():
                    if not isinstance(run, UnitRun):
                        yield None
                        continue
                    units = np.frombuffer(run.raw, UNIT.dtype)
                    first = (segment.start + run.position) // UNIT_SIZE
                    is_filler = units == np.array([FILLER_UNIT], UNIT.dtype)
                    places = zip(units["physical_offset"].tolist(), units["record_size"].tolist(), strict=True)
                    for at, ((begin, size), fills) in enumerate(zip(places, is_filler.tolist(), strict=True)):
                        if not fills:
                            has_begun = True
                            yield first + at, begin, size
                        elif has_begun:
                            yield None  # only before the first message a queue is filled up

    def _ends_data(self, later: Sequence[Segment]) -> bool:
        return not any(may_hold_data(self.store.view.open, segment.path) for segment in reversed(later))

    def _record(self, queue_offset: int, begin: int, size: int) -> tuple[Row, bytes] | None:
        """The record that a unit names; None where it is none of the queue."""
        segment = self.store.segment_at(begin)
        if segment is None or not commitlog.RECORD_SIZE_MIN <= size <= segment.end - begin:
            return None
        try:
            if self._segment is not segment or self._source is None:
                if self._source is not None:
                    self._source.close()
                self._segment, self._source = segment, self.store.view.open(segment.path)
            record = read_range(self._source, begin - segment.start, size)
        except UnreadableError:
            return None
        row = _judged(record, begin, size, self._topics, record_crc=self.record_crc)
        if row is None:
            return None
        place = decode_java_utf8(self._topics.names[row.topic_number]), row.queue_id, row.queue_offset
        return (row, record) if place == (*self.name, queue_offset) else None

    def _gathered(self) -> Iterator[pa.RecordBatch]:
        """The records that were taken since the last batch."""
        if not self._rows:
            return
        rows = np.array(self._rows, row_dtype())
        records = GatheredRecords(self._rows, self._topics.names, bytes(self._bytes), np.array(self._starts))
        files = [self.store.segment_at(row.physical_offset) for row in self._rows]
        self._rows, self._starts, self._bytes = [], [], bytearray()
        for segment, group in groupby(range(len(rows)), key=lambda number: files[number]):
            assert segment is not None, "a record was read from it"
            numbers = list(group)
            chosen = rows[numbers[0] : numbers[-1] + 1]
            for row_filter in self.row_filters:
                chosen = chosen[row_filter.mask(chosen, records.topics)]
            if chosen.size:
                columns = MessageBatches(self.schema, SourceFile(self.store.view.label, segment.path))
                yield from columns.batches(records.of_file(segment.start), chosen)

    def _in_log(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows of the queue in a range of the log, and what is wrong there."""
        if begin >= end:
            return
        topic, queue_id = self.name
        mine = RowFilter((glob.escape(topic),), frozenset({queue_id}), begin, end, stale=False)
        row_filters = [mine, *self.row_filters]
        for task in log_tasks(self.store, row_filters, Splitting(1), row_at=begin):
            yield from read_task(task, self.schema, row_filters)

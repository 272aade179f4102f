"""The log of a store cut into parts that tasks read: planned from its listing, looked into and scanned by the tasks.

The rows of all parts together are those of `dump`, in its order. Parts are cut at any byte; `scan.log.first_row_from`
finds where each begins. Planning reads the first bytes of the last files only, from the end back to one that holds
data: that one and the files after it, which are only preallocated, are one task, for what is after the log's end is
told only from its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from rmqtool.engine.segments.log_position import BLOCK_SIZE, newest_with_data
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import MISSING_LOG_FILE
from rmqtool.pipeline.tables.message_columns import MessageBatches, SourceFile, groups
from rmqtool.scan.first_time import first_store_time_ms
from rmqtool.scan.log import PROOF_BYTES, ScanOptions, carries_record_crc, first_row_from, may_hold_data
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.split import Split
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log
from rmqtool.store.remote import view_of_files
from rmqtool.store.view import StoreView

PART_BYTES: Final = 256 << 20
"""Bytes of a file that one task reads; more than it reads twice to prove its seams."""
TASKS_BY_TIME: Final = 32
"""Tasks of a log, at most, that look at store times: one that finds its files outside costs more than the look."""
UNREADABLE: Final = "commitlog.unreadable-range"
SEAM: Final = "commitlog.unproven-seam"
"""A part does not end where the next one begins; one part a file reads it right."""


@dataclass(frozen=True)
class LogSplit:
    """Rows of one log file that begin in [start, end).

    Attributes:
        view: of this file, and of the next one where its time is asked for.
        store: as a person named it.
        size: of the file as it is listed.
        more_follows: None where a later file is known to follow only by name: the files of a task tell.
        log_bytes: what the files of the log take on the disk, which chooses the reader.
        record_crc: whether the newest file carries whole-record checksums; an older one may by itself.
        missing: path of the file before, physical offset and size of a range before the file that no file holds.
        next_path: of the file whose first store time is the end of this one's; None where no time is asked for.
    """

    view: StoreView
    store: str
    path: str
    physical_offset: int
    size: int
    start: int
    end: int
    more_follows: bool | None
    log_bytes: int
    record_crc: bool
    missing: tuple[str, int, int] | None = None
    next_path: str | None = None
    proof_bytes: int = PROOF_BYTES
    compiled: bool | None = None

    def may_hold(self, row_filters: Sequence[RowFilter]) -> bool:
        """True if the file, or the range before it that no file holds, has offsets that all filters accept."""
        ranges = [(self.physical_offset, self.physical_offset + self.size)]
        if self.missing is not None:
            ranges.append((self.missing[1], self.missing[1] + self.missing[2]))
        return any(all(row_filter.may_be_between(begin, end) for row_filter in row_filters) for begin, end in ranges)


LogTask = tuple[LogSplit, ...]
"""Input of one task: one split, or splits whose files it must read first."""


@dataclass(frozen=True)
class Splitting:
    """Number or size of the parts into which files are cut.

    Attributes:
        tasks_by_time: of a log, at most, where times are asked for, which only a look into the files tells.
    """

    count: int | None = None
    part_bytes: int = PART_BYTES
    proof_bytes: int = PROOF_BYTES
    tasks_by_time: int = TASKS_BY_TIME

    def cuts(self, size: int) -> list[int]:
        """File positions at which parts begin."""
        count = self.count or max(1, -(-size // self.part_bytes))
        return sorted({size * number // count for number in range(count)})


def log_tasks(store: Store, row_filters: Sequence[RowFilter], splitting: Splitting) -> list[LogTask]:
    """Tasks for a store's log: the parts of its files that may hold rows that all filters accept."""
    demand_plain_log(store)
    segments = store.commitlog
    asks_for_time = any(row_filter.from_ms is not None or row_filter.to_ms is not None for row_filter in row_filters)
    newest, record_crc = newest_with_data(store.view, segments)
    log_bytes = sum(segment.entry.allocated_bytes for segment in segments[: newest + 1])
    wholes = []
    for number, segment in enumerate(segments):
        missing = None
        if number and store.commitlog_file_size:
            before = segments[number - 1]
            begin = before.start + store.commitlog_file_size
            missing = (before.path, begin, segment.start - begin) if segment.start > begin else None
        following = segments[number + 1 : number + 2] if asks_for_time else ()
        whole = LogSplit(
            view_of_files(store.view, [segment.entry, *(later.entry for later in following)]),
            store.view.label, segment.path, segment.start, segment.size, 0, segment.size,
            True if number < newest else None, log_bytes, record_crc, missing,
            following[0].path if following else None, splitting.proof_bytes,
        )  # fmt: skip
        wholes.append(whole)
    splits = [
        replace(whole, start=begin, end=end, missing=whole.missing if begin == 0 else None)
        for whole in wholes[:newest]
        if whole.may_hold(row_filters)
        for begin, end in pairwise([*splitting.cuts(whole.size), whole.size])
    ]
    # A query by time leaves few splits, which lie together: they are of different tasks.
    task_count = min(splitting.tasks_by_time, len(splits)) if asks_for_time else len(splits)
    tasks = [tuple(splits[first::task_count]) for first in range(task_count)]
    last = tuple(wholes[newest:])
    return [*tasks, *([last] if any(whole.may_hold(row_filters) for whole in last) else [])]


def read_task(task: LogTask, schema: pa.Schema, row_filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
    """The record batches of a task; whatever is wrong with a file is a row."""
    for split in _with_data(task):
        if split.may_hold(row_filters) and _is_in_time(split, row_filters):
            yield from _read_split(split, schema, row_filters)


def _with_data(task: LogTask) -> LogTask:
    """The splits of a task up to the last one whose file holds data; zero files after it are only preallocated."""
    last = -1
    for number, split in enumerate(task):
        if split.more_follows or number == 0 or may_hold_data(split.view.open, split.path):
            last = number
    return tuple(
        replace(split, more_follows=bool(split.more_follows) or number < last)
        for number, split in enumerate(task[: last + 1])
    )


def _read_split(part: LogSplit, schema: pa.Schema, row_filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
    columns = MessageBatches(schema, SourceFile(part.store, part.path))
    if part.missing is not None:
        path, physical_offset, size = part.missing
        if _may_hide(physical_offset, size, row_filters):
            before = MessageBatches(schema, SourceFile(part.store, path))
            yield before.range_row(physical_offset, size, MISSING_LOG_FILE, file_position=None)
    try:
        source = part.view.open(part.path)
    except UnreadableError:
        if part.start == 0 and _may_hide(part.physical_offset, part.size, row_filters):
            yield columns.range_row(part.physical_offset, part.size, UNREADABLE, file_position=0)
        return
    try:
        whole = Split(source, 0, source.size, part.physical_offset, bool(part.more_follows))
        yield from _scanned(part, whole, columns, row_filters)
    finally:
        source.close()


def _scanned(
    part: LogSplit, whole: Split, columns: MessageBatches, row_filters: Sequence[RowFilter]
) -> Iterator[pa.RecordBatch]:
    scan = ScanOptions(
        record_crc=part.record_crc or carries_record_crc([whole]),
        compiled=part.compiled,
        block_size=BLOCK_SIZE,
        log_bytes=part.log_bytes,
    )
    start = first_row_from(whole, part.start, scan, part.proof_bytes)
    is_last = part.end >= part.size
    end = whole.source.size if is_last else part.end
    if start >= end > 0:
        return
    walk = scan.walk(replace(whole, start=start, end=end))
    for batch in walk.batches():
        rows = batch.as_array()
        for row_filter in row_filters:
            mask = row_filter.mask(rows, batch.topics)
            rows = rows if mask.all() else rows[mask]
        for group in groups(rows):
            if group.size:
                yield from columns.batches(batch, group)
    if is_last:
        return
    behind = whole.source.size if walk.outcome.ended else walk.outcome.data_end
    if first_row_from(whole, end, scan, part.proof_bytes) != behind:
        yield columns.range_row(part.physical_offset + behind, 0, SEAM, file_position=behind)


def _may_hide(physical_offset: int, size: int, row_filters: Sequence[RowFilter]) -> bool:
    """True if a range that is not a record must be reported."""
    return all(row_filter.may_be_between(physical_offset, physical_offset + size) for row_filter in row_filters)


def _is_in_time(split: LogSplit, row_filters: Sequence[RowFilter]) -> bool:
    """True if a file may hold records of the requested times, by its first record and the next file's."""
    if split.next_path is None:
        return True  # no time is asked for, or nothing ends the time of the last file
    first_ms, next_first_ms = _first_ms(split.view, split.path), _first_ms(split.view, split.next_path)
    return all(row_filter.may_be_stored(first_ms, next_first_ms) for row_filter in row_filters)


def _first_ms(view: StoreView, path: str) -> int | None:
    try:
        with closing(view.open(path)) as source:
            return first_store_time_ms(source)
    except UnreadableError:
        return None

"""The log of a store cut into parts that tasks read: planned from its listing, looked into and scanned by the tasks.

The rows of all parts together are those of `dump`, in its order. Parts are cut at any byte; `scan.log.first_row_from`
finds where each begins. Of a file in which a range of offsets begins or ends only that range is read while all in it is
good; around damage only a walk over the whole file finds where records begin. Planning reads the first bytes of the
last files only, from the end back to one that holds data. That one and the files after it, which are only
preallocated, are one task, because only a walk from its start shows where the log ends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rmqtool.engine.segments.log_position import BLOCK_SIZE, newest_with_data
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import MISSING_LOG_FILE
from rmqtool.pipeline.tables.message_columns import MessageBatches, SourceFile, groups
from rmqtool.scan.first_time import first_store_time_ms
from rmqtool.scan.log import PROOF_BYTES, ScanOptions, carries_record_crc, first_row_from, may_hold_data
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Batch, Walk
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log
from rmqtool.store.remote import view_of_files
from rmqtool.store.view import StoreView

PART_BYTES: Final = 256 << 20
"""Bytes of a file that one task reads; more than it reads twice to prove its seams."""
OPEN_BYTES: Final = 4 << 20
"""As much as Spark takes the opening of a file for (`spark.sql.files.openCostInBytes`)."""
TASKS_BY_TIME: Final = 32
"""Tasks of a log, at most, that look at store times: one that finds its files outside costs more than the look."""
UNREADABLE: Final = "commitlog.unreadable-range"
SEAM: Final = "commitlog.unproven-seam"
"""A part does not end where the next one begins; one part a file reads it right."""


@dataclass(frozen=True)
class LogSplit:
    """Rows of one log file that begin in [start, end).

    Attributes:
        joins: whether another part of the file begins at `end`.
        from_row: of the first part of a range that begins inside the file: whether a row of the log is known to begin
            at `start`. None elsewhere.
        view: of this file, and of the next one where its time is asked for.
        store: as a person named it.
        size: of the file as it is listed.
        more_follows: whether a later file holds data. None where one of `later` tells; False of a file that was only
            preallocated when this was planned.
        later: paths of the files after this one, which may be only preallocated; none where `more_follows`.
        data_bytes: of the range, as far as the file has bytes on the disk.
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
    data_bytes: int
    log_bytes: int
    record_crc: bool
    missing: tuple[str, int, int] | None = None
    next_path: str | None = None
    proof_bytes: int = PROOF_BYTES
    compiled: bool | None = None
    joins: bool = False
    later: tuple[str, ...] = ()
    from_row: bool | None = None


LogTask = tuple[LogSplit, ...]
"""Input of one task: one split, or splits whose files it must read first."""


@dataclass(frozen=True)
class Splitting:
    """Number or size of the parts into which files are cut, and in which small ones are joined.

    Attributes:
        open_bytes: what opening a file costs, in bytes that could be read meanwhile.
        minimum: number of tasks of all stores, as far as there are bytes for them.
        tasks_by_time: of a log, at most, where times are asked for, which only a look into the files tells.
    """

    count: int | None = None
    part_bytes: int = PART_BYTES
    proof_bytes: int = PROOF_BYTES
    tasks_by_time: int = TASKS_BY_TIME
    open_bytes: int = OPEN_BYTES
    minimum: int = 1

    def cuts(self, size: int, data_bytes: int) -> list[int]:
        """File positions at which parts of a range begin; only bytes on the disk count, holes do not."""
        count = self.count or max(1, -(-data_bytes // self.part_bytes))
        return sorted({size * number // count for number in range(count)})


def log_tasks(
    store: Store, row_filters: Sequence[RowFilter], splitting: Splitting, row_at: int | None = None
) -> list[LogTask]:
    """Tasks for a store's log: the parts of its files that may hold rows that all filters accept.

    Args:
        row_at: physical offset at which a row of the log is known to begin, since an earlier reading ended there.
    """
    demand_plain_log(store)
    segments = store.commitlog
    asks_for_time = any(row_filter.from_ms is not None or row_filter.to_ms is not None for row_filter in row_filters)
    newest, record_crc = newest_with_data(store.view, segments)
    log_bytes = sum(segment.entry.allocated_bytes for segment in segments[: newest + 1])
    low = max(row_filter.offsets[0] for row_filter in row_filters)
    high = min(row_filter.offsets[1] for row_filter in row_filters)
    from_row = low == row_at
    splits: list[LogSplit] = []
    last: list[LogSplit] = []
    for number, segment in enumerate(segments):
        missing = None
        if number and store.commitlog_file_size:
            before = segments[number - 1]
            begin = before.start + store.commitlog_file_size
            if segment.start > begin and begin < high and segment.start > low:
                missing = (before.path, begin, segment.start - begin)
        begin, end = max(0, low - segment.start), min(segment.size, high - segment.start)
        if begin >= end and not (begin == 0 <= end and segment.size == 0):
            if missing is None:
                continue
            begin = end = 0
        if number >= newest and not from_row:
            begin = 0  # only a walk from the start of its last file shows where the log ends
        after = segments[number + 1 :] if number >= newest else ()
        following = segments[number + 1 : number + 2] if asks_for_time else ()
        shown = {later.path: later.entry for later in (segment, *after, *following)}
        asked = LogSplit(
            view_of_files(store.view, list(shown.values())),
            store.view.label, segment.path, segment.start, segment.size, begin, end,
            True if number < newest else None if number == newest else False,
            min(end - begin, segment.entry.allocated_bytes), log_bytes, record_crc, missing,
            following[0].path if following else None, splitting.proof_bytes, later=tuple(one.path for one in after),
            from_row=from_row if begin else None,
        )  # fmt: skip
        if number >= newest:
            last.append(asked)
            continue
        cuts = [begin + cut for cut in splitting.cuts(end - begin, asked.data_bytes)]
        for cut, next_cut in pairwise([*cuts, end]):
            share = asked.data_bytes * (next_cut - cut) // (end - begin) if end > begin else 0
            part = replace(asked, start=cut, end=next_cut, data_bytes=share, joins=next_cut < end)
            splits.append(part if cut == begin else replace(part, missing=None, from_row=None))
    # A query by time leaves few splits, which lie together: they are of different tasks.
    task_count = min(splitting.tasks_by_time, len(splits)) if asks_for_time else len(splits)
    tasks = [tuple(splits[first::task_count]) for first in range(task_count)]
    return [*tasks, *([tuple(last)] if last else [])]


def read_task(task: LogTask, schema: pa.Schema, row_filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
    """The record batches of a task; whatever is wrong with a file is a row."""
    known: dict[str, bool] = {}
    for split in task:
        if split.more_follows is False and not (_holds_data(split, split.path, known) or _follows(split, known)):
            break
        if _is_in_time(split, row_filters):
            yield from _read_split(split, schema, row_filters, known)


def _holds_data(split: LogSplit, path: str, known: dict[str, bool]) -> bool:
    if path not in known:
        known[path] = may_hold_data(split.view.open, path)
    return known[path]


def _follows(split: LogSplit, known: dict[str, bool]) -> bool:
    """True if a later file holds data, or cannot be read: what is at the end of this one is no end of the log."""
    return bool(split.more_follows) or any(_holds_data(split, path, known) for path in split.later)


def _read_split(
    part: LogSplit, schema: pa.Schema, row_filters: Sequence[RowFilter], known: dict[str, bool]
) -> Iterator[pa.RecordBatch]:
    file = SourceFile(part.store, part.path)
    if part.missing is not None:
        path, physical_offset, size = part.missing
        if _may_hide(physical_offset, size, row_filters):
            before = MessageBatches(schema, SourceFile(part.store, path))
            yield before.range_row(physical_offset, size, MISSING_LOG_FILE, file_position=None)
    try:
        source = part.view.open(part.path)
    except UnreadableError:
        if (part.start == 0 or part.from_row is not None) and _may_hide(part.physical_offset, part.size, row_filters):
            columns = MessageBatches(schema, file)
            yield columns.range_row(part.physical_offset, part.size, UNREADABLE, file_position=0)
        return
    try:
        whole = Split(source, 0, source.size, part.physical_offset)
        yield from _scanned(part, whole, schema, file, row_filters, known)
    finally:
        source.close()


def _scanned(
    part: LogSplit,
    whole: Split,
    schema: pa.Schema,
    file: SourceFile,
    row_filters: Sequence[RowFilter],
    known: dict[str, bool],
) -> Iterator[pa.RecordBatch]:
    scan = ScanOptions(
        record_crc=part.record_crc or carries_record_crc([whole]),
        compiled=part.compiled,
        block_size=BLOCK_SIZE,
        log_bytes=part.log_bytes,
    )
    end = whole.source.size if part.end >= part.size else part.end
    if part.from_row is None or end >= whole.source.size:  # of a range inside a file, where all is good, nobody asks
        whole = replace(whole, more_follows=_follows(part, known))
    columns = MessageBatches(schema, file)
    walk, damage = None, None
    if part.from_row is not None:
        walk = scan.walk(_from_before(part, whole, end))
        damage = yield from _good_rows(walk, part, columns, row_filters)
        if damage is not None:
            whole = replace(whole, more_follows=_follows(part, known))
            row_filters = [*row_filters, RowFilter(from_physical_offset=damage)]
            columns = MessageBatches(schema, file)  # each walk has its own numbers of topics
    if walk is None or damage is not None:
        start = first_row_from(whole, part.start, scan, part.proof_bytes) if walk is None else 0
        if start >= end and whole.source.size:
            return
        walk = scan.walk(replace(whole, start=start, end=end))
        for batch in walk.batches():
            yield from _rows(batch, batch.as_array(), columns, row_filters)
    behind = whole.source.size if walk.outcome.ended else walk.outcome.data_end
    if part.joins and first_row_from(whole, end, scan, part.proof_bytes) != behind:
        yield columns.range_row(part.physical_offset + behind, 0, SEAM, file_position=behind)


def _from_before(part: LogSplit, whole: Split, end: int) -> Split:
    """From the row at which a range begins, or else from a record so far before it that it must be one of the log."""
    if part.from_row:
        return replace(whole, start=part.start, end=end)
    start = max(0, part.start - part.proof_bytes)
    return replace(whole, start=start, end=end, anchor=start > 0)


def _good_rows(
    walk: Walk, part: LogSplit, columns: MessageBatches, row_filters: Sequence[RowFilter]
) -> Generator[pa.RecordBatch, None, int | None]:
    """The rows of a range's walk up to the first one that is not good; return the physical offset of that.

    None where all rows are good: they are those that the walk over the whole file has.
    """
    for batch in walk.batches():
        if walk.split.anchor and (walk.outcome.first_record or 0) >= part.start:
            break
        rows = batch.as_array()
        bad = np.flatnonzero(rows["verdict"] != Verdict.GOOD)
        yield from _rows(batch, rows[: bad[0]] if bad.size else rows, columns, row_filters)
        if bad.size:
            return int(rows[bad[0]]["physical_offset"])
    else:
        if walk.outcome.first_record is not None:
            return None
    return part.physical_offset + part.start


def _rows(
    batch: Batch, rows: np.ndarray[Any, Any], columns: MessageBatches, row_filters: Sequence[RowFilter]
) -> Iterator[pa.RecordBatch]:
    """The record batches of those rows of a batch that all filters accept."""
    for row_filter in row_filters:
        mask = row_filter.mask(rows, batch.topics)
        rows = rows if mask.all() else rows[mask]
    for group in groups(rows):
        if group.size:
            yield from columns.batches(batch, group)


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

"""The log of a store cut into parts that tasks read: planned by looking at names and first records, scanned by each.

The rows of all parts together are those of `dump`, in its order. Parts are cut at any byte; `scan.split_start` finds
where each begins. The last file that holds data is one part: what is behind the log's end is told only from its begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import pyarrow as pa

from rmqtool.errors import UnreadableError
from rmqtool.pipeline.message_columns import MessageBatches, SourceFile, groups
from rmqtool.scan.first_time import first_store_time_ms
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments, reader_for, walk_split
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.split import Split
from rmqtool.scan.split_start import PROOF_BYTES, first_row_from
from rmqtool.store.directory import Segment, Store
from rmqtool.store.view import StoreView

PART_BYTES: Final = 256 << 20
"""Bytes of a file that one task reads; longer than what it reads twice to prove its seams."""
BLOCK_SIZE: Final = 4 << 20
"""Bytes of a window: its rows are one record batch, of which few should be made."""
MISSING_FILE: Final = "commitlog.missing-file"
UNREADABLE: Final = "commitlog.unreadable-range"
SEAM: Final = "commitlog.unproven-seam"
"""A part does not end where the next one begins; one part a file reads it right."""


@dataclass(frozen=True)
class LogSplit:
    """Rows of one log file that begin in [start, end).

    Attributes:
        store: as a person named it.
        size: of the file when it was planned.
        missing: physical offset and size of a range in front of the file that no file holds.
        is_readable: False where the file could not be opened, which is one bad range.
    """

    view: StoreView
    store: str
    path: str
    physical_offset: int
    size: int
    start: int
    end: int
    more_follows: bool
    data_bytes: int
    scan: ScanOptions
    missing: tuple[str, int, int] | None = None
    is_readable: bool = True
    proof_bytes: int = PROOF_BYTES


@dataclass(frozen=True)
class Splitting:
    """How files are cut: into so many parts, or into parts of so many bytes."""

    count: int | None = None
    part_bytes: int = PART_BYTES
    proof_bytes: int = PROOF_BYTES

    def cuts(self, size: int) -> list[int]:
        """File positions at which parts begin."""
        count = self.count or max(1, -(-size // self.part_bytes))
        return sorted({size * number // count for number in range(count)})


def log_splits(store: Store, row_filters: Sequence[RowFilter], splitting: Splitting) -> list[LogSplit]:
    """The parts of a store's log that may hold rows that are wanted by all."""
    readable = {segment.path for segment in store.commitlog if _opens(store.view, segment)}
    opened = [segment for segment in store.commitlog if segment.path in readable]
    plan = plan_segments(store.view.open, opened)
    scan = ScanOptions(record_crc=carries_record_crc(plan.splits))
    plan.close()
    with_data = {segment.path for segment in opened[: len(plan.splits)]}
    # Zero files behind the log are only preallocated; one that cannot be read may hold anything.
    told = [
        at
        for at, log_segment in enumerate(store.commitlog)
        if log_segment.path in with_data or log_segment.path not in readable
    ]
    last = max(told, default=-1)
    segments = store.commitlog[: last + 1]
    kept = _in_time(store.view, segments, row_filters)
    parts: list[LogSplit] = []
    for number, segment in enumerate(segments):
        missing = _missing_before(store, segments, number)
        inside = all(each.may_be_between(segment.start, segment.end) for each in row_filters) and segment.path in kept
        if missing is not None:
            inside |= all(each.may_be_between(missing[1], missing[1] + missing[2]) for each in row_filters)
        if not inside:
            continue
        whole = LogSplit(
            store.view, store.view.label, segment.path, segment.start, segment.size, 0, segment.size,
            number < last, plan.data_bytes, scan, missing, segment.path in readable, splitting.proof_bytes,
        )  # fmt: skip
        parts += _cut(whole, splitting)
    return parts


def _cut(whole: LogSplit, splitting: Splitting) -> Iterator[LogSplit]:
    if not whole.more_follows or not whole.is_readable:
        yield whole
        return
    for begin, end in pairwise([*splitting.cuts(whole.size), whole.size]):
        yield replace(whole, start=begin, end=end, missing=whole.missing if begin == 0 else None)


def read_split(part: LogSplit, schema: pa.Schema, row_filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
    """The record batches of a part; whatever is wrong with the file is a row."""
    columns = MessageBatches(schema, SourceFile(part.store, part.path))
    if part.missing is not None:
        path, physical_offset, size = part.missing
        if _may_hide(physical_offset, size, row_filters):
            before = MessageBatches(schema, SourceFile(part.store, path))
            yield before.range_row(physical_offset, size, MISSING_FILE, file_position=None)
    try:
        source = part.view.open(part.path)
    except UnreadableError:
        if part.start == 0 and _may_hide(part.physical_offset, part.size, row_filters):
            yield columns.range_row(part.physical_offset, part.size, UNREADABLE, file_position=0)
        return
    try:
        whole = Split(source, 0, source.size, part.physical_offset, part.more_follows)
        yield from _scanned(part, whole, columns, row_filters)
    finally:
        source.close()


def _scanned(
    part: LogSplit, whole: Split, columns: MessageBatches, row_filters: Sequence[RowFilter]
) -> Iterator[pa.RecordBatch]:
    make_reader = reader_for(part.data_bytes, part.scan.compiled)
    start = first_row_from(whole, part.start, make_reader, part.scan, part.proof_bytes)
    is_last = part.end >= part.size
    end = whole.source.size if is_last else part.end
    if start >= end > 0:
        return
    walk = replace(walk_split(replace(whole, start=start, end=end), make_reader(), part.scan), block_size=BLOCK_SIZE)
    for batch in walk.batches():
        rows = batch.as_array()
        for each in row_filters:
            mask = each.mask(rows, batch.topics)
            rows = rows if mask.all() else rows[mask]
        for group in groups(rows):
            if group.size:
                yield columns.batch(batch, group)
    if is_last:
        return
    behind = whole.source.size if walk.outcome.ended else walk.outcome.data_end
    if first_row_from(whole, end, make_reader, part.scan, part.proof_bytes) != behind:
        yield columns.range_row(part.physical_offset + behind, 0, SEAM, file_position=behind)


def _may_hide(physical_offset: int, size: int, row_filters: Sequence[RowFilter]) -> bool:
    """Whether a range that is no record is to be told."""
    return all(
        each.may_be_between(physical_offset, physical_offset + size) and not (each.strict and each.wants_content)
        for each in row_filters
    )


def _missing_before(store: Store, segments: Sequence[Segment], number: int) -> tuple[str, int, int] | None:
    """Path of the file before, physical offset and size of the range between it and a file."""
    if number == 0 or not store.commitlog_file_size:
        return None
    before = segments[number - 1]
    begin = before.start + store.commitlog_file_size
    return (before.path, begin, segments[number].start - begin) if segments[number].start > begin else None


def _in_time(view: StoreView, segments: Sequence[Segment], row_filters: Sequence[RowFilter]) -> set[str]:
    """Paths of the files that may hold records of the wanted times."""
    if all(each.from_ms is None and each.to_ms is None for each in row_filters):
        return {segment.path for segment in segments}
    times: list[int | None] = [*(_first_ms(view, segment) for segment in segments), None]
    return {
        segment.path
        for segment, (first, following) in zip(segments, pairwise(times), strict=True)
        if all(each.may_be_stored(first, following) for each in row_filters)
    }


def _first_ms(view: StoreView, segment: Segment) -> int | None:
    try:
        with closing(view.open(segment.path)) as source:
            return first_store_time_ms(source)
    except UnreadableError:
        return None


def _opens(view: StoreView, segment: Segment) -> bool:
    try:
        view.open(segment.path).close()
    except UnreadableError:
        return False
    return True

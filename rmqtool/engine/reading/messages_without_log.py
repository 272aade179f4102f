"""Counts messages that only queues and index still know: the log's files that held them are missing, or too short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import FILLER_UNIT, unit_format
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, HEADER_SIZE, IndexHeader, entry_position
from rmqtool.formats.tombstone import are_dead
from rmqtool.quantities import OFFSETS_END
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.log import may_hold_data
from rmqtool.store.directory import QueueFiles, Segment, Store
from rmqtool.store.source import ByteSource, read_range, read_salvaging

_BLOCK_UNITS: Final = 1 << 18
Array = NDArray[Any]
Range = tuple[int, int]


def ranges_without_file(store: Store, segments: Sequence[Segment]) -> tuple[Range, ...]:
    """Physical offsets, from the log's start on, that no file holds; all of them where the files hold no byte."""
    if not segments or not any(may_hold_data(store.view.open, segment.path) for segment in segments):
        return ((0, OFFSETS_END),)
    following = [*(segment.start for segment in segments[1:]), OFFSETS_END]
    pairs = zip(segments, following, strict=True)
    return tuple((segment.end, start) for segment, start in pairs if segment.end < start)


def messages_without_log(store: Store, segments: Sequence[Segment]) -> int:
    """Messages that the queues point to, of which the log's files hold nothing."""
    ranges = ranges_without_file(store, segments)
    everywhere = {directory for _, _, directory in queues_of(store)}
    topics = {topic for topic, _, _ in queues_of(store)}
    return sum(len(units_without_file(store, topic, everywhere, ranges)) for topic in topics)


def queues_of(store: Store) -> Iterator[tuple[str, QueueFiles, str]]:
    """Topic, files and directory of each queue, plain and batch."""
    for queues in (store.queues, store.batch_queues):
        for queue in queues.values():
            yield queue.topic, queue, queue.directory


def units_without_file(store: Store, topic: str, directories: set[str], ranges: tuple[Range, ...]) -> Array:
    """A row (physical offset, record size) for each message of a topic whose unit points into the ranges."""
    row_blocks = [np.empty((0, 2), np.int64)]
    for name, queue, directory in queues_of(store):
        if name != topic or directory not in directories:
            continue
        dtype = unit_format(is_batch=directory.startswith("batch")).dtype
        for segment in queue.segments:
            try:
                source = store.view.open(segment.path)
            except UnreadableError:
                continue
            with closing(source):
                for units in _read(source, 0, last_data_end(source, 0, source.size), dtype):
                    starts, sizes = units["physical_offset"].astype(np.int64), units["record_size"].astype(np.int64)
                    counts = (starts >= 0) & (sizes > 0) & (sizes != FILLER_UNIT[1])
                    if store.commitlog_file_size:
                        counts &= ~are_dead(units, store.commitlog_file_size)
                    counts &= _reach_into(starts, sizes, ranges)
                    row_blocks.append(np.column_stack((starts[counts], sizes[counts])))
    rows: Array = np.concatenate(row_blocks)
    first: Array = np.unique(rows[:, 0], return_index=True)[1]
    return rows[first]


def entries_without_file(store: Store, ranges: tuple[Range, ...]) -> Array:
    """Physical offsets of index entries in the ranges, each once."""
    offset_blocks = [np.empty(0, np.int64)]
    slots = store.index_slot_count
    for entry in store.index_files if slots else ():
        try:
            source = store.view.open(entry.path)
        except UnreadableError:
            continue
        with closing(source):
            header = IndexHeader.parse(read_range(source, 0, HEADER_SIZE))
            if header.end_physical_offset < ranges[0][0]:
                continue
            first = entry_position(1, slots or 1)
            end = min(entry.size, entry_position(max(1, header.next_entry_number), slots or 1))
            for units in _read(source, first, end, ENTRY.dtype):
                starts = units["physical_offset"].astype(np.int64)
                offset_blocks.append(np.unique(starts[_reach_into(starts, np.ones_like(starts), ranges)]))
    return np.unique(np.concatenate(offset_blocks))


def _reach_into(starts: Array, sizes: Array, ranges: Iterable[Range]) -> Array:
    reaches = np.zeros(len(starts), np.bool_)
    for begin, end in ranges:
        reaches |= (starts < end) & (starts + sizes > begin)
    return reaches


def _read(source: ByteSource, begin: int, end: int, dtype: np.dtype[Any]) -> Iterator[Array]:
    """Entries of a fixed size between two positions of a file; bytes that the disk does not give are zero."""
    step = _BLOCK_UNITS * dtype.itemsize
    for at in range(begin, end, step):
        buffer = bytearray(-(-min(step, end - at) // dtype.itemsize) * dtype.itemsize)
        read_salvaging(source, at, memoryview(buffer)[: max(0, min(len(buffer), source.size - at))])
        yield np.frombuffer(buffer, dtype)


assert ENTRY.dtype.itemsize == ENTRY_SIZE

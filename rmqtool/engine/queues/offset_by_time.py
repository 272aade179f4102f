"""The queue offset of a time in a plain queue: the nearest unit, or the boundary of the units with that time.

Broker: `ConsumeQueue#getOffsetInQueueByTime`, `ConsumeQueueStore` the same, `MappedFileQueue#getMappedFileByTime`,
`#getConsumeQueueMappedFileByTime`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.segments.log import Log
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.store.directory import Segment

if TYPE_CHECKING:
    from rmqtool.engine.queues.file_queue import FileQueue


def nearest_offset(queue: FileQueue, log: Log, timestamp_ms: int) -> int:
    """The queue offset of the unit whose record's time is nearest, in the first file that was changed after it.

    Raises:
        UnreadableError: the disk does not give units or records.
    """
    segment = _segment_by_modification_time(queue, timestamp_ms)
    if segment is None or not queue.loaded.length(segment):
        return 0
    low = max(0, queue.min_stream_position - segment.start)
    high = queue.loaded.length(segment) - UNIT_SIZE
    left = right = -1
    left_time = right_time = -1
    while high >= low:
        middle = (low + high) // (2 * UNIT_SIZE) * UNIT_SIZE
        physical_offset, record_size, _ = queue.raw_unit(segment, middle)
        if physical_offset < log.minimum:
            low, left = middle + UNIT_SIZE, middle
            continue
        time = log.store_timestamp_ms(physical_offset, record_size)
        if time < 0:
            return 0
        if time == timestamp_ms:
            return (segment.start + middle) // UNIT_SIZE
        if time > timestamp_ms:
            high, right, right_time = middle - UNIT_SIZE, middle, time
        else:
            low, left, left_time = middle + UNIT_SIZE, middle, time
    if left_time == -1:
        position = right
    elif right_time == -1:
        position = left
    else:
        position = right if abs(timestamp_ms - left_time) > abs(timestamp_ms - right_time) else left
    # The broker divides and cuts towards zero, so "none" (-1) at the queue's start is 0.
    return max(0, segment.start + position) // UNIT_SIZE


def _segment_by_modification_time(queue: FileQueue, timestamp_ms: int) -> Segment | None:
    for segment in queue.loaded.segments:
        if segment.entry.mtime_ns // 1_000_000 >= timestamp_ms:
            return segment
    return queue.loaded.last


def _segment_by_store_time(queue: FileQueue, log: Log, timestamp_ms: int, boundary: Boundary) -> Segment | None:
    loaded = queue.loaded

    def store_time(segment: Segment, position: int) -> int:
        if position + UNIT_SIZE > loaded.length(segment):
            return -1
        time = log.store_timestamp_ms(*queue.raw_unit(segment, position)[:2])
        return time if time > 0 else -1

    if boundary is Boundary.LOWER:
        for segment in loaded.segments[:-1]:
            if store_time(segment, loaded.file_size - UNIT_SIZE) >= timestamp_ms:
                return segment
        return loaded.last
    return next(
        (candidate for candidate in reversed(loaded.segments) if store_time(candidate, 0) <= timestamp_ms), None
    )


def boundary_offset(queue: FileQueue, log: Log, timestamp_ms: int, boundary: Boundary) -> int:
    """The queue offset of the first unit that is not earlier, or of the last one that is not later.

    Raises:
        UnreadableError: the disk does not give units or records.
    """
    segment = _segment_by_store_time(queue, log, timestamp_ms, boundary)
    return 0 if segment is None else _boundary(queue, log, segment, timestamp_ms, boundary)


def _boundary(queue: FileQueue, log: Log, segment: Segment, timestamp_ms: int, boundary: Boundary) -> int:
    length = queue.loaded.length(segment)
    if not length:
        return 0
    floor = max(0, queue.min_stream_position - segment.start)
    ceiling = length - UNIT_SIZE
    lower = boundary is Boundary.LOWER

    def store_time(position: int) -> int:
        return log.store_timestamp_ms(*queue.raw_unit(segment, position)[:2])

    if store_time(ceiling) < timestamp_ms:
        return (segment.start + ceiling) // UNIT_SIZE + (1 if lower else 0)
    if floor > ceiling:
        return 0
    if store_time(floor) > timestamp_ms:
        return segment.start // UNIT_SIZE if lower else 0
    low, high = floor, ceiling
    left = right = -1
    while high >= low:
        middle = (low + high) // (2 * UNIT_SIZE) * UNIT_SIZE
        physical_offset, record_size, _ = queue.raw_unit(segment, middle)
        if physical_offset < log.minimum:
            low, left = middle + UNIT_SIZE, middle
            continue
        time = log.store_timestamp_ms(physical_offset, record_size)
        if time < 0:
            return 0
        if time == timestamp_ms:
            step, last = (-UNIT_SIZE, floor) if lower else (UNIT_SIZE, ceiling)
            while middle != last and store_time(middle + step) == timestamp_ms:
                middle += step
            return (segment.start + middle) // UNIT_SIZE
        if time > timestamp_ms:
            high, right = middle - UNIT_SIZE, middle
        else:
            low, left = middle + UNIT_SIZE, middle
    return max(0, segment.start + (right if lower else left)) // UNIT_SIZE

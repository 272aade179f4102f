"""A file consume queue as the broker has it after load: its end, its minimum, its units, the queue offset of a time.

Broker: `ConsumeQueue#recover`, `#correctMinOffset`, `#getIndexBuffer`, `#rollNextFile`, `#getOffsetInQueueByTime`,
`ConsumeQueueStore` the same, `MappedFileQueue#getMappedFileByTime`, `#getConsumeQueueMappedFileByTime`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.queues.loaded_files import READ_UNITS, LoadedFiles, minimum_position
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import PLAIN, Boundary, QueueUnit, whole_units
from rmqtool.engine.rules.broker_rules import BrokerRules, TimeLookup
from rmqtool.engine.segments.log import Log
from rmqtool.formats.consumequeue import UNIT_SIZE, extension_position, is_extension_address
from rmqtool.store.directory import Segment


@dataclass(eq=False)
class FileQueue(Queue):
    """A loaded consume queue of 20-byte units."""

    topic: str
    queue_id: int
    loaded: LoadedFiles
    _rules: BrokerRules
    _log_minimum: int
    """First physical offset of the commitlog."""
    _extension: QueueExtension | None = None
    _minimum: int | None = None
    """Stream position of the first readable unit, where it is known."""
    unit_size: ClassVar[int] = UNIT_SIZE

    @property
    def max_queue_offset(self) -> int:
        """Queue offset after the last unit."""
        return self.loaded.end // UNIT_SIZE

    @property
    def min_queue_offset(self) -> int:
        return self.min_stream_position // UNIT_SIZE

    @property
    def min_stream_position(self) -> int:
        """Bytes from the queue's start to the first unit that counts as readable.

        Raises:
            UnreadableError: a file cannot be read.
        """
        if self._minimum is None:
            self._minimum = minimum_position(self.loaded, self._rules, self._log_minimum)
        return self._minimum

    def units_from(self, queue_offset: int, max_count: int | None = None) -> Iterator[QueueUnit] | None:
        del max_count
        position = queue_offset * UNIT_SIZE
        if position < self.min_stream_position:
            return None
        segment = self.loaded.segment_at(position)
        if segment is None or position % self.loaded.file_size >= self.loaded.length(segment):
            return None
        return self._units(segment, position % self.loaded.file_size, queue_offset)

    def next_file_queue_offset(self, queue_offset: int) -> int:
        units = self.loaded.file_size // UNIT_SIZE
        return queue_offset + units - queue_offset % units

    def last_record(self) -> tuple[int, int] | None:
        position = self.loaded.last_unit_position()
        return self.raw_unit(*position)[:2] if position is not None else None

    def offset_by_time(self, log: Log, timestamp_ms: int, boundary: Boundary) -> int:
        if self._rules.time_lookup is TimeLookup.NEAREST:
            return nearest_offset(self, log, timestamp_ms)
        queue_offset = boundary_offset(self, log, timestamp_ms, boundary)
        return min(max(queue_offset, self.min_queue_offset), self.max_queue_offset)

    def extension_end(self) -> int | None:
        """Stream position after the unit of the extension that the queue's last address leads to; None without one.

        Units of expired messages count too (`ConsumeQueueExt#truncateByMaxAddress`).
        """
        if self._extension is None:
            return None
        for segment in reversed(self.loaded.segments):
            for position in range(self.loaded.length(segment) - UNIT_SIZE, -1, -UNIT_SIZE):
                tags_code = self.raw_unit(segment, position)[2]
                unit = self._extension.unit(tags_code) if is_extension_address(tags_code) else None
                if unit is not None:
                    return extension_position(tags_code) + unit.size
        return None

    def raw_unit(self, segment: Segment, position: int) -> tuple[int, int, int]:
        """Physical offset, record size and tags code at a position of a file."""
        physical_offset, record_size, tags_code = PLAIN.unpack(self.loaded.read(segment, position, UNIT_SIZE))
        return int(physical_offset), int(record_size), int(tags_code)

    def _units(self, segment: Segment, position: int, queue_offset: int) -> Iterator[QueueUnit]:
        while block := whole_units(self.loaded.read(segment, position, READ_UNITS * UNIT_SIZE), UNIT_SIZE):
            position += len(block)
            for physical_offset, record_size, tags_code in PLAIN.iter_unpack(block):
                extension = None
                if self._extension is not None and is_extension_address(tags_code):
                    extension = self._extension.unit(tags_code)
                yield QueueUnit(queue_offset, physical_offset, record_size, tags_code, 1, extension)
                queue_offset += 1


def nearest_offset(queue: FileQueue, log: Log, timestamp_ms: int) -> int:
    """The queue offset of the unit whose record's time is nearest, in the first file that was changed after it."""
    changed_after = (one for one in queue.loaded.segments if one.entry.mtime_ns // 1_000_000 >= timestamp_ms)
    segment = next(changed_after, queue.loaded.last)
    if segment is None or not queue.loaded.length(segment):
        return 0
    floor = max(0, queue.min_stream_position - segment.start)
    halved = _halved(queue, log, segment, timestamp_ms, floor, queue.loaded.length(segment) - UNIT_SIZE)
    if halved is None:
        return 0
    position, left, right, left_time, right_time = halved
    if position is None:
        is_right_nearer = right_time != -1 and abs(timestamp_ms - left_time) > abs(timestamp_ms - right_time)
        position = right if left_time == -1 or is_right_nearer else left
    # The broker divides and cuts towards zero, so "none" (-1) at the queue's start is 0.
    return max(0, segment.start + position) // UNIT_SIZE


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
    """The queue offset of the first unit that is not earlier, or of the last one that is not later."""
    segment = _segment_by_store_time(queue, log, timestamp_ms, boundary)
    length = queue.loaded.length(segment) if segment is not None else 0
    if segment is None or not length:
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
    halved = _halved(queue, log, segment, timestamp_ms, floor, ceiling)
    if halved is None:
        return 0
    position = halved.exact
    if position is None:
        position = halved.right if lower else halved.left
    else:
        step, last = (-UNIT_SIZE, floor) if lower else (UNIT_SIZE, ceiling)
        while position != last and store_time(position + step) == timestamp_ms:
            position += step
    return max(0, segment.start + position) // UNIT_SIZE


class _Halved(NamedTuple):
    """End of a search for a time: a unit with this very time, else between two units; -1 for none."""

    exact: int | None
    left: int
    right: int
    left_time: int
    right_time: int


def _halved(queue: FileQueue, log: Log, segment: Segment, timestamp_ms: int, low: int, high: int) -> _Halved | None:
    """Search the units of a file from `low` to `high`; None where a record on the way has no time."""
    left = right = left_time = right_time = -1
    while high >= low:
        middle = (low + high) // (2 * UNIT_SIZE) * UNIT_SIZE
        physical_offset, record_size, _ = queue.raw_unit(segment, middle)
        if physical_offset < log.minimum:
            low, left = middle + UNIT_SIZE, middle
            continue
        time = log.store_timestamp_ms(physical_offset, record_size)
        if time < 0:
            return None
        if time == timestamp_ms:
            return _Halved(middle, left, right, left_time, right_time)
        if time > timestamp_ms:
            high, right, right_time = middle - UNIT_SIZE, middle, time
        else:
            low, left, left_time = middle + UNIT_SIZE, middle, time
    return _Halved(None, left, right, left_time, right_time)

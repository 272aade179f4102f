"""A batch consume queue as the broker has it after load: units of several messages, found by their base offset.

Broker: `BatchConsumeQueue#recover`, `#reviseMaxAndMinOffsetInQueue`, `#correctMinOffset`, `#getBatchMsgIndexBuffer`,
`#getOffsetInQueueByTime`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, NamedTuple

from rmqtool.engine.queues.loaded_files import LoadedFiles
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import BATCH, Boundary, QueueUnit, whole_units
from rmqtool.engine.rules.broker_rules import BrokerRules, TimeLookup
from rmqtool.engine.segments.log import Log
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE
from rmqtool.store.directory import Segment

READ_UNITS: Final = 2048


class BatchUnit(NamedTuple):
    """A unit as it lies in the file."""

    physical_offset: int
    record_size: int
    tags_code: int
    store_timestamp_ms: int
    base_queue_offset: int
    batch_size: int
    compacted_offset: int
    reserved: int


@dataclass(eq=False)
class BatchQueue(Queue):
    """A loaded queue of 46-byte units."""

    topic: str
    queue_id: int
    loaded: LoadedFiles
    _rules: BrokerRules
    _log_minimum: int
    unit_size: ClassVar[int] = BATCH_UNIT_SIZE

    @cached_property
    def max_queue_offset(self) -> int:
        """Queue offset after the last message; read from the last file that holds a unit, of the last two."""
        for segment in self.loaded.segments[:-3:-1]:
            if self.loaded.length(segment):
                last = self.unit(segment, self.loaded.length(segment) - BATCH_UNIT_SIZE)
                return last.base_queue_offset + last.batch_size
        return 0

    @cached_property
    def min_queue_offset(self) -> int:
        """Base offset of the first unit that does not lie below the log; -1 where the first file holds none."""
        first = self.loaded.first
        if first is None or not self.loaded.length(first):
            return -1
        minimum = self.unit(first, 0).base_queue_offset
        for unit in self._raw_units(first, 0):
            if unit.physical_offset >= self._log_minimum:
                break
            minimum = unit.base_queue_offset + unit.batch_size
        return minimum

    def units_from(self, queue_offset: int, max_count: int | None = None) -> Iterator[QueueUnit] | None:
        del max_count
        if queue_offset >= self.max_queue_offset:
            return None
        segment = next(
            (
                candidate
                for candidate in reversed(self.loaded.segments)
                if self.loaded.length(candidate) and self.unit(candidate, 0).base_queue_offset <= queue_offset
            ),
            None,
        )
        if segment is None:
            return None
        position = self._position(segment, queue_offset)
        return (
            QueueUnit(
                unit.base_queue_offset, unit.physical_offset, unit.record_size, unit.tags_code, unit.batch_size, None
            )
            for unit in self._raw_units(segment, position)
        )

    def last_record(self) -> tuple[int, int] | None:
        position = self.loaded.last_unit_position()
        return self.unit(*position)[:2] if position is not None else None

    def offset_by_time(self, log: Log, timestamp_ms: int, boundary: Boundary) -> int:  # noqa: ARG002 - as every queue
        """The queue offset of a time; see `Queue`. Units of this kind hold their times."""
        queue_offset = self._offset_by_time(timestamp_ms)
        if self._rules.time_lookup is TimeLookup.NEAREST:
            return queue_offset
        return min(max(queue_offset, self.min_queue_offset), self.max_queue_offset)

    def unit(self, segment: Segment, position: int) -> BatchUnit:
        """The unit at a position of a file."""
        return BatchUnit(*BATCH.unpack(self.loaded.read(segment, position, BATCH_UNIT_SIZE)))

    def _raw_units(self, segment: Segment, position: int) -> Iterator[BatchUnit]:
        while block := whole_units(self.loaded.read(segment, position, READ_UNITS * BATCH_UNIT_SIZE), BATCH_UNIT_SIZE):
            position += len(block)
            yield from map(BatchUnit._make, BATCH.iter_unpack(block))

    def _position(self, segment: Segment, queue_offset: int) -> int:
        """Position at which a broker's search for a queue offset ends: if base offsets rise, the last one that is not
        after it.

        Where they do not, other units are found; the steps are those of brokers from 5.1.4 on.
        """
        low, high = 0, self.loaded.length(segment) // BATCH_UNIT_SIZE - 1
        while high - low > 1:
            middle = (low + high) // 2
            base = self.unit(segment, middle * BATCH_UNIT_SIZE).base_queue_offset
            if base == queue_offset:
                return middle * BATCH_UNIT_SIZE
            if base < queue_offset:
                low = middle
            else:
                high = middle - 1
        if self.unit(segment, low * BATCH_UNIT_SIZE).base_queue_offset == queue_offset:
            return low * BATCH_UNIT_SIZE
        is_high = self.unit(segment, high * BATCH_UNIT_SIZE).base_queue_offset <= queue_offset
        return (high if is_high else low) * BATCH_UNIT_SIZE

    def _offset_by_time(self, timestamp_ms: int) -> int:
        """Base offset of the first unit that is not earlier; of the last one where all are."""
        holding = [segment for segment in self.loaded.segments if self.loaded.length(segment)]
        if not holding:
            return -1
        segment = next(
            (
                candidate
                for candidate in reversed(holding)
                if self.unit(candidate, 0).store_timestamp_ms <= timestamp_ms
            ),
            holding[0],
        )
        last = self.unit(segment, self.loaded.length(segment) - BATCH_UNIT_SIZE)
        if timestamp_ms >= last.store_timestamp_ms:
            return last.base_queue_offset
        low, high = 0, self.loaded.length(segment) // BATCH_UNIT_SIZE - 1
        while low < high:
            middle = (low + high) // 2
            if self.unit(segment, middle * BATCH_UNIT_SIZE).store_timestamp_ms >= timestamp_ms:
                high = middle
            else:
                low = middle + 1
        return self.unit(segment, low * BATCH_UNIT_SIZE).base_queue_offset

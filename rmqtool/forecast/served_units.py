"""Records that a queue of files serves: those of units between its minimum and its maximum."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.batch_queue import BatchQueue
from rmqtool.forecast.database_state import DatabaseQueueState, DatabaseServedUnits
from rmqtool.forecast.queue_state import QueueState
from rmqtool.forecast.record_arrays import Bools, Int64s, RecordArrays, ServedPlaces, joined_places
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_MAX, FILLER_UNIT, unit_format
from rmqtool.formats.queue_name import QueueName
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.directory import Segment

Units = NDArray[np.void]
BLOCK_UNITS: Final = 100_000
LEADS_NOWHERE: Final = -1


class ServedUnits:
    """Tells which records a queue serves.

    Attributes:
        is_batch: whether its units are batches, which are not read in blocks.
        span: queue offsets [first, end) that may have units; of a batch queue numbers of its units.
    """

    __slots__ = (
        "_end", "_enters_in_place", "_extension", "_fails_at_part", "_form", "_loaded", "_looks_ahead", "_minimum",
        "_queue", "_seen", "_unit_size", "is_batch", "span",
    )  # fmt: skip

    def __init__(self, state: QueueState, log_minimum: int) -> None:
        self.is_batch = state.is_batch
        self._form = unit_format(is_batch=state.is_batch).dtype
        self._loaded = state.loaded
        self._unit_size = self._loaded.kind.size
        queue = state.queue(log_minimum) if state.is_batch else None
        self._queue = queue if isinstance(queue, BatchQueue) else None
        self._minimum = 0 if state.is_batch else state.minimum
        end = self._loaded.end
        self._end = end if state.is_batch else end - end % self._unit_size
        self._fails_at_part = state.rules.part_of_unit_fails_pulls
        self._extension = state.extension
        self._looks_ahead = state.rules.limits_before_skipping
        self._enters_in_place = state.enters_in_place
        self._seen: tuple[int, int] | None = None
        """Lowest and highest physical offset of its units, once all were read."""
        self.span = self._minimum // self._unit_size, self._end // self._unit_size

    def ranges(self, unit_count_max: int) -> Iterator[tuple[int, int]]:
        """Queue offsets [first, end) of neighbouring files, in order; together they have all units.

        Args:
            unit_count_max: a longer range is not made of several files.
        """
        first = end = -1
        for segment in self._loaded.segments:
            begin = segment.start // self._unit_size
            stop = -(-(segment.start + self._loaded.length(segment)) // self._unit_size)
            if first >= 0 and first <= begin <= end and stop - first <= unit_count_max:
                end = max(end, stop)
                continue
            if first < end:
                yield first, end
            first, end = begin, stop
        if first < end:
            yield first, end

    def between(self, first: int, end: int) -> ServedPlaces:
        """Messages that a client gets from a queue offset up to another one."""
        if self._queue is not None:
            return joined_places([
                ServedPlaces(
                    units["base_queue_offset"].astype(np.int64), units["physical_offset"].astype(np.int64),
                    units["record_size"].astype(np.int64), units["batch_size"].astype(np.int64),
                )
                for units in self._pulled()
            ])  # fmt: skip
        parts = []
        low, high = first * self._unit_size, end * self._unit_size
        for segment in self._loaded.segments:
            # Whatever byte its name begins with, a broker reads the units of a file by queue offset.
            begin = segment.start - segment.start % self._unit_size
            start = -(-max(low, segment.start, self._minimum) // self._unit_size) * self._unit_size
            stop = min(high, segment.start + self._handed_out(segment), self._end)
            if start < stop:
                units = self._units(segment, start - begin, stop - begin)
                is_unit = (units["record_size"] > 0) & (units != np.array(FILLER_UNIT, self._form))
                numbers = np.flatnonzero(is_unit)
                units = units[numbers]
                parts.append(
                    ServedPlaces(
                        start // self._unit_size + numbers.astype(np.int64),
                        units["physical_offset"].astype(np.int64),
                        units["record_size"].astype(np.int64),
                        np.ones(len(units), np.int64),
                    )
                )
        return joined_places(parts)

    def live_start(self, log_minimum: int) -> tuple[int, int] | None:
        """Queue offset and physical offset of the first unit that leads into the log and is no filler."""
        blocks = ((0, units) for units in self._pulled()) if self._queue is not None else self._blocks()
        for position, units in blocks:
            is_live = (units["physical_offset"] >= log_minimum) & (units["record_size"] > 0)
            if self._queue is None:
                is_live &= units != np.array(FILLER_UNIT, self._form)
            if is_live.any():
                number = int(np.flatnonzero(is_live)[0])
                place = position // self._unit_size + number
                if self._queue is not None:
                    place = int(units["base_queue_offset"][number])
                return place, int(units["physical_offset"][number])
        return None

    def has_at(self, queue_offsets: Int64s, records: RecordArrays) -> Bools:
        """For each record whether the unit at its own queue offset points to it."""
        positions = queue_offsets * self._unit_size
        is_served = np.zeros(positions.size, np.bool_)
        inside = np.flatnonzero((queue_offsets >= 0) & (positions >= self._minimum) & (positions < self._end))
        numbers_of = file_numbers(self._loaded.segments, self._loaded.file_size, positions[inside])
        for number, segment in enumerate(self._loaded.segments):
            part = inside[numbers_of == number]
            if part.size:
                at = positions[part] % self._loaded.file_size  # as brokers do, whatever the file's name says
                units = self._units(segment, int(at.min()), int(at.max()) + self._unit_size)
                numbers = (at - at.min()) // self._unit_size
                known = at < self._handed_out(segment)
                part, units = part[known], units[numbers[known]]
                is_served[part] = (units["physical_offset"] == records.physical_offsets[part]) & records.fit(
                    part, units
                )
        return is_served

    def has_span(self, low: int, high: int, contents: Mapping[str, Hashable] | None) -> bool:
        """True if a client gets all units from a queue offset up to another one, of files that are still the same.

        Args:
            contents: identities of the files when the units were seen; None: the start itself entered them.
        """
        begin, end, size = low * self._unit_size, (high + 1) * self._unit_size, self._loaded.file_size
        if (
            self._queue is not None
            or self._extension is not None
            or not max(0, self._minimum) <= begin <= end <= self._end
        ):
            return False
        at = begin - begin % size
        for segment in self._loaded.segments:
            if not begin - size < segment.start < end:
                continue
            if segment.start != at or self._handed_out(segment) < min(size, end - segment.start):
                return False
            if contents is None:
                if not self._enters_in_place:
                    return False
            elif contents.get(segment.path) is None or self._loaded.identity(segment) != contents[segment.path]:
                return False
            at += size
        return at >= end

    def has_anywhere(self, records: RecordArrays) -> Bools:
        """For each record whether any unit points to it; reads the queue, so it is asked for misplaced ones only."""
        wanted_in_order = records.physical_offsets
        is_served = np.zeros(wanted_in_order.size, np.bool_)
        if self._seen is not None:
            lowest, highest = self._seen
            if wanted_in_order.min() > highest or wanted_in_order.max() < lowest:
                return is_served
        order = np.argsort(wanted_in_order, kind="stable")
        sorted_offsets, low, high = wanted_in_order[order], JAVA_LONG_MAX, -1
        blocks = self._pulled() if self._queue is not None else (units for _, units in self._blocks())
        for units in blocks:
            begins = units["physical_offset"].astype(np.int64)
            if not begins.size:
                continue
            low, high = min(low, int(begins.min())), max(high, int(begins.max()))
            at = np.searchsorted(sorted_offsets, begins).clip(max=sorted_offsets.size - 1)
            hits = np.flatnonzero((sorted_offsets[at] == begins) & records.fit(order[at], units))
            is_served[order[at[hits]]] = True
        self._seen = (low, high)
        return is_served

    def _pulled(self) -> Iterator[Units]:
        """The units of a batch queue that a client gets."""
        assert self._queue is not None
        loaded = self._loaded
        holding = [segment for segment in loaded.segments if loaded.length(segment)]
        files = pulled_units(self._queue, holding, lambda segment: self._units(segment, 0, loaded.length(segment)))
        for segment, units, given in files:
            count = self._handed_out(segment) // self._unit_size
            yield units[:count][given[:count]]

    def _blocks(self) -> Iterator[tuple[int, Units]]:
        """All units, many at a time, and the stream position of the first of them."""
        starts = np.array([segment.start for segment in self._loaded.segments], np.int64)
        for number in np.unique(file_numbers(self._loaded.segments, self._loaded.file_size, starts)).tolist():
            segment = self._loaded.segments[number]
            # What a wrong name leaves below the file's own start, or below the minimum, is never read.
            inside = segment.start % self._loaded.file_size
            start, end = max(inside, self._minimum - segment.start + inside), self._handed_out(segment)
            start = -(-start // self._unit_size) * self._unit_size
            for position in range(start, end, BLOCK_UNITS * self._unit_size):
                units = self._units(segment, position, min(end, position + BLOCK_UNITS * self._unit_size))
                if units.size:
                    yield segment.start + position, units

    def _handed_out(self, segment: Segment) -> int:
        """Bytes of the units that a client gets: each pull of the last one may throw where a part of a unit follows."""
        whole, rest = divmod(self._loaded.length(segment), self._unit_size)
        whole -= bool(rest) and self._fails_at_part
        return min(whole * self._unit_size, max(0, self._end - segment.start))

    def _units(self, segment: Segment, start: int, end: int) -> Units:
        """Units of a file; one that no pull can pass leads nowhere, because its address makes brokers throw.

        Brokers since 5.0 look at the next unit of the file before they end a pull.
        """
        stop = end
        if self._extension is not None and self._looks_ahead:
            stop = max(end, min(end + self._unit_size, self._loaded.length(segment)))
        raw = self._loaded.read(segment, start, stop - start)
        units = np.frombuffer(raw[: len(raw) // self._unit_size * self._unit_size], self._form)
        count = max(0, end - start) // self._unit_size
        if self._extension is None or not (is_address := units["tags_code"] <= EXTENSION_ADDRESS_MAX).any():
            return units[:count]
        throws = np.zeros(units.size, np.bool_)
        throws[is_address] = self._extension.ends_pulls(units["tags_code"][is_address].astype(np.int64))
        if self._looks_ahead:
            throws[:-1] |= throws[1:]
        units = units[:count].copy()
        units["physical_offset"][throws[:count]] = LEADS_NOWHERE
        return units


def served_by_queue(
    queues: Mapping[QueueName, QueueState | DatabaseQueueState], log_minimum: int
) -> dict[QueueName, ServedUnits | DatabaseServedUnits]:
    """Served units of each queue after a start."""
    return {
        name: DatabaseServedUnits(state, log_minimum)
        if isinstance(state, DatabaseQueueState)
        else ServedUnits(state, log_minimum)
        for name, state in queues.items()
    }


def file_numbers(segments: Sequence[Segment], size: int, positions: Int64s) -> Int64s:
    """The number of the file in which a broker looks for each position; -1 where no file holds it.

    It takes the file whose number the position gives, if that one holds it, else the first one that does
    (`MappedFileQueue#findMappedFileByOffset`): of two files for one offset, one may never be read.
    """
    numbers = np.full(positions.size, -1, np.int64)
    if not segments:
        return numbers
    starts = np.array([segment.start for segment in segments], np.int64)
    for number in reversed(range(len(segments))):
        numbers[(positions >= starts[number]) & (positions < starts[number] + size)] = number
    expected = positions // size - starts[0] // size
    expected = expected.clip(0, len(segments) - 1)
    is_there = (positions >= starts[expected]) & (positions < starts[expected] + size)
    return np.where(is_there, expected, numbers)


def pulled_units(
    queue: BatchQueue, segments: Sequence[Segment], units_of: Callable[[Segment], Units]
) -> Iterator[tuple[Segment, Units, Bools]]:
    """A file of a batch queue, all of its units, and which of them clients get that pull one message after the other.

    Args:
        segments: the queue's files that hold units.
        units_of: all units of a file.
    """
    at, maximum = queue.min_queue_offset, min(queue.max_queue_offset, JAVA_LONG_MAX)
    firsts = [queue.unit(segment, 0).base_queue_offset for segment in segments]
    # The last file is read that does not begin after what is asked for.
    last_of = {first: number for number, first in enumerate(firsts)}
    bounds = [first for first in sorted(last_of) if first < maximum]
    number = -1
    for lower, upper in pairwise([*bounds, maximum]):
        number = max(number, last_of[lower])
        at = max(at, lower)
        if at < upper:
            units = units_of(segments[number])
            bases = units["base_queue_offset"].astype(np.int64)
            given, at = given_units(bases, bases + units["batch_size"].astype(np.int64), at, upper)
            yield segments[number], units, given


def given_units(bases: Int64s, ends: Int64s, at: int, stop: int) -> tuple[Bools, int]:
    """Mask of the units of a file that a client at a queue offset gets, and its offset at or after `stop`."""
    given = np.zeros(bases.size, np.bool_)
    if (ends > bases).all() and (bases[1:] >= ends[:-1]).all():
        given = (bases < stop) & (np.append(bases[1:], JAVA_LONG_MAX) > at)
        return given, max(stop, int(ends[given].max(initial=at)))
    # What is given changes only at a unit's base offset, and after it.
    changes = np.unique(np.concatenate([[at], bases, bases + 1]))
    changes = changes[(changes >= at) & (changes < stop)]
    numbers, starts = searched(bases, changes).tolist(), changes.tolist()
    while at < stop:
        turn = bisect_right(starts, at) - 1
        given[numbers[turn]] = True
        end = int(ends[numbers[turn]])
        at = end if end > at else (starts[turn + 1] if turn + 1 < len(starts) else stop)
    return given, at


def searched(bases: Int64s, queue_offsets: Int64s) -> NDArray[np.intp]:
    """At which units of a file the broker's searches for queue offsets end; see `BatchQueue`."""
    low = np.zeros(queue_offsets.size, np.intp)
    high = np.full(queue_offsets.size, bases.size - 1, np.intp)
    while (open_ := high - low > 1).any():
        middle = (low + high) // 2
        base = bases[middle]
        is_hit, is_below = open_ & (base == queue_offsets), open_ & (base < queue_offsets)
        low = np.where(is_hit | is_below, middle, low)
        high = np.where(is_hit, middle, np.where(open_ & ~is_below, middle - 1, high))
    takes_high = (bases[low] != queue_offsets) & (bases[high] <= queue_offsets)
    return np.where(takes_high, high, low)

"""Records as columns of numbers: where each is, or was before, how large, where its file can be read; and ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]


class ServedPlaces(NamedTuple):
    """Units that clients get: queue offset, where their records lie, how large, how many messages in each."""

    queue_offsets: Int64s
    physical_offsets: Int64s
    sizes: Int64s
    message_counts: Int64s

    def some(self, chosen: NDArray[np.intp] | Bools) -> ServedPlaces:
        return ServedPlaces(*(column[chosen] for column in self))


def joined_places(parts: Sequence[ServedPlaces]) -> ServedPlaces:
    """All of them, in order."""
    empty = np.empty(0, np.int64)
    return ServedPlaces(*(np.concatenate(columns) for columns in zip(ServedPlaces(*(empty,) * 4), *parts, strict=True)))


class RecordArrays(NamedTuple):
    """Records, one number each in every array; `limits` are where the readable part of their files ends."""

    physical_offsets: Int64s
    sizes: Int64s
    limits: Int64s
    message_counts: Int64s
    queue_offsets: Int64s

    def fit(self, numbers: NDArray[np.intp], units: NDArray[np.void]) -> Bools:
        """Mask of the units that hold the record of their number whole, and can be read themselves."""
        sizes = units["record_size"].astype(np.int64)
        fitting: Bools = (sizes >= self.sizes[numbers]) & (
            self.physical_offsets[numbers] + sizes <= self.limits[numbers]
        )
        return fitting

    def some(self, chosen: NDArray[np.intp] | Bools) -> RecordArrays:
        return RecordArrays(*(column[chosen] for column in self))


class MovedRecords(NamedTuple):
    """Where the records of a log were before and are now, both in order; the last pair is where the log ends.

    What is no record's place leads to none afterwards either; below the first record and behind the end all stays in
    its distance.
    """

    before: Int64s
    now: Int64s

    def to_now(self, physical_offsets: Int64s) -> Int64s:
        """Where places of the old log are in the new one."""
        return _moved(physical_offsets, self.before, self.now)

    def to_before(self, physical_offsets: Int64s) -> Int64s:
        """Where places of the new log are in the old one."""
        return _moved(physical_offsets, self.now, self.before)


@dataclass
class OffsetRanges:
    """Ranges [start, end) of physical offsets or file positions, in order and apart: those that touch become one."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts, self.ends, strict=True)

    def add(self, start: int, end: int) -> None:
        first, last = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if first < last:
            start, end = min(start, self.starts[first]), max(end, self.ends[last - 1])
        self.starts[first:last], self.ends[first:last] = [start], [end]

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of [start, end) that lie in none."""
        at = start
        for index in range(bisect_right(self.ends, start), len(self.starts)):
            if self.starts[index] >= end:
                break
            if at < self.starts[index]:
                yield at, self.starts[index]
            at = self.ends[index]
        if at < end:
            yield at, end

    def contain(self, physical_offsets: Int64s) -> Bools:
        """For each offset whether a range holds it."""
        if not self.starts:
            return np.zeros(physical_offsets.size, np.bool_)
        at = np.searchsorted(np.array(self.starts, np.int64), physical_offsets, side="right") - 1
        last = np.array([end - 1 for end in self.ends], np.int64)  # the highest end is one more than a number can be
        is_contained: Bools = (at >= 0) & (physical_offsets <= last[at.clip(min=0)])
        return is_contained


def _moved(places: Int64s, known: Int64s, moved: Int64s) -> Int64s:
    numbers = np.searchsorted(known, places, side="right") - 1
    distances = places - known[numbers]
    inside = (numbers >= 0) & (numbers < known.size - 1)
    steps = np.where(inside, np.minimum(distances, 1), distances)  # one byte behind a record's place there is none
    return np.where(numbers < 0, places, moved[numbers] + steps)

"""Where a long list of physical offsets points to, small enough to keep: runs of rising offsets, and samples.

A list in order is one run. Each member lies in exactly one run, so those that point into a part of the log are found
without reading the rest, whatever the order is. 32 bytes a run and 16 bytes for every 1024 members.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SAMPLE_EVERY: Final = 1024
RUNS_MAX: Final = 1 << 18
"""Runs of one list that are followed; in 300,000 units in senseless order there are about half as many."""
RUNS_APART: Final = 256
"""Runs that are read each by itself."""
RANGE_MAX: Final = 1 << 18
RUN: Final = np.dtype([("begin", "i8"), ("end", "i8"), ("first", "i8"), ("last", "i8")])
"""A run: members [begin, end) by place, and the physical offsets of its first and last member."""

Array = NDArray[Any]


@dataclass(frozen=True)
class OffsetRuns:
    """The runs of one list, and the offsets at every `SAMPLE_EVERY`-th place; `dropped` members are in no run."""

    runs: Array
    sample_places: Array
    sample_offsets: Array
    dropped: int = 0

    def ranges(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Places [low, high) that together hold all members which point into [begin, end); see `chosen`."""
        touched = self._touching(begin, end)
        if len(touched) <= RUNS_APART:
            return [self._narrowed(run[0], run[1], begin, end) for run in touched.tolist()]
        # Very many short runs: read what lies between them too.
        apart = np.flatnonzero(touched["begin"][1:] - touched["end"][:-1] > SAMPLE_EVERY)
        lows = touched["begin"][np.concatenate([[0], apart + 1])].tolist()
        highs = touched["end"][np.concatenate([apart, [len(touched) - 1]])].tolist()
        return [
            (at, min(at + RANGE_MAX, high))
            for low, high in zip(lows, highs, strict=True)
            for at in range(low, high, RANGE_MAX)
        ]

    def chosen(self, places: Array, physical_offsets: Array, begin: int, end: int) -> Array:
        """Which members of one of the ranges point into [begin, end) and lie in a run."""
        inside = (physical_offsets >= begin) & (physical_offsets < end)
        touched = self._touching(begin, end)
        if len(touched) > RUNS_APART:
            of_run = np.searchsorted(touched["begin"], places, side="right") - 1
            inside &= (of_run >= 0) & (places < touched["end"][of_run])
        return np.asarray(inside)

    def _touching(self, begin: int, end: int) -> Array:
        return self.runs[(self.runs["first"] < end) & (self.runs["last"] >= begin)]

    def _narrowed(self, low: int, high: int, begin: int, end: int) -> tuple[int, int]:
        within = slice(int(np.searchsorted(self.sample_places, low)), int(np.searchsorted(self.sample_places, high)))
        places, offsets = self.sample_places[within], self.sample_offsets[within]
        before = int(np.searchsorted(offsets, begin)) - 1
        behind = int(np.searchsorted(offsets, end))
        return (
            int(places[before]) if before >= 0 else low,
            min(high, int(places[behind]) + 1) if behind < len(places) else high,
        )

    @property
    def drops(self) -> Array:
        """The runs that begin at an older record than the run before ended with."""
        return self.runs[1:][self.runs["first"][1:] <= self.runs["last"][:-1]]


@dataclass
class RunsBuilder:
    """Takes the members in order of their places, a block at a time.

    Args:
        may_repeat: whether equal offsets in a row are in order.
    """

    may_repeat: bool = False
    _runs: list[Array] = field(default_factory=list)
    _samples: list[tuple[Array, Array]] = field(default_factory=list)
    _count: int = 0
    _dropped: int = 0

    def take(self, place: int, physical_offsets: Array) -> None:
        """Take members at `place`, `place` + 1 and so on."""
        offsets = physical_offsets
        steps = offsets[1:] < offsets[:-1] if self.may_repeat else offsets[1:] <= offsets[:-1]
        bounds = np.concatenate([[0], np.flatnonzero(steps) + 1, [len(offsets)]])
        runs = np.empty(len(bounds) - 1, RUN)
        runs["begin"], runs["end"] = place + bounds[:-1], place + bounds[1:]
        runs["first"], runs["last"] = offsets[bounds[:-1]], offsets[bounds[1:] - 1]
        if self._runs:
            last = self._runs[-1][-1]
            rises = last["last"] < runs[0]["first"] or (self.may_repeat and last["last"] == runs[0]["first"])
            if last["end"] == runs[0]["begin"] and rises:
                last["end"], last["last"] = runs[0]["end"], runs[0]["last"]
                runs = runs[1:]
        kept = runs[: max(0, RUNS_MAX - self._count)]
        if len(kept) < len(runs):
            self._dropped += int((runs["end"] - runs["begin"])[len(kept) :].sum())
        if len(kept):
            self._runs.append(kept)
            self._count += len(kept)
        sampled = np.arange(-place % SAMPLE_EVERY, len(offsets), SAMPLE_EVERY)
        if sampled.size:
            self._samples.append((place + sampled, offsets[sampled]))

    def finish(self) -> OffsetRuns:
        """What was taken."""
        return OffsetRuns(
            np.concatenate(self._runs) if self._runs else np.empty(0, RUN),
            np.concatenate([places for places, _ in self._samples] or [np.empty(0, np.int64)]),
            np.concatenate([offsets for _, offsets in self._samples] or [np.empty(0, np.int64)]),
            self._dropped,
        )

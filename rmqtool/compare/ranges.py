"""Ranges of the log in ascending order, joined where they touch: all are counted, the first ones are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rmqtool.compare.rows import Array

KEPT_MAX: Final = 1000


@dataclass
class RangeList:
    """Ranges as (begin, end) physical offsets. `merge` is associative over parts in the order of the log."""

    count: int = 0
    first: list[tuple[int, int]] = field(default_factory=list)
    last: tuple[int, int] | None = None

    def add(self, begin: int, end: int) -> None:
        """Add a range that begins where the last one ends, or behind."""
        if self.last is not None and begin <= self.last[1]:
            self.last = self.last[0], max(self.last[1], end)
            if self.first[-1][0] == self.last[0]:
                self.first[-1] = self.last
            return
        self.count += 1
        self.last = begin, end
        if len(self.first) < KEPT_MAX:
            self.first.append(self.last)

    def add_rows(self, *rows: Array) -> None:
        """Add the places of rows, given in any order."""
        begins = np.concatenate([each["physical_offset"] for each in rows])
        if not begins.size:
            return
        ends = begins + np.concatenate([each["size"] for each in rows])
        order = np.argsort(begins, kind="stable")
        begins, ends = begins[order], np.maximum.accumulate(ends[order])
        starts = np.flatnonzero(np.concatenate([[True], begins[1:] > ends[:-1]]))
        behind = np.concatenate([ends[starts[1:] - 1], ends[-1:]])
        for begin, end in zip(begins[starts].tolist(), behind.tolist(), strict=True):
            self.add(begin, end)

    def merge(self, other: RangeList) -> None:
        """Add the ranges of the part of the log that follows."""
        if other.last is None:
            return
        for begin, end in other.first:
            self.add(begin, end)
        if other.count > len(other.first):
            self.count += other.count - len(other.first)
            self.last = other.last

    def within(self, begin: int, end: int) -> RangeList:
        """The ranges inside [begin, end), cut at its borders; what lies outside is one range at most on each side."""
        kept = [(max(start, begin), min(stop, end)) for start, stop in self.first if stop > begin and start < end]
        outside = len(self.first) - len(kept)
        if self.last is not None and self.count > len(self.first) and self.last[0] >= end:
            outside += 1
        return RangeList(
            self.count - outside, kept, None if self.last is None else (self.last[0], min(self.last[1], end))
        )

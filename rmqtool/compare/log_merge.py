"""Compare two logs with common physical offsets: find records that are at one place in both, and others.

The ranges that differ are in ascending order, joined where they touch: all are counted, the first ones are kept.
Blocks with equal digests are skipped. In others each record that stands at the same place in both with the same
bytes is skipped; the messages that are left go to a sink, to be looked for elsewhere in the other log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from rmqtool.compare.rows import Array, Block, block_of, is_message, low_bits, sum_of

KEPT_MAX: Final = 1000


@dataclass
class RangeList:
    """Ranges as (begin, end) physical offsets. `merge` is associative over parts in the order of the log."""

    count: int = 0
    first: list[tuple[int, int]] = field(default_factory=list)
    last: tuple[int, int] | None = None

    def add(self, begin: int, end: int) -> None:
        """Add a range that begins where the last one ends, or after."""
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
        begins = np.concatenate([row["physical_offset"] for row in rows])
        if not begins.size:
            return
        ends = begins + np.concatenate([row["size"] for row in rows])
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


UNKNOWN: Final = -1
"""Instead of a digest: of a part of a block."""


class Sink(Protocol):
    """Takes messages that are not at the same place in both logs."""

    def take(self, side: int, rows: Array) -> None:
        """Take rows of side 0 or 1."""


@dataclass
class LogMerge:
    """Merges one part of two logs; keeps where they differ, and how many of the blocks have a digest only."""

    sink: Sink
    differing: RangeList = field(default_factory=RangeList)
    unresolved_blocks: int = 0

    def run(self, one: Iterator[Block], other: Iterator[Block]) -> None:
        """Merge the blocks of a part, each side's in the order of the log."""
        here, there = next(one, None), next(other, None)
        while here is not None or there is not None:
            if there is None or (here is not None and here.end <= there.begin):
                assert here is not None
                self._alone(0, here)
                here = next(one, None)
            elif here is None or there.end <= here.begin:
                self._alone(1, there)
                there = next(other, None)
            else:
                if here.begin == there.begin and here.end == there.end and here.digest == there.digest:
                    rests: tuple[Block | None, Block | None] = None, None
                elif here.rows is None or there.rows is None:
                    rests = self._by_digest(here, there)
                else:
                    rests = self._by_rows(here, there)
                here = rests[0] if rests[0] is not None else next(one, None)
                there = rests[1] if rests[1] is not None else next(other, None)

    def _alone(self, side: int, block: Block) -> None:
        self.differing.add(block.begin, block.end)
        if block.rows is None:
            self.unresolved_blocks += 1
        else:
            self._take(side, block.rows)

    def _by_digest(self, here: Block, there: Block) -> tuple[Block | None, Block | None]:
        """Compare a block of which only the digest is known with the records of the other up to its end."""
        end = min(here.end, there.end)
        rests = self._rest(here, end), self._rest(there, end)
        for block, other in ((here, there), (there, here)):
            if block.rows is not None and block.begin == other.begin and other.end == end:
                within = block.rows["physical_offset"] < end
                if sum_of(block.rows["whole"][within]) == other.digest:
                    return rests
        self.unresolved_blocks += 1
        self.differing.add(min(here.begin, there.begin), end)
        return rests

    def _rest(self, block: Block, end: int) -> Block | None:
        """Part of a block after a physical offset; None without one."""
        if block.end <= end:
            return None
        if block.rows is None:
            return block._replace(begin=end, digest=UNKNOWN)
        rows = block.rows[block.rows["physical_offset"] >= end]
        return block_of(rows, UNKNOWN) if len(rows) else None

    def _by_rows(self, here: Block, there: Block) -> tuple[Block | None, Block | None]:
        end = min(here.end, there.end)
        rests = self._rest(here, end), self._rest(there, end)
        parts = []
        for block in (here, there):
            assert block.rows is not None
            parts.append(block.rows[block.rows["physical_offset"] < end])
        _, left, right = np.intersect1d(
            parts[0]["physical_offset"], parts[1]["physical_offset"], assume_unique=True, return_indices=True
        )
        same = parts[0][left]["size"] == parts[1][right]["size"]
        same &= low_bits(parts[0][left]["whole"]) == low_bits(parts[1][right]["whole"])
        unlike = [np.delete(rows, indices[same]) for rows, indices in zip(parts, (left, right), strict=True)]
        self.differing.add_rows(*unlike)
        for side, rows in enumerate(unlike):
            self._take(side, rows)
        return rests

    def _take(self, side: int, rows: Array) -> None:
        messages = rows[is_message(rows)]
        if len(messages):
            self.sink.take(side, messages)

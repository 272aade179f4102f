"""Strips: ranges of bytes or of time as bars of fixed width, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

WIDTH: Final = 1000
"""Units of a strip's width; the page stretches them to its own."""
BINS: Final = 500
"""Cells of a strip: each shows its worst part."""


class Paint(IntEnum):
    """State of a cell; of several in one cell, the last one of this list applies."""

    NOTHING = 0
    UNWRITTEN = 1
    INTACT = 2
    UNCHECKED = 3
    STALE = 4
    MISSING = 5
    DAMAGED = 6


class Bar(NamedTuple):
    """A rectangle of a strip, from `x` on; `kind` says how it looks."""

    x: float
    width: float
    kind: str


@dataclass(frozen=True)
class Axis:
    """The range that a strip shows, in bytes or ms."""

    start: int
    end: int

    def cells(self, begin: int, end: int) -> range:
        """Cells that a range touches, at least one; none where it lies outside."""
        begin, end = max(begin, self.start), min(max(end, begin + 1), self.end)
        if begin >= end:
            return range(0)
        length = self.end - self.start
        return range((begin - self.start) * BINS // length, -((self.start - end) * BINS // length))

    def bars(self, ranges: Iterable[tuple[int, int, str]]) -> list[Bar]:
        """Ranges as bars that can be seen, without those that are empty or lie outside."""
        cells = [(self.cells(begin, end), kind) for begin, end, kind in ranges if begin < end]
        return [_bar(touched.start, len(touched), kind) for touched, kind in cells if touched]


@dataclass
class Strip:
    """Ranges painted over each other."""

    axis: Axis
    _cells: bytearray = field(default_factory=lambda: bytearray(BINS))

    def paint(self, begin: int, end: int, paint: Paint) -> None:
        """Paint the cells that a range touches and that show nothing worse."""
        for cell in self.axis.cells(begin, end):
            self._cells[cell] = max(self._cells[cell], paint)

    def bars(self) -> list[Bar]:
        """Painted bars; adjacent cells that look alike are one bar."""
        bars, at = [], 0
        for paint, cells in groupby(self._cells):
            count = len(list(cells))
            if paint != Paint.NOTHING:
                bars.append(_bar(at, count, Paint(paint).name.lower()))
            at += count
        return bars


def _bar(cell: int, count: int, kind: str) -> Bar:
    return Bar(cell * WIDTH / BINS, count * WIDTH / BINS, kind)


class Lane(NamedTuple):
    """A lane drawn from `bars`; `text` describes it to those who do not see the strip."""

    label: str
    bars: Sequence[Bar]
    text: str

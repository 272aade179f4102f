"""The map step: a comparison cut into parts of the log that can be compared each by itself, and the outcome of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from rmqtool.compare.log_merge import LogMerge, RangeList, Sink
from rmqtool.compare.log_side import BlockStream, LogSide, Span, StoreLog, Terms
from rmqtool.compare.rows import ROW, Array, Block, LogTotals, QueueNumbers
from rmqtool.formats.queue_name import QueueKey


@dataclass(frozen=True)
class LogRange:
    """Files of both logs, by number, that lie in one chunk of physical offsets."""

    here: tuple[int, ...]
    there: tuple[int, ...]
    begin: int
    size: int


@dataclass
class RangeOutcome:
    """What came out of one part; `merge` is associative over parts in the order of the log.

    Attributes:
        totals: of both sides, as far as they were read.
        differing: where the logs differ, or only one has something.
        unresolved_blocks: blocks that differ, of which one side has digests only.
    """

    totals: tuple[LogTotals, LogTotals] = field(default_factory=lambda: (LogTotals(), LogTotals()))
    differing: RangeList = field(default_factory=RangeList)
    unresolved_blocks: int = 0

    def merge(self, other: RangeOutcome) -> None:
        """Add the part of the log that follows."""
        for mine, others in zip(self.totals, other.totals, strict=True):
            mine.merge(others)
        self.differing.merge(other.differing)
        self.unresolved_blocks += other.unresolved_blocks


class RangeResult(NamedTuple):
    """What a part gives where it is compared on another machine: rows with numbers of its own queues beside it."""

    outcome: RangeOutcome
    rows: tuple[Array, Array]
    queues: list[QueueKey]


@dataclass(frozen=True)
class RangeComparison:
    """Compares parts on whatever machine, and keeps what goes to the sink; it pickles if the sides do."""

    sides: tuple[LogSide, LogSide]
    terms: Terms
    keeps_rows: bool = True

    def __call__(self, part: LogRange) -> RangeResult:
        numbers = QueueNumbers()
        kept = _Kept()
        outcome = compare_range(part, self.sides, kept if self.keeps_rows else NullSink(), numbers, self.terms)
        return RangeResult(outcome, kept.rows(), numbers.keys)


class NullSink:
    """A sink where the other side has digests of blocks only: no message can be looked for in it."""

    def take(self, side: int, rows: Array) -> None:
        """Forget them."""


class _Kept:
    """A sink that keeps rows."""

    def __init__(self) -> None:
        self._parts: tuple[list[Array], list[Array]] = [np.empty(0, ROW)], [np.empty(0, ROW)]

    def take(self, side: int, rows: Array) -> None:
        self._parts[side].append(rows)

    def rows(self) -> tuple[Array, Array]:
        return np.concatenate(self._parts[0]), np.concatenate(self._parts[1])


def cut(here: Sequence[Span], there: Sequence[Span]) -> list[LogRange]:
    """The parts, in the order of the log: as a rule one file of each side, more where files are of another size."""
    spans = sorted(
        [*((span, 0, at) for at, span in enumerate(here)), *((span, 1, at) for at, span in enumerate(there))]
    )
    parts: list[LogRange] = []
    numbers: tuple[list[int], list[int]] = [], []
    begin = end = 0
    for span, side, at in [*spans, (None, 0, 0)]:
        if any(numbers) and (span is None or span.start >= end):
            parts.append(LogRange(tuple(numbers[0]), tuple(numbers[1]), begin, end - begin))
            numbers = [], []
        if span is not None:
            begin = begin if any(numbers) else span.start
            end = max(end, span.end) if any(numbers) else span.end
            numbers[side].append(at)
    return parts


def compare_range(
    part: LogRange, sides: tuple[LogSide, LogSide], sink: Sink, numbers: QueueNumbers, terms: Terms
) -> RangeOutcome:
    """Compare one part; messages that are not at the same place in both go to the sink."""
    outcome = RangeOutcome()
    here, there = sides
    try:
        if isinstance(here, StoreLog) and isinstance(there, StoreLog) and len(part.here) == len(part.there) == 1:
            totals = here.equal_file(part.here[0], there, part.there[0])
            if totals is not None:
                for total in outcome.totals:
                    total.merge(totals)
                return outcome
        merge = LogMerge(sink)
        streams = [
            [side.stream(at, numbers, terms) for at in chosen]
            for side, chosen in zip(sides, (part.here, part.there), strict=True)
        ]
        merge.run(_blocks(streams[0]), _blocks(streams[1]))
        for of_side, of_streams in zip(outcome.totals, streams, strict=True):
            for stream in of_streams:
                of_side.merge(stream.totals)
        outcome.differing, outcome.unresolved_blocks = merge.differing, merge.unresolved_blocks
        return outcome
    finally:
        for side, chosen in zip(sides, (part.here, part.there), strict=True):
            for at in chosen:
                side.close(at)


def _blocks(streams: Sequence[BlockStream]) -> Iterator[Block]:
    return chain.from_iterable(stream.blocks() for stream in streams)

"""Compares two sides: the parts of the log in several threads, then what is not at the same place, then the rest.

A part is a chunk of physical offsets with the files of both logs that lie in it; each can be compared by itself, on
another machine too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rmqtool.compare.join import Differences, Kind, find_reordered, join
from rmqtool.compare.log_merge import LogMerge, RangeList, Sink
from rmqtool.compare.log_side import LogSide, Span, StoreLog, Terms
from rmqtool.compare.metadata import StoreMetadata, config_differences, epochs_agree, queue_differences, unequal_files
from rmqtool.compare.result import Comparison, Divergence, Relation, Side
from rmqtool.compare.rows import ROW, Array, LogTotals, QueueNumbers
from rmqtool.compare.spill import Spill
from rmqtool.engine.reading.resurrected_tail import ResurrectedTail
from rmqtool.formats.queue_name import QueueKey
from rmqtool.memory import memory_budget
from rmqtool.scan.runner import Runner, ThreadRunner

PARTITION_BYTES: Final = 256 << 20
PARTITIONS_MAX: Final = 8192
"""Each is a file for each side; `Spill` sorts by their numbers as 16 bits."""


@dataclass(frozen=True)
class ComparedStore:
    """A store or manifest with all that is compared of it, and what is not, as sentences; totals are of the whole log,
    where they are known before it is read.
    """

    label: str
    kind: str
    log: LogSide
    facts: StoreMetadata
    totals: LogTotals | None = None
    not_compared: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompareOptions:
    """Options of a person.

    Attributes:
        by_messages: where messages lie, queues' ends and settings do not count.
        limit: messages of each kind, queues and entries that are listed.
        folder: where temporary files lie, if messages are too many for memory.
        memory_max: bytes of messages held before they go to files there; None leaves it to the memory budget.
        partition_bytes: bytes of log for which a partition is made, whose messages are joined in memory; None likewise.
    """

    by_messages: bool = False
    limit: int = 20
    threads: int = 2
    folder: Path | None = None
    memory_max: int | None = None
    partition_bytes: int | None = None


def compare(
    a: ComparedStore,
    b: ComparedStore,
    terms: Terms,
    options: CompareOptions,
    on_progress: Callable[[int, int], None] | None = None,
    runner: Runner | None = None,
) -> Comparison:
    """Compare two sides; neither is changed. The parts are compared by threads of this process, or by the runner, and
    what is not at the same place comes back here.

    UnreadableError if a manifest turns out to be damaged, WriteError if temporary files cannot be written.
    """
    sides = a.log, b.log
    parts = cut(a.log.files, b.log.files)
    numbers = QueueNumbers()
    total = sum(span.size for side in sides for span in side.files)
    partition_bytes = options.partition_bytes or memory_budget().share(PARTITION_BYTES, 8)
    count = min(PARTITIONS_MAX, 1 + total // partition_bytes)
    has_rows = a.log.has_rows and b.log.has_rows
    first = min((part.begin for part in parts), default=0)
    last = max((part.begin + part.size for part in parts), default=1)
    width = np.int64(-(-(last - first) // count))

    room = (options.folder, options.memory_max)
    with (
        Spill(count, lambda rows: (rows["identity"] % np.uint64(count)).astype(np.int64), *room) as spill,
        Spill(count, lambda rows: (rows["physical_offset"] - first) // width, *room) as pairs,
    ):
        sink: Sink = spill if has_rows else NullSink()
        whole = RangeOutcome()
        done = 0
        outcomes: Iterator[RangeOutcome]
        if runner is None:
            threads = ThreadRunner(options.threads)
            outcomes = threads.map(lambda part: compare_range(part, sides, sink, numbers, terms), parts)
        else:
            outcomes = _elsewhere(parts, RangeComparison(sides, terms, keeps_rows=has_rows), runner, sink, numbers)
        for part, outcome in zip(parts, outcomes, strict=True):
            whole.merge(outcome)
            done += part.size
            if on_progress is not None:
                on_progress(done, sum(part.size for part in parts))
        messages: dict[Kind, Differences] | None = None
        if has_rows:
            messages = join(spill, pairs, options.limit)
            find_reordered(pairs, messages[Kind.REORDERED])

    totals = a.totals or whole.totals[0], b.totals or whole.totals[1]
    begin = max((side.begin for side in totals if side.begin is not None), default=0)
    end = min((side.end if side.end is not None else begin for side in totals), default=begin)
    differing = whole.differing.within(begin, end)
    relation = _relation(totals, begin, end, differing)
    divergence = _divergence(a.log, b.log, differing, has_rows=has_rows)
    tails: list[ResurrectedTail | None] = [None, None]
    if relation is not Relation.EQUAL:
        tails = [_proven_tail(side.log, divergence) for side in (a, b)]
    topics_differ = None
    if messages is None:
        topics = totals[0].topics, totals[1].topics
        topics_differ = frozenset(
            topic for topic in topics[0].keys() | topics[1].keys() if topics[0].get(topic) != topics[1].get(topic)
        )
    problems = []
    for side, log in ((a, totals[0]), (b, totals[1])):
        problems += [f"{side.label}: {text}" for text in (*side.problems, *side.facts.problems)]
        if log.unreadable_bytes:
            problems.append(f"{side.label}: {log.unreadable_bytes} bytes of the commit log cannot be read")
    not_compared = []
    if not options.by_messages:  # queues and settings count
        if unknown := [side.label for side in (a, b) if side.facts.queues is None]:
            not_compared.append(f"{', '.join(unknown)}: the ends of the queues, which are in RocksDB")
        if None in (a.facts.files, b.facts.files):
            not_compared.append("all files besides the log and the configuration; the manifest has no digests of them")
    not_compared += [f"{side.label}: {text}" for side in (a, b) for text in side.not_compared]
    return Comparison(
        a=Side(a.label, a.kind, totals[0], tails[0]),
        b=Side(b.label, b.kind, totals[1], tails[1]),
        identity="content" if terms.by_content else "unique-key",
        relation=relation,
        divergence=divergence,
        differing=differing,
        unresolved_blocks=whole.unresolved_blocks,
        messages=messages,
        queues=numbers.keys,
        topics_differ=topics_differ,
        queue_differences=queue_differences(a.facts, b.facts),
        config_differences=config_differences(a.facts, b.facts),
        epochs=epochs_agree(a.facts, b.facts, totals[0].end or 0, totals[1].end or 0),
        not_compared=tuple(not_compared),
        unequal_files=() if options.by_messages else tuple(unequal_files(a.facts.files or {}, b.facts.files or {})),
        problems=tuple(problems),
        limit=options.limit,
        by_messages=options.by_messages,
    )


def _elsewhere(
    parts: Sequence[LogRange], work: RangeComparison, runner: Runner, sink: Sink, numbers: QueueNumbers
) -> Iterator[RangeOutcome]:
    """Outcomes in the order of the log, computed by a runner."""
    for result in runner.map(work, parts):
        translation = numbers.translation(result.queues)
        for side, rows in enumerate(result.rows):
            if len(rows):
                rows["queue"] = translation[rows["queue"]]
                sink.take(side, rows)
        yield result.outcome


def _relation(totals: tuple[LogTotals, LogTotals], begin: int, end: int, differing: RangeList) -> Relation:
    a, b = totals[0].end, totals[1].end
    if a == b and not differing.count:
        return Relation.EQUAL
    if a is None or b is None:
        return Relation.A_IS_PREFIX if a is None else Relation.B_IS_PREFIX
    if begin >= end:
        return Relation.APART
    if differing.count:
        return Relation.DIVERGED
    return Relation.A_IS_PREFIX if a < b else Relation.B_IS_PREFIX


def _divergence(a: LogSide, b: LogSide, differing: RangeList, *, has_rows: bool) -> Divergence | None:
    if not differing.first:
        return None
    begin, end = differing.first[0]
    if isinstance(a, StoreLog) and isinstance(b, StoreLog):
        at = a.difference_from(begin, b)
        if at is not None and at < end:
            return Divergence(at, begin, end, "byte")
    return Divergence(begin, begin, end, "record" if has_rows else "block")


def _proven_tail(log: LogSide, divergence: Divergence | None) -> ResurrectedTail | None:
    """Old records at the end of a log that came back; None where only the clock may have been set back.

    Proof is an offset that comes twice, or a record before them that the other log does not have.
    """
    tail = log.tail() if isinstance(log, StoreLog) else None
    if tail is None or tail.is_proven:
        return tail
    return tail if divergence is not None and divergence.physical_offset < tail.begin else None


@dataclass(frozen=True)
class LogRange:
    """Files of both logs, by number, that lie in one chunk of physical offsets."""

    here: tuple[int, ...]
    there: tuple[int, ...]
    begin: int
    size: int


@dataclass
class RangeOutcome:
    """Outcome of one part, as `Comparison` has it of all; `merge` is associative over parts in the order of the log."""

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
    """Result of a part that is compared on another machine: rows with numbers of its own queues beside it."""

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
        rows = RowList()
        outcome = compare_range(part, self.sides, rows if self.keeps_rows else NullSink(), numbers, self.terms)
        a, b = (np.concatenate([np.empty(0, ROW), *blocks]) for blocks in rows.blocks)
        return RangeResult(outcome, (a, b), numbers.keys)


class NullSink:
    """A sink where the other side has digests of blocks only: no message can be looked for in it."""

    def take(self, side: int, rows: Array) -> None:
        """Forget them."""


@dataclass
class RowList:
    """A sink that keeps the rows of both sides."""

    blocks: tuple[list[Array], list[Array]] = field(default_factory=lambda: ([], []))

    def take(self, side: int, rows: Array) -> None:
        self.blocks[side].append(rows)


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
        merge.run(*(chain.from_iterable(stream.blocks() for stream in of_side) for of_side in streams))
        for of_side, of_streams in zip(outcome.totals, streams, strict=True):
            for stream in of_streams:
                of_side.merge(stream.totals)
        outcome.differing, outcome.unresolved_blocks = merge.differing, merge.unresolved_blocks
        return outcome
    finally:
        for side, chosen in zip(sides, (part.here, part.there), strict=True):
            for at in chosen:
                side.close(at)

"""Compares two sides: the parts of the log in several threads, then what is not at the same place, then the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from rmqtool.compare.join import Differences, Kind, find_reordered, join, partition_by_identity
from rmqtool.compare.log_merge import RangeList, Sink
from rmqtool.compare.log_side import LogSide, StoreLog, Terms
from rmqtool.compare.metadata import StoreMetadata, config_differences, epochs_agree, queue_differences
from rmqtool.compare.other_files import unequal_files
from rmqtool.compare.result import Comparison, Divergence, Relation, Side
from rmqtool.compare.rows import Array, LogTotals, QueueNumbers
from rmqtool.compare.spill import Spill
from rmqtool.compare.splits import LogRange, NullSink, RangeComparison, RangeOutcome, compare_range, cut
from rmqtool.engine.reading.resurrected_tail import ResurrectedTail
from rmqtool.memory import memory_budget
from rmqtool.scan.runner import Runner, ThreadRunner

PARTITION_BYTES: Final = 256 << 20
PARTITIONS_MAX: Final = 8192
"""Each is a file for each side; `Spill` sorts by their numbers as 16 bits."""


@dataclass(frozen=True)
class ComparedStore:
    """A side with all that is compared of it.

    Attributes:
        kind: store or manifest.
        totals: of the whole log, where they are known before it is read.
        not_compared: what is left out of this side, as sentences.
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
    """What a person may choose.

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
    """Compare two sides; neither is changed.

    Args:
        runner: compares the parts; None is threads of this process. What is not at the same place comes back here.

    Raises:
        UnreadableError: a manifest turns out to be damaged.
        WriteError: temporary files cannot be written.
    """
    sides = a.log, b.log
    parts = cut(a.log.files, b.log.files)
    numbers = QueueNumbers()
    total = sum(span.size for side in sides for span in side.files)
    partition_bytes = options.partition_bytes or memory_budget().share(PARTITION_BYTES, 8)
    count = min(PARTITIONS_MAX, 1 + total // partition_bytes)
    has_rows = a.log.has_rows and b.log.has_rows
    begin, end = (
        min((part.begin for part in parts), default=0),
        max((part.begin + part.size for part in parts), default=1),
    )

    def by_identity(rows: Array) -> Array:
        return partition_by_identity(rows, count)

    def by_place(rows: Array) -> Array:
        width = -(-(end - begin) // count)
        return (rows["physical_offset"] - begin) // np.int64(width)

    with (
        Spill(count, by_identity, options.folder, options.memory_max) as spill,
        Spill(count, by_place, options.folder, options.memory_max) as pairs,
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
    return _comparison(a, b, terms, options, whole, numbers, messages)


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


def _comparison(
    a: ComparedStore,
    b: ComparedStore,
    terms: Terms,
    options: CompareOptions,
    whole: RangeOutcome,
    numbers: QueueNumbers,
    messages: dict[Kind, Differences] | None,
) -> Comparison:
    totals = a.totals or whole.totals[0], b.totals or whole.totals[1]
    begin = max((total.begin for total in totals if total.begin is not None), default=0)
    end = min((total.end if total.end is not None else begin for total in totals), default=begin)
    differing = whole.differing.within(begin, end)
    relation = _relation(totals, begin, end, differing)
    logs_differ = relation is not Relation.EQUAL
    divergence = _divergence(a.log, b.log, differing, has_rows=messages is not None)
    tails = [_proven_tail(side.log, divergence) if logs_differ else None for side in (a, b)]
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
        topics_differ=_differing_topics(*totals) if messages is None else None,
        queue_differences=queue_differences(a.facts, b.facts),
        config_differences=config_differences(a.facts, b.facts),
        epochs=epochs_agree(a.facts, b.facts, totals[0].end or 0, totals[1].end or 0),
        not_compared=tuple(_not_compared(a, b, by_messages=options.by_messages)),
        unequal_files=() if options.by_messages else tuple(unequal_files(a.facts.files or {}, b.facts.files or {})),
        problems=(*_problems(a, totals[0]), *_problems(b, totals[1])),
        limit=options.limit,
        by_messages=options.by_messages,
    )


def _problems(side: ComparedStore, totals: LogTotals) -> Iterator[str]:
    texts = [*side.problems, *side.facts.problems]
    if totals.unreadable_bytes:
        texts.append(f"{totals.unreadable_bytes} bytes of the commit log cannot be read")
    yield from (f"{side.label}: {text}" for text in texts)


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
    """Old records at the end of a log that came back; where only the clock may have been set back, none.

    Proof is an offset that comes twice, or a record before them that the other log does not have.
    """
    tail = log.tail() if isinstance(log, StoreLog) else None
    if tail is None or tail.is_proven:
        return tail
    return tail if divergence is not None and divergence.physical_offset < tail.begin else None


def _differing_topics(a: LogTotals, b: LogTotals) -> frozenset[bytes]:
    return frozenset(topic for topic in a.topics.keys() | b.topics.keys() if a.topics.get(topic) != b.topics.get(topic))


def _not_compared(a: ComparedStore, b: ComparedStore, *, by_messages: bool) -> Iterator[str]:
    """What was left out; compared by messages, queues and settings do not count."""
    unknown = [side.label for side in (a, b) if side.facts.queues is None]
    if unknown and not by_messages:
        yield f"{', '.join(unknown)}: the ends of the queues, which are in RocksDB"
    if None in (a.facts.files, b.facts.files) and not by_messages:
        yield "all files besides the log and the configuration; the manifest has no digests of them"
    for side in (a, b):
        yield from (f"{side.label}: {text}" for text in side.not_compared)

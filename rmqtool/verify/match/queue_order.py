"""The order of queue offsets in the log: which ones are missing between good records, and which record is out of order.

A broker numbers the messages of each queue one by one as it writes them, so that good records stand in runs of
consecutive queue offsets. What breaks a run is damage, or a header that says what it should not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.formats.commitlog import RECORD_SIZE_MIN
from rmqtool.formats.queue_name import QueueKey, TypedQueueKey, topic_text, unsafe_name

RUNS_MAX: Final = 1 << 20
"""Runs that are followed; a log that has more of them has no order to learn from."""

CANDIDATES_MAX: Final = 1000
"""Strays between two neighbors of a queue among which the right one is looked for."""
WRONG_BYTES_MAX: Final = 2
"""Bytes of a topic that are believed to be damaged where all else speaks for another topic."""
SURE: Final = 1 << 80
"""Bytes of damage that have room for any run."""
DamagedBetween = Callable[[int, int], int]
"""Bytes of damage between two physical offsets."""


class MissingRun(NamedTuple):
    """Queue offsets [first, first + length) that no good record has, though good ones lie on both sides of them.

    They were written between the physical offsets `after` and `before`; by records of other topics that name this
    queue beside their own, if `is_further`.
    """

    queue: TypedQueueKey
    first: int
    length: int
    behind: int
    before: int
    is_further: bool = False

    def has(self, queue_offset: int) -> bool:
        return self.first <= queue_offset < self.first + self.length


class MisplacedRecord(NamedTuple):
    """A good record that stands at a place in the log where only another place in a queue was written."""

    physical_offset: int
    topic: bytes
    queue_id: int
    queue_offset: int


@dataclass
class QueueRun:
    """Good records of one queue with consecutive queue offsets [first, end), by the places of the outer two."""

    first: int
    end: int
    place: int
    last_place: int
    count: int


class QueueOrder:
    """Gathers the runs of all queues, batch by batch."""

    def __init__(self, *, begins_at_zero: bool) -> None:
        """`begins_at_zero`: the log's first file is there, so that all queues begin with queue offset 0."""
        self._begins_at_zero = begins_at_zero
        self.chains: dict[TypedQueueKey, list[QueueRun]] = {}
        """Once judged: the runs of each queue that follow each other in log and queue."""
        self._queues: defaultdict[TypedQueueKey, list[QueueRun]] = defaultdict(list)
        self._further: set[TypedQueueKey] = set()
        self._count = 0

    def take(self, entries: QueueEntries) -> None:
        """Take the entries of one queue, which follow those taken before."""
        queue = (entries.topic, entries.queue_id, entries.is_batch)
        offsets, places = entries.queue_offsets, entries.physical_offsets
        if not entries.own.all():
            self._further.add(queue)
        sizes = entries.batch_sizes if entries.is_batch else np.ones_like(offsets)
        ends = offsets + sizes  # that of the highest queue offsets wraps
        starts = np.flatnonzero((offsets[1:] != ends[:-1]) | (ends[:-1] < offsets[:-1])) + 1
        queue_runs = self._queues[queue]
        for begin, stop in zip([0, *starts.tolist()], [*starts.tolist(), offsets.size], strict=True):
            first, place, last = int(offsets[begin]), int(places[begin]), int(places[stop - 1])
            end = int(offsets[stop - 1]) + int(sizes[stop - 1])
            if queue_runs and queue_runs[-1].end == first:
                queue_runs[-1].end, queue_runs[-1].last_place = end, last
                queue_runs[-1].count += stop - begin
            elif self._count < RUNS_MAX:
                queue_runs.append(QueueRun(first, end, place, last, stop - begin))
                self._count += 1

    def take_queue_runs(self, queue: TypedQueueKey, queue_runs: Sequence[QueueRun]) -> None:
        """Take all of one queue at once, in log order."""
        self._queues[queue] = list(queue_runs[: max(0, RUNS_MAX - self._count)])
        self._count += len(self._queues[queue])

    def judged(self, damaged_between: DamagedBetween) -> tuple[list[MissingRun], list[MisplacedRecord]]:
        """The runs for which damage has room, in log order, and the records that fill those for which nothing has."""
        missing, impossible, strays = self._broken(damaged_between)
        return missing, _misplaced(impossible, missing, strays, damaged_between)

    def misplaced(self, damaged_between: DamagedBetween) -> tuple[list[MisplacedRecord], list[MissingRun]]:
        """Of runs between which nothing at all is damaged: the records that fill them, and the runs that none fills."""
        _, impossible, strays = self._broken(lambda behind, before: SURE if damaged_between(behind, before) else 0)
        misplaced = _misplaced(impossible, (), strays, damaged_between)
        filled: defaultdict[QueueKey, list[int]] = defaultdict(list)
        for record in misplaced:
            filled[record.topic, record.queue_id].append(record.queue_offset)
        empty = [run for run in impossible if not any(map(run.has, filled[run.queue[:2]]))]
        # What a record that is alone in its queue lacks before it, where no other place in the log is right for it.
        misplaced_places = {record.physical_offset for record in misplaced}
        for queue, chain in self.chains.items() if self._begins_at_zero else ():
            run = chain[0]
            if not _is_alone(self._queues[queue]) or run.place in misplaced_places:
                continue
            if run.first > 0 and not damaged_between(-1, run.place):
                empty.append(MissingRun(queue, 0, run.first, -1, run.place, queue in self._further))
        return misplaced, empty

    def repeated(self) -> dict[TypedQueueKey, list[QueueRun]]:
        """Once judged: the runs beside the chains, of each queue, that have queue offsets of one in the chain."""
        runs_by_queue: dict[TypedQueueKey, list[QueueRun]] = {}
        for queue, chain in self.chains.items():
            in_chain, claimed = set(map(id, chain)), [(run.first, run.end) for run in chain]
            beside = [run for run in self._queues[queue] if id(run) not in in_chain]
            if again := [run for run in beside if _meets(claimed, run.first, run.end)]:
                runs_by_queue[queue] = again
        return runs_by_queue

    def _broken(
        self, damaged_between: DamagedBetween
    ) -> tuple[list[MissingRun], list[MissingRun], list[tuple[int, int, TypedQueueKey]]]:
        """The runs for which damage has room, in log order; those for which nothing has; strays, in log order."""
        missing: list[MissingRun] = []
        impossible: list[MissingRun] = []
        strays: list[tuple[int, int, TypedQueueKey]] = []
        if self._count >= RUNS_MAX:
            return missing, impossible, strays
        for queue, queue_runs in self._queues.items():
            chain = _in_order(queue_runs)
            self.chains[queue] = chain
            unexplained: set[int] = set()
            for run in self._runs(queue, chain, queue_runs):
                if run.length * RECORD_SIZE_MIN <= damaged_between(run.behind, run.before):
                    missing.append(run)
                else:
                    unexplained.add(run.before)
                    if not _is_alone(queue_runs):  # a record alone in a queue tells nothing of what comes before it
                        impossible.append(run)
            if _is_alone(queue_runs) and self._begins_at_zero and queue_runs[0].first == 0:
                continue
            # A stray does not follow from what lies before it in its queue, or has a queue to itself.
            in_chain = set(map(id, chain))
            for queue_run in queue_runs:
                follows = id(queue_run) in in_chain and queue_run.place not in unexplained
                if queue_run.count == 1 and (not follows or _is_alone(queue_runs)):
                    strays.append((queue_run.place, queue_run.first, queue))
        missing.sort(key=lambda run: (run.before, run.first))
        return missing, impossible, sorted(strays)

    def _runs(
        self, queue: TypedQueueKey, chain: Sequence[QueueRun], queue_runs: Sequence[QueueRun]
    ) -> Iterator[MissingRun]:
        is_further = queue in self._further
        in_order = sorted((run.first, run.end) for run in queue_runs) if len(chain) < len(queue_runs) else []
        reached = accumulate((end for _, end in in_order), max)
        offset_ranges = [(first, end) for (first, _), end in zip(in_order, reached, strict=True)]
        end, place = (0, -1) if self._begins_at_zero else (chain[0].first, -1)
        for run in chain:
            if run.first > end and not _meets(offset_ranges, end, run.first):
                yield MissingRun(queue, end, run.first - end, place, run.place, is_further)
            end, place = run.end, run.last_place


def _in_order(queue_runs: list[QueueRun]) -> list[QueueRun]:
    """The runs, of which in log order none begins before the one before it ends, that hold most records."""
    if all(one.end <= two.first for one, two in pairwise(queue_runs)):
        return queue_runs
    ends: list[int] = []
    best: list[tuple[int, int]] = []
    """Records of the best chain that ends at each of `ends`, and its last run; both rise."""
    before: list[int] = []
    for number, run in enumerate(queue_runs):
        at = bisect_right(ends, run.first)
        count, previous = best[at - 1] if at else (0, -1)
        count += run.count
        before.append(previous)
        at = bisect_right(ends, run.end)
        if at and best[at - 1][0] >= count:
            continue
        stop = at
        while stop < len(ends) and best[stop][0] <= count:
            stop += 1
        ends[at:stop], best[at:stop] = [run.end], [(count, number)]
    chain: list[QueueRun] = []
    number = best[-1][1]
    while number >= 0:
        chain.append(queue_runs[number])
        number = before[number]
    return chain[::-1]


def _is_alone(queue_runs: Sequence[QueueRun]) -> bool:
    return len(queue_runs) == 1 and queue_runs[0].count == 1


def _meets(offset_ranges: Sequence[tuple[int, int]], first: int, end: int) -> bool:
    """True if any run has a queue offset in [first, end); the ranges are sorted by their begin, and each ends where the
    furthest of those up to it does.
    """
    at = bisect_right(offset_ranges, (first, first))
    return (at < len(offset_ranges) and offset_ranges[at][0] < end) or (at > 0 and offset_ranges[at - 1][1] > first)


def _misplaced(
    impossible: Sequence[MissingRun],
    explained: Sequence[MissingRun],
    strays: Sequence[tuple[int, int, TypedQueueKey]],
    damaged_between: DamagedBetween,
) -> list[MisplacedRecord]:
    """Strays that are where a missing message was written, and whose headers are off by a little.

    Either the queue is another one, or the queue offset, where no damage stands between the stray and its neighbor. A
    header in which both are wrong is not recognized. What damage can have held is not looked for in other queues.
    """
    misplaced_records: list[MisplacedRecord] = []
    places = [place for place, _, _ in strays]
    for number, run in enumerate([*impossible, *explained]):
        if run.is_further or run.queue[2]:
            continue
        low, high = bisect_right(places, run.behind), bisect_right(places, run.before - 1)
        if high - low > CANDIDATES_MAX:
            continue
        fitting = [
            (place, fits)
            for place, queue_offset, queue in strays[low:high]
            if (queue == run.queue or number < len(impossible))
            and (fits := _fits(run, place, queue_offset, queue, damaged_between)) is not None
        ]
        # Who is claimed twice, or claims what another one does, is left alone.
        if len({queue_offset for _, queue_offset in fitting}) == len(fitting):
            misplaced_records += [
                MisplacedRecord(place, *run.queue[:2], queue_offset) for place, queue_offset in fitting
            ]
    claims = Counter(record.physical_offset for record in misplaced_records)
    return [record for record in misplaced_records if claims[record.physical_offset] == 1]


def _fits(
    run: MissingRun, place: int, queue_offset: int, queue: TypedQueueKey, damaged_between: DamagedBetween
) -> int | None:
    """The missing queue offset that a stray among the run's neighbors must have; None unless there is just one."""
    if queue != run.queue:
        # Damage can turn the other queue into this one: by a few wrong bits, or to a topic that none can have.
        if queue[2] or len(queue[0]) != len(run.queue[0]) or not run.has(queue_offset):
            return None
        is_impossible = queue[1] == run.queue[1] and unsafe_name(topic_text(queue[0]))
        wrong_bytes = sum(one != two for one, two in zip(queue[0], run.queue[0], strict=True))
        return queue_offset if is_impossible or wrong_bytes <= WRONG_BYTES_MAX else None
    in_front, behind = damaged_between(run.behind, place) > 0, damaged_between(place, run.before) > 0
    if in_front == behind:
        return run.first if run.length == 1 and not behind else None
    # What else is missing was lost on the side where the damage is.
    return run.first + run.length - 1 if in_front else run.first

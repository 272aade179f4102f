"""Which of the claims about damaged records fit into what the log still has: the log decides, units and headers add.

A queue's offsets rise along the log. A claim that a good record contradicts, or that breaks the order, would take the
place of a message that is there; it is dropped, and the message counts as one of those that the gaps tell of.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.formats.commitlog import RECORD_SIZE_MIN
from rmqtool.formats.queue_name import QueueKey, TypedQueueKey
from rmqtool.repair.salvage.damage_context import DamageContext
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.verify.match.queue_order import MissingRun

if TYPE_CHECKING:
    from rmqtool.repair.salvage.lost_record import LostRecord


def placeable(
    claims: Sequence[Sequence[LostRecord]], ranges: Sequence[DamagedRange], around: DamageContext
) -> Iterator[list[LostRecord]]:
    """The records of each range that stood where they are said to stand.

    Args:
        claims: per range, in log order.
    """
    belief = Belief(around)
    fitting = [
        [one for record in records if (one := belief.of(record, damaged)) is not None]
        for records, damaged in zip(claims, ranges, strict=True)
    ]
    kept = _in_order([record for records in fitting for record in records])
    for records in fitting:
        yield [one for record in records if (one := _kept(record, kept)) is not None]


def missing_before_claims(
    claims: Sequence[Sequence[LostRecord]],
    ranges: Sequence[DamagedRange],
    around: DamageContext,
    *,
    begins_at_zero: bool,
) -> Iterator[MissingRun]:
    """The queue offsets that are missing around claims outside of a queue's good records.

    Those are the ones after its last good record, before and between the claims that follow, and, where nothing tells
    with which offset the queue begins, the ones before its first good record, between and after the claims before
    it. Whoever builds the queue from the log would move up what follows otherwise.

    Args:
        claims: per range, those that are believed.
        begins_at_zero: the log's first file is there, so that all queues begin with queue offset 0.
    """
    starts = [damaged.start for damaged in ranges]
    damage = list(accumulate((damaged.length for damaged in ranges), initial=0))

    def runs(name: TypedQueueKey, rows: Sequence[_Row], end: int, behind: int) -> Iterator[MissingRun]:
        is_further = name[0].startswith(LMQ_PREFIX.encode()) or any(row[3] for row in rows)
        count, begin = 0, damage[bisect_right(starts, behind)]
        for first, stop, at, _ in rows:
            if first < end:
                continue  # it stands between good records
            count += first - end
            if count * RECORD_SIZE_MIN > damage[bisect_right(starts, at)] - begin:
                break  # so many cannot have been lost
            if first > end:
                yield MissingRun(name, end, first - end, behind, at, is_further)
            end = stop

    queues: defaultdict[TypedQueueKey, list[_Row]] = defaultdict(list)
    for records in claims:
        for record in records:
            for number, (queue, first, end) in enumerate(record.standings):
                is_batch = number == 0 and record.batch_size is not None
                queues[(*queue, is_batch)].append((first, end, record.place[0], number > 0))
    for name, rows in queues.items():
        chain = around.chains.get(name)
        if chain is None:
            yield from runs(name, rows, 0 if begins_at_zero else rows[0][0], -1)
            continue
        good = chain[0]
        if not begins_at_zero and rows[0][1] <= good.first:
            leading = [row for row in rows if row[1] <= good.first]
            yield from runs(name, [*leading, (good.first, good.first, good.place, False)], rows[0][0], -1)
        yield from runs(name, rows, chain[-1].end, chain[-1].last_place)


_Row = tuple[int, int, int, bool]
"""First queue offset and end of a claim, its place in the log, and whether it is in a light queue."""


class Belief:
    """What good records say about claims, one by one.

    Good neighbors tell which messages are missing; a header that names another one is believed only where it continues
    from its queue's last message, or where nothing else is missing.
    """

    def __init__(self, around: DamageContext) -> None:
        self._around = around
        self._runs: defaultdict[QueueKey, list[MissingRun]] = defaultdict(list)
        for run in sorted(around.missing, key=lambda run: run.first):
            self._runs[run.queue[:2]].append(run)
        own = sorted((run.behind, run.before) for run in around.missing if not run.is_further)
        self._behind = [behind for behind, _ in own]
        self._before = list(accumulate((before for _, before in own), max))
        """The farthest end of all runs that begin as early."""

    def of(self, record: LostRecord, damaged: DamagedRange) -> LostRecord | None:
        """The claim that is believed, of unit or header; None where neither is."""
        if record.has_unit and self.has_room(record):
            return self._with_fitting_further(record)
        by_head = record.by_head if record.has_unit and record.by_head is not None else record
        if by_head.head is not None and self._is_likely(by_head, damaged):
            return self._with_fitting_further(by_head)
        return None

    def has_room(self, record: LostRecord) -> bool:
        """Whether a record's own queue has room for it where it lies."""
        queue, first, end = next(record.standings)
        return self._has_room((*queue, record.batch_size is not None), first, end, record.place[0])

    def _with_fitting_further(self, record: LostRecord) -> LostRecord:
        """The record in those of its further queues whose good records leave room for it."""
        _, *rows = record.standings
        fitting = tuple(
            name
            for name, (queue, first, end) in zip(record.further, rows, strict=True)
            if self._has_room((*queue, False), first, end, record.place[0])
        )
        return record if fitting == record.further else replace(record, further=fitting)

    def _has_room(self, name: TypedQueueKey, first: int, end: int, at: int) -> bool:
        """Whether the log has room for a claim: between good records of its queue, none of which is that message."""
        chain = self._around.chains.get(name, [])
        number = bisect_right(chain, first, key=lambda stretch: stretch.first)
        if number and (chain[number - 1].end > first or chain[number - 1].last_place > at):
            return False
        return number == len(chain) or (at < chain[number].place and end <= chain[number].first)

    def _is_likely(self, record: LostRecord, damaged: DamagedRange) -> bool:
        """Whether a damaged record stood where its header alone says."""
        assert record.head is not None
        queue, first = (record.topic, record.queue_id), record.queue_offset
        if self._run_with(queue, first) is not None:
            return True
        chain = self._around.chains.get((*queue, record.batch_size is not None))
        if chain and chain[-1].end <= first <= chain[-1].end + damaged.length // RECORD_SIZE_MIN:
            return True
        count = bisect_right(self._behind, damaged.start)
        competes = count > 0 and self._before[count - 1] >= damaged.end
        return not competes and record.head.physical_offset == record.physical_offset and record.queue_id >= 0

    def _run_with(self, queue: QueueKey, first: int) -> MissingRun | None:
        runs = self._runs.get(queue, [])
        at = bisect_right(runs, first, key=lambda run: run.first) - 1
        return runs[at] if at >= 0 and runs[at].has(first) else None


_Claim = tuple[int, QueueKey, int, int]
"""Id of a record, a queue, and the first queue offset and the end of what the record says to be there."""


def _in_order(records: Sequence[LostRecord]) -> set[_Claim]:
    """The most claims whose queue offsets rise along the log, for each queue."""
    queues: defaultdict[QueueKey, list[_Claim]] = defaultdict(list)
    for record in records:
        for queue, first, end in record.standings:
            queues[queue].append((id(record), queue, first, end))
    return {claim for claims in queues.values() for claim in _rising(claims)}


def _kept(record: LostRecord, claims: AbstractSet[_Claim]) -> LostRecord | None:
    """A record in those further queues in which its claim is kept; None where that in its own queue is not."""
    own, *rows = [(id(record), *row) in claims for row in record.standings]
    if not own:
        return None
    further = tuple(name for name, is_kept in zip(record.further, rows, strict=True) if is_kept)
    return record if further == record.further else replace(record, further=further)


def _rising(claims: Sequence[_Claim]) -> list[_Claim]:
    """The longest part of one queue's claims in which none begins before the one before it ends."""
    ends: list[int] = []
    last: list[int] = []
    """Numbers of the claims with which the best parts of each length end; `ends` are their ends, and rise."""
    before: list[int] = []
    for number, (*_, first, end) in enumerate(claims):
        length = bisect_right(ends, first)
        before.append(last[length - 1] if length else -1)
        at = bisect_left(ends, end)
        if at == length:
            ends[at : at + 1], last[at : at + 1] = [end], [number]
    chosen: list[_Claim] = []
    number = last[-1] if last else -1
    while number >= 0:
        chosen.append(claims[number])
        number = before[number]
    return chosen

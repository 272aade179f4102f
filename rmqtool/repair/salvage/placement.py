"""Which of the claims about damaged records fit into what the log still has: the log is the truth, units and heads add.

A queue's offsets rise along the log. A claim that a good record contradicts, or that breaks the order, would take the
place of a message that is there; it is dropped, and the message counts as one of those that the gaps tell of.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from rmqtool.formats.commitlog import RECORD_SIZE_MIN
from rmqtool.repair.salvage.damage_context import DamageContext
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.verify.match.queue_order import MissingRun

if TYPE_CHECKING:
    from rmqtool.repair.salvage.lost_records import LostRecord


def placeable(
    claims: Sequence[Sequence[LostRecord]], ranges: Sequence[DamagedRange], around: DamageContext
) -> Iterator[list[LostRecord]]:
    """The records of each range that stood where they are said to stand.

    Args:
        claims: per range, in log order.
    """
    belief = _Belief(around)
    fitting = [
        [one for record in records if (one := belief.of(record, damaged)) is not None]
        for records, damaged in zip(claims, ranges, strict=True)
    ]
    kept = _in_order([record for records in fitting for record in records])
    for records in fitting:
        yield [record for record in records if id(record) in kept]


class _Belief:
    """What good records say about claims, one by one.

    Good neighbors tell which messages are missing; a head that names another one is believed only where it goes on
    from its queue's last message, or where nothing else is missing.
    """

    def __init__(self, around: DamageContext) -> None:
        self._around = around
        self._runs: defaultdict[tuple[bytes, int], list[MissingRun]] = defaultdict(list)
        for run in sorted(around.missing, key=lambda run: run.first):
            self._runs[run.queue[:2]].append(run)
        own = sorted((run.behind, run.before) for run in around.missing if not run.is_further)
        self._behind = [behind for behind, _ in own]
        self._before = list(accumulate((before for _, before in own), max))
        """The farthest end of all runs that begin as early."""

    def of(self, record: LostRecord, damaged: DamagedRange) -> LostRecord | None:
        """The claim that is believed, of unit or head; None where neither is."""
        if record.has_unit and self._fits(record):
            return record
        by_head = record.by_head if record.has_unit and record.by_head is not None else record
        return by_head if by_head.head is not None and self._is_likely(by_head, damaged) else None

    def _fits(self, record: LostRecord) -> bool:
        """Whether the log has room for the claim: between good records of its queue, none of which is that message."""
        chain = self._around.chains.get((record.topic, record.queue_id, record.batch_size is not None), [])
        first, at = record.queue_offset, record.place[0]
        number = bisect_right(chain, first, key=lambda stretch: stretch.first)
        if number and (chain[number - 1].end > first or chain[number - 1].last_place > at):
            return False
        return number == len(chain) or (at < chain[number].place and first + record.messages <= chain[number].first)

    def _is_likely(self, record: LostRecord, damaged: DamagedRange) -> bool:
        """Whether a damaged record stood where its head alone says."""
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

    def _run_with(self, queue: tuple[bytes, int], first: int) -> MissingRun | None:
        runs = self._runs.get(queue, [])
        at = bisect_right(runs, first, key=lambda run: run.first) - 1
        return runs[at] if at >= 0 and runs[at].has(first) else None


def _in_order(records: Sequence[LostRecord]) -> set[int]:
    """Ids of the most records whose queue offsets rise along the log, for each queue."""
    queues: defaultdict[tuple[bytes, int], list[LostRecord]] = defaultdict(list)
    for record in records:
        queues[record.topic, record.queue_id].append(record)
    return {id(record) for queue_records in queues.values() for record in _rising(queue_records)}


def _rising(records: Sequence[LostRecord]) -> list[LostRecord]:
    """The longest part of one queue's records in which none begins before the one in front of it ends."""
    ends: list[int] = []
    last: list[int] = []
    """Numbers of the records with which the best parts of each length end; `ends` are their ends, and rise."""
    before: list[int] = []
    for number, record in enumerate(records):
        length = bisect_right(ends, record.queue_offset)
        before.append(last[length - 1] if length else -1)
        end = record.queue_offset + record.messages
        at = bisect_left(ends, end)
        if at == length:
            ends[at : at + 1], last[at : at + 1] = [end], [number]
    chosen: list[LostRecord] = []
    number = last[-1] if last else -1
    while number >= 0:
        chosen.append(records[number])
        number = before[number]
    return chosen

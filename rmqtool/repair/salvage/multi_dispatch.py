"""The further queues that lost records stood in (multi-dispatch), where only the gaps in those queues tell of them.

Which of the lost records named which queue nobody knows; it is enough that the order in each queue is that of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rmqtool.engine.rules.multi_dispatch import LMQ_PREFIX, is_kept_out
from rmqtool.formats.queue_name import QueueKey
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.repair.salvage.layout import Least, lay_out
from rmqtool.repair.salvage.lost_records import LostInRange, LostRecord
from rmqtool.verify.match.queue_order import MissingRun


class _Slot(NamedTuple):
    """A lost record: its range and its position among what is laid there, and its place in a list of the range."""

    number: int
    position: int
    records: list[LostRecord]
    at: int

    @property
    def lost(self) -> LostRecord:
        return self.records[self.at]


_Change = tuple[_Slot, LostRecord]


def add_further(
    ranges: Sequence[DamagedRange],
    lost_in_ranges: Sequence[LostInRange],
    missing: Iterable[MissingRun],
    least: Least,
    kept_out: Collection[str],
) -> list[MissingRun]:
    """Let lost records stand in further queues in which offsets are missing; the runs for which they do not suffice.

    A queue with a gap in it is displaced after the gap: all of a run is filled, or nothing.

    Args:
        lost_in_ranges: the lost records of each range, which are replaced by such as name the further queues.
        least: see `lay_out`.
        kept_out: patterns of topics whose records name no further queues.
    """
    gaps: defaultdict[tuple[QueueKey, int], list[MissingRun]] = defaultdict(list)
    """The runs between two good records of a queue, or after its last one."""
    for run in missing:
        if run.is_further:
            gaps[run.queue[:2], run.behind].append(run)
    if not gaps:
        return []
    filler = _Filler(ranges, lost_in_ranges, least, kept_out)
    return [run for runs in gaps.values() for run in filler.fill(runs)]


class _Filler:
    """Lost records in the order in which they are laid, and the room for what they name."""

    def __init__(
        self,
        ranges: Sequence[DamagedRange],
        lost_in_ranges: Sequence[LostInRange],
        least: Least,
        kept_out: Collection[str],
    ) -> None:
        self._least, self._kept_out = least, kept_out
        self._starts = [damaged.start for damaged in ranges]
        self._slots = [
            list(_in_layout(number, *pair, least))
            for number, pair in enumerate(zip(ranges, lost_in_ranges, strict=True))
        ]
        self._room = [
            damaged.length - sum(record.size or least(record) for record in (*losses.placed, *losses.unplaced))
            for damaged, losses in zip(ranges, lost_in_ranges, strict=True)
        ]
        self._named: defaultdict[QueueKey, list[_Slot]] = defaultdict(list)
        for slots in self._slots:
            for slot in slots:
                for queue, *_ in slot.lost.standings:
                    self._named[queue].append(slot)

    def fill(self, runs: Sequence[MissingRun]) -> list[MissingRun]:
        """Let records name the queue offsets missing in one gap of a queue; the runs for which they do not suffice."""
        rest = [run for run in runs if not self._change(run.queue[:2], [run], keeps_units=True)]
        # Perhaps what units say of other records in that queue leaves no room for these.
        return rest if rest and not self._change(rest[0].queue[:2], rest, keeps_units=False) else []

    def _change(self, queue: QueueKey, runs: Sequence[MissingRun], *, keeps_units: bool) -> bool:
        behind, before = min(run.behind for run in runs), max(run.before for run in runs)
        numbers = range(bisect_right(self._starts, behind), bisect_right(self._starts, before))
        missing = {queue_offset for run in runs for queue_offset in range(run.first, run.first + run.length)}
        changes = self._changes(queue, missing, numbers, keeps_units=keeps_units)
        for slot, lost in changes or ():
            if slot.lost.size is None:
                self._room[slot.number] -= self._least(lost) - self._least(slot.lost)
            slot.records[slot.at] = lost
            self._named[queue].append(slot)
        return changes is not None

    def _changes(
        self, queue: QueueKey, missing: Iterable[int], numbers: range, *, keeps_units: bool
    ) -> list[_Change] | None:
        """Records that can have named the missing queue offsets, with all that they name; None if they are too few."""
        named = {
            slot[:2]: offset
            for slot in self._named[queue]
            if slot.number in numbers
            and (offset := next((first for name, first, _ in slot.lost.standings if name == queue), None)) is not None
        }
        coming = deque(sorted({*missing, *named.values()}))
        stays = {
            slot[:2]
            for slot in self._named[queue]
            if keeps_units or slot.lost.head is not None or slot.lost.topic == queue[0]
        }
        fixed = {offset for key, offset in named.items() if key in stays}
        spent: Counter[int] = Counter()
        changes: list[_Change] = []
        for slot in (slot for number in numbers for slot in self._slots[number]):
            if not coming and not named:
                break
            queue_offset = named.pop(slot[:2], None)
            if queue_offset is not None and slot[:2] in stays:
                if not coming or coming.popleft() != queue_offset:
                    return None
                continue
            others = tuple(name for name in slot.lost.further if name[0] != queue[0])
            lost = slot.lost if queue_offset is None else replace(slot.lost, further=others)
            longer = self._longer(lost, queue, coming[0]) if coming and coming[0] not in fixed else None
            more = 0 if longer is None or lost.size is not None else self._least(longer) - self._least(slot.lost)
            if longer is not None and more <= self._room[slot.number] - spent[slot.number]:
                coming.popleft()
                spent[slot.number] += more
                changes.append((slot, longer))
            elif lost is not slot.lost:
                changes.append((slot, lost))
        return None if coming else changes

    def _longer(self, lost: LostRecord, queue: QueueKey, queue_offset: int) -> LostRecord | None:
        """The record with one more queue that it may have named; None where it cannot, or has no room for it."""
        if lost.head is not None or lost.batch_size is not None or is_kept_out(lost.topic_name, self._kept_out):
            return None
        if not queue[0].startswith(LMQ_PREFIX.encode()) and lost.queue_id != queue[1]:
            return None
        longer = replace(lost, further=(*lost.further, (queue[0], queue_offset)))
        return longer if lost.size is None or self._least(longer) <= lost.size else None


def _in_layout(number: int, damaged: DamagedRange, losses: LostInRange, least: Least) -> Iterator[_Slot]:
    """The records of a range in the order in which they are laid."""
    lists = (losses.placed, losses.unplaced)
    places = {id(record): (records, at) for records in lists for at, record in enumerate(records)}
    fillings = lay_out(damaged, losses, least) or ()
    for position, lost in enumerate(filling.lost for filling in fillings if filling.lost is not None):
        yield _Slot(number, position, *places[id(lost)])

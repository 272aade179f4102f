"""Messages that a damaged range held, by headers that are still whole, by queue units, by gaps in the queues.

The log decides which of these claims fit into it; units and headers add. A queue's offsets rise along the log. A claim
that a good record contradicts, or that breaks the order, would take the place of a message that is there; it is
dropped, and the message counts as one of those that the gaps tell of.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final

import numpy as np

from rmqtool.engine.reading.record import Record, decode_record
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.segments.log import Log
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.formats import system_flag
from rmqtool.formats.commitlog import RECORD_SIZE_MIN
from rmqtool.formats.properties import INNER_BASE, INNER_COUNT, MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from rmqtool.formats.queue_name import QueueKey, QueueName, TypedQueueKey, queue_name, topic_bytes, topic_text
from rmqtool.repair.salvage.damaged_ranges import DamageContext, DamagedRange, UnitsInRanges
from rmqtool.repair.salvage.record_repair import restored
from rmqtool.store.directory import Store
from rmqtool.verify.match.queue_order import MissingRun
from rmqtool.verify.survey.queue_pass import QueuePass

_LMQ: Final = LMQ_PREFIX.encode()
_EMPTY: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A record of a damaged range, as far as it is known.

    Attributes:
        topic: raw bytes.
        further: (topic, queue offset) of the other queues that it stands in (multi-dispatch).
        batch_size: messages in it, where it belongs into a batch queue.
        physical_offset, size: where it lies; None where only its queue tells of it.
        head: what can be read of it, if all its lengths agree.
        restored: its bytes, where only size and magic were wrong.
        has_unit: a unit of its queue says the same.
        by_head: what the header says where the unit says something else.
    """

    topic: bytes
    queue_id: int
    queue_offset: int
    further: tuple[QueueKey, ...] = ()
    batch_size: int | None = None
    physical_offset: int | None = None
    size: int | None = None
    head: Record | None = None
    restored: bytes | None = None
    has_unit: bool = False
    by_head: LostRecord | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Physical offsets [start, end) of a record whose place is known."""
        assert self.physical_offset is not None
        assert self.size is not None
        return self.physical_offset, self.physical_offset + self.size

    @property
    def tells_earlier_place(self) -> bool:
        """True if its own offset is nearer to the log's start, and its queue does not confirm the actual one."""
        told = self.head.physical_offset if self.head is not None and not self.has_unit else 0
        return 0 < told < self.place[0]

    @property
    def topic_name(self) -> str:
        """The topic as its directory is named."""
        return topic_text(self.topic)

    @property
    def messages(self) -> int:
        """Messages that are lost with it."""
        return self.batch_size or 1

    @property
    def standings(self) -> Iterator[tuple[QueueKey, int, int]]:
        """Each queue that it stands in, its own first, with the queue offsets [first, end) that it has there."""
        yield (self.topic, self.queue_id), self.queue_offset, self.queue_offset + self.messages
        for topic, queue_offset in self.further:
            yield (topic, 0 if topic.startswith(_LMQ) else self.queue_id), queue_offset, queue_offset + 1

    @property
    def queues(self) -> Iterator[QueueName]:
        """Topic, as its directory is named, and queue id of each queue that it stands in."""
        for (topic, queue_id), *_ in self.standings:
            yield queue_name(topic, queue_id)


@dataclass
class LostInRange:
    """The records of one range, in log order.

    Attributes:
        placed: their places are known, and do not overlap.
        unplaced: known to their queues only.
    """

    placed: list[LostRecord] = field(default_factory=list)
    unplaced: list[LostRecord] = field(default_factory=list)


class LostRecords:
    """Finds the records of damaged ranges in one store."""

    def __init__(self, store: Store, log: Log, ranges: Sequence[DamagedRange], *, record_crc: bool) -> None:
        """Reads all queues.

        Args:
            ranges: all damage; what is asked for later lies in it.
        """
        self._store, self._log, self._record_crc = store, log, record_crc
        self._queues = [
            QueuePass(files, is_batch, size, store.commitlog_file_size, store.log_start, Account()).run(store.view.open)
            for is_batch, queues, size in (
                (False, store.queues, store.consumequeue_file_size),
                (True, store.batch_queues, store.batch_file_size),
            )
            for files in queues.values()
        ]
        self._units = UnitsInRanges(self._queues, store.view.open, ranges)

    def heads_and_units(self, damaged: DamagedRange) -> list[LostRecord]:
        """The records of a range whose places are known, in order."""
        records: list[LostRecord] = []
        by_unit = self._by_units(damaged)
        end = damaged.start
        for start in sorted({*by_unit, *damaged.starts}):
            if start < end:
                continue
            following: int | None = start
            while following is not None and (following == start or following not in by_unit):
                record = self._at(damaged, following, by_unit.get(following))
                if record is None:
                    break
                records.append(record)
                end = record.place[1]
                following = end if end < damaged.end else None
        return records

    def of(self, ranges: Sequence[DamagedRange], around: DamageContext) -> tuple[list[LostInRange], list[MissingRun]]:
        """The records of each range, in order, and all queue offsets that good records and those leave out."""
        placed = list(placeable([self.heads_and_units(one) for one in ranges], ranges, around))
        begins_at_zero = bool(self._store.commitlog) and self._store.commitlog[0].start == 0
        behind = missing_before_claims(placed, ranges, around, begins_at_zero=begins_at_zero)
        missing = [*around.missing, *behind]
        add_own_queues(placed, missing)
        lost_in_ranges = [LostInRange(records) for records in placed]
        place_missing(ranges, lost_in_ranges, [run for run in missing if not run.is_further])
        return lost_in_ranges, missing

    def has_unit(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> bool:
        """True if a queue has a record at an offset."""
        return any(
            int(unit["physical_offset"]) == physical_offset
            for queue in self._queues
            if (queue.topic, queue.queue_id, queue.is_batch) == (topic, queue_id, False)
            for unit in queue.read(self._store.view.open, queue_offset, queue_offset + 1)[1]
        )

    # What headers and units say

    def _at(self, damaged: DamagedRange, start: int, unit: LostRecord | None) -> LostRecord | None:
        """The record at an offset, by its header if that is whole, else by its unit."""
        head, raw = self._head(damaged, start, unit.size if unit is not None else None)
        if head is None:
            return unit
        known = _of_head(head, raw)
        if known is None:  # it stands in no queue
            return None
        if unit is None:
            # Nothing but the header speaks for it, so it has to be right about its place, or to fill the damage
            # exactly.
            is_whole_end = start == damaged.end - head.size and not self._is_copy(head)
            return known if start == head.physical_offset or is_whole_end else None
        if (known.topic, known.queue_id, known.queue_offset) != (unit.topic, unit.queue_id, unit.queue_offset):
            return replace(unit, by_head=known)
        further, batch_size = known.further or unit.further, known.batch_size or unit.batch_size
        return replace(known, further=further, batch_size=batch_size, has_unit=True)

    def _is_copy(self, head: Record) -> bool:
        """True if the record is also at the offset in its header."""
        place = self._log.place(head.physical_offset)
        try:
            record = decode_record(self._log, place) if place is not None else None
        except UnreadableError:
            return False
        # No two records of a log have these in common.
        fields = attrgetter("physical_offset", "topic_raw", "queue_id", "queue_offset")
        return record is not None and bool(fields(record) == fields(head))

    def _head(self, damaged: DamagedRange, start: int, known_size: int | None) -> tuple[Record | None, bytes | None]:
        """Header of a record whose lengths all agree, and that ends inside the range; its bytes if restored."""
        place = None if damaged.is_missing else self._log.place(start)
        if place is None:
            return None, None
        try:
            record = decode_record(self._log, place)
        except UnreadableError:
            return None, None
        if record is not None and start + record.size <= damaged.end:
            return record, None
        room = damaged.end - start
        return restored(self._log, place, room, record_crc=self._record_crc, known_size=known_size) or (None, None)

    def _by_units(self, damaged: DamagedRange) -> dict[int, LostRecord]:
        """Records by their physical offset; one that several queues point to is one record.

        Of those that overlap as many as can be are kept: a unit with too large a size hides no other record.
        """
        limit = damaged.file_start + damaged.file_size if damaged.is_last else damaged.end
        claims: defaultdict[int, list[LostRecord]] = defaultdict(list)
        for queue, place, (start, size, base, count) in self._units.between(damaged.start, limit):
            if size < RECORD_SIZE_MIN or start + size > limit:
                continue
            claim = LostRecord(
                topic_bytes(queue.topic), queue.queue_id, base if queue.is_batch else place,
                batch_size=count if queue.is_batch else None, physical_offset=start, size=size, has_unit=True,
            )  # fmt: skip
            claims[start].append(claim)
        records = [record for start in sorted(claims) if (record := _one_of(claims[start])) is not None]
        kept_by_offset: dict[int, LostRecord] = {}
        end = damaged.start
        for record in sorted(records, key=lambda record: record.place[1]):
            if record.place[0] >= end:
                kept_by_offset[record.place[0]] = record
                end = record.place[1]
        return kept_by_offset


def place_missing(
    ranges: Sequence[DamagedRange], lost_in_ranges: Sequence[LostInRange], missing: Sequence[MissingRun]
) -> None:
    """Give each missing queue offset to the first range between its neighbors that has room for it.

    Where none has, the last one between its lost neighbors takes it, which may give up what their units say.
    """
    if not missing:
        return
    starts = [damaged.start for damaged in ranges]
    room = [
        damaged.length - sum(record.size or _least(record) for record in (*lost.placed, *lost.unplaced))
        for damaged, lost in zip(ranges, lost_in_ranges, strict=True)
    ]
    following = list(range(len(ranges) + 1))
    """The first range from a number on that has room for any record."""

    def with_room(number: int) -> int:
        last = number
        while last < len(ranges) and (following[last] != last or room[last] < RECORD_SIZE_MIN):
            last = following[last] if following[last] != last else last + 1
        while number < last:
            following[number], number = last, max(following[number], number + 1)
        return last

    known = _Placed(lost_in_ranges)
    for run in missing:
        first, last = bisect_right(starts, run.behind), bisect_right(starts, run.before) - 1
        for lost, low, high in known.others(run):
            least = _least(lost)
            number = with_room(max(first, low))
            while number <= min(last, high) and room[number] < least:
                number = with_room(number + 1)
            first = min(number, last, high)
            lost_in_ranges[first].unplaced.append(lost)
            room[first] -= least


def _least(lost: LostRecord) -> int:
    return RECORD_SIZE_MIN + len(lost.topic)


class _Placed:
    """Queue offsets of records with known places, with the numbers of their ranges."""

    def __init__(self, lost_in_ranges: Iterable[LostInRange]) -> None:
        columns: defaultdict[QueueKey, tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
        for number, losses in enumerate(lost_in_ranges):
            for record in (*losses.placed, *losses.unplaced):
                for queue, first, end in record.standings:
                    offsets, numbers = columns[queue]
                    offsets.extend(range(first, end))
                    numbers.extend([number] * (end - first))
        self._columns: dict[QueueKey, tuple[Any, Any]] = {}
        for queue, (offsets, numbers) in columns.items():
            unique, at = np.unique(np.frombuffer(offsets, np.int64), return_index=True)
            self._columns[queue] = unique, np.frombuffer(numbers, np.int64)[at]

    def others(self, run: MissingRun) -> Iterator[tuple[LostRecord, int, int]]:
        """Records of a run that are none of those, each with the numbers of the first and last range
        that may hold it.

        They lie after the record of their queue before them, and before the next one.
        """
        topic, queue_id, is_batch = run.queue
        known, numbers = self._columns.get((topic, queue_id), (_EMPTY, _EMPTY))
        low, high = np.searchsorted(known, (run.first, run.first + run.length)).tolist()
        if is_batch:
            # How the missing messages were spread over records nobody knows; one record keeps the queue's offsets too.
            if low == high or known[low] != run.first:
                yield LostRecord(topic, queue_id, run.first, batch_size=run.length), 0, sys.maxsize
            return
        missing = np.setdiff1d(np.arange(run.first, run.first + run.length), known[low:high])
        for queue_offset, at in zip(missing.tolist(), np.searchsorted(known, missing).tolist(), strict=True):
            first = int(numbers[at - 1]) if at > 0 else 0
            last = int(numbers[at]) if at < known.size else sys.maxsize
            yield LostRecord(topic, queue_id, queue_offset), first, last


def _of_head(head: Record, restored: bytes | None) -> LostRecord | None:
    """The record of a header; None where it is in no queue."""
    if head.sys_flag & system_flag.TRANSACTION_MASK in (
        system_flag.TRANSACTION_PREPARED,
        system_flag.TRANSACTION_ROLLBACK,
    ):
        return None
    properties = head.properties
    names, offsets = (properties.get(name, "").split(",") for name in (MULTI_DISPATCH, MULTI_QUEUE_OFFSET))
    further = tuple(
        (name.encode("utf-8", "replace"), int(number))
        for name, number in zip(names, offsets, strict=False)
        if name and number.isascii() and number.isdigit()
    )
    base, count = properties.get(INNER_BASE, ""), properties.get(INNER_COUNT, "")
    is_batch = all(text.isascii() and text.isdigit() for text in (base, count))
    return LostRecord(
        head.topic_raw,
        head.queue_id,
        int(base) if is_batch else head.queue_offset,
        further,
        int(count) if is_batch else None,
        head.place.physical_offset,
        head.size,
        head,
        restored,
    )


def _one_of(claims: Sequence[LostRecord]) -> LostRecord | None:
    """The one record that units of several queues point to; None where they contradict each other.

    Further queues of which several units point to it are left out.
    """
    own = [record for record in claims if not record.topic.startswith(_LMQ)] or [claims[0]]
    if len({record.size for record in claims}) > 1 or len(own) > 1:
        return None
    others = [(record.topic, record.queue_offset) for record in claims if record is not own[0]]
    times = Counter(record.topic for record in claims)
    return replace(own[0], further=tuple(name for name in others if times[name[0]] == 1))


# Lost records that only units of light queues tell of: each had a queue of its own too, in which the log has gaps.


def add_own_queues(claims: Sequence[list[LostRecord]], missing: Sequence[MissingRun]) -> None:
    """Give records of light queues the queue offsets that are missing around them, in log order.

    A broker writes to a light queue no record that has no other queue. Which of several queues a record had nobody
    knows; it is enough that the order in each of them is that of the log.

    Args:
        claims: per range, the records whose places are known, which are replaced.
        missing: see `QueueOrder`.
    """
    slots = [
        (records, at)
        for records in claims
        for at, record in enumerate(records)
        if record.head is None and record.topic.startswith(_LMQ)
    ]
    if not slots:
        return
    places = [records[at].place[0] for records, at in slots]
    known: defaultdict[QueueKey, list[tuple[int, int]]] = defaultdict(list)
    for records in claims:
        for record in records:
            known[record.topic, record.queue_id].append((record.queue_offset, record.place[0]))
    for run in missing:
        if run.is_further or run.queue[2]:
            continue
        topic, queue_id, _ = run.queue
        rows, low = known[topic, queue_id], run.behind
        for queue_offset in range(run.first, run.first + run.length):
            row = bisect_left(rows, (queue_offset, 0))
            if row < len(rows) and rows[row][0] == queue_offset:
                continue
            low = max(low, rows[row - 1][1] if row else -1)
            slot = bisect_right(places, low)
            if slot == len(places) or places[slot] >= min(run.before, rows[row][1] if row < len(rows) else sys.maxsize):
                continue
            low, (records, at) = places.pop(slot), slots.pop(slot)
            light = records[at]
            further = ((light.topic, light.queue_offset), *light.further)
            records[at] = replace(
                light, topic=topic, queue_id=queue_id, queue_offset=queue_offset, further=further, has_unit=False
            )


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
    queues: defaultdict[QueueKey, list[_Claim]] = defaultdict(list)
    for records in fitting:
        for record in records:
            for queue, first, end in record.standings:
                queues[queue].append((id(record), queue, first, end))
    # The most claims whose queue offsets rise along the log, for each queue.
    rising = {claim for claims_of_queue in queues.values() for claim in _rising(claims_of_queue)}
    for records in fitting:
        yield [one for record in records if (one := _kept(record, rising)) is not None]


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
        is_further = name[0].startswith(_LMQ) or any(row[3] for row in rows)
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
    """Evidence of good records about claims, one by one.

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
        """True if a record's own queue has room for it at its offset."""
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
        """True if the log has room for a claim: between good records of its queue, none of which is that message."""
        chain = self._around.chains.get(name, [])
        number = bisect_right(chain, first, key=lambda stretch: stretch.first)
        if number and (chain[number - 1].end > first or chain[number - 1].last_place > at):
            return False
        return number == len(chain) or (at < chain[number].place and end <= chain[number].first)

    def _is_likely(self, record: LostRecord, damaged: DamagedRange) -> bool:
        """True if a damaged record probably was where its header alone says."""
        assert record.head is not None
        queue, first = (record.topic, record.queue_id), record.queue_offset
        runs = self._runs.get(queue, [])
        at = bisect_right(runs, first, key=lambda run: run.first) - 1
        if (runs[at] if at >= 0 and runs[at].has(first) else None) is not None:
            return True
        chain = self._around.chains.get((*queue, record.batch_size is not None))
        if chain and chain[-1].end <= first <= chain[-1].end + damaged.length // RECORD_SIZE_MIN:
            return True
        count = bisect_right(self._behind, damaged.start)
        competes = count > 0 and self._before[count - 1] >= damaged.end
        return not competes and record.head.physical_offset == record.physical_offset and record.queue_id >= 0


_Claim = tuple[int, QueueKey, int, int]
"""Id of a record, a queue, and the first queue offset and the end of what the record says to be there."""


def _kept(record: LostRecord, claims: AbstractSet[_Claim]) -> LostRecord | None:
    """A record in those further queues in which its claim is kept; None where that in its own queue is not."""
    own, *rows = [(id(record), *row) in claims for row in record.standings]
    if not own:
        return None
    further = tuple(name for name, is_kept in zip(record.further, rows, strict=True) if is_kept)
    return record if further == record.further else replace(record, further=further)


def _rising(claims: Sequence[_Claim]) -> list[_Claim]:
    """Longest part of one queue's claims in which none begins before the one before it ends."""
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

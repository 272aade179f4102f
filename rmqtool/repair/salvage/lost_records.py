"""Which messages a damaged range held: told by headers that are still whole, by queue units, by gaps in the queues."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rmqtool.engine.reading.record import Record, decode_record
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.segments.log import Log
from rmqtool.errors import UnreadableError
from rmqtool.findings.account import Account
from rmqtool.formats import system_flag
from rmqtool.formats.commitlog import RECORD_SIZE_MIN
from rmqtool.formats.properties import INNER_BASE, INNER_COUNT, MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from rmqtool.formats.queue_name import QueueKey, topic_bytes
from rmqtool.repair.salvage.damage_context import DamageContext
from rmqtool.repair.salvage.damaged_ranges import DamagedRange, Unit, UnitsInRanges
from rmqtool.repair.salvage.header_repair import restored
from rmqtool.repair.salvage.lost_record import LostRecord
from rmqtool.repair.salvage.placement import missing_before_claims, placeable
from rmqtool.store.directory import QueueFiles, Store
from rmqtool.verify.match.queue_order import MissingRun
from rmqtool.verify.survey.queue_map import QueueMap
from rmqtool.verify.survey.queue_pass import QueuePass

if TYPE_CHECKING:
    from rmqtool.repair.salvage.lost_record import LostRecord


_LMQ: Final = LMQ_PREFIX.encode()
_EMPTY: Final = np.empty(0, np.int64)


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
            record_crc: whether the store writes whole-record CRCs.

        Raises:
            UnreadableError: a file of a queue may not be opened.
        """
        self._store, self._log, self._record_crc = store, log, record_crc
        minimum = store.log_start
        self._queues = [
            *self._mapped(store.queues.values(), store.consumequeue_file_size, minimum, is_batch=False),
            *self._mapped(store.batch_queues.values(), store.batch_file_size, minimum, is_batch=True),
        ]
        self._units = UnitsInRanges(self._queues, store.view.open, ranges)

    def heads_and_units(self, damaged: DamagedRange) -> list[LostRecord]:
        """The records of a range whose places are known, in order."""
        return list(self._placed(damaged))

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
        """Whether a queue has a record at a place.

        Raises:
            UnreadableError: the queue cannot be read.
        """
        return any(
            int(unit["physical_offset"]) == physical_offset
            for queue in self._queues
            if (queue.topic, queue.queue_id, queue.is_batch) == (topic, queue_id, False)
            for unit in queue.read(self._store.view.open, queue_offset, queue_offset + 1)[1]
        )

    def _mapped(self, queues: Iterable[QueueFiles], size: int, minimum: int, *, is_batch: bool) -> Iterator[QueueMap]:
        for files in queues:
            one = QueuePass(files, is_batch, size, self._store.commitlog_file_size, minimum, Account())
            yield one.run(self._store.view.open)

    # What headers and units say

    def _placed(self, damaged: DamagedRange) -> Iterator[LostRecord]:
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
                yield record
                end = record.place[1]
                following = end if end < damaged.end else None

    def _at(self, damaged: DamagedRange, start: int, unit: LostRecord | None) -> LostRecord | None:
        """The record at a place, by its header if that is whole, else by its unit."""
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
        """Whether the record itself lies where a header says that it lies."""
        place = self._log.place(head.physical_offset)
        try:
            record = decode_record(self._log, place) if place is not None else None
        except UnreadableError:
            return False
        return record is not None and _identity(record) == _identity(head)

    def _head(self, damaged: DamagedRange, start: int, known_size: int | None) -> tuple[Record | None, bytes | None]:
        """The header of a record all of whose lengths agree, and that ends inside the range; its bytes if restored."""
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
        claims: defaultdict[int, list[tuple[QueueMap, LostRecord]]] = defaultdict(list)
        for queue, place, unit in self._units.between(damaged.start, limit):
            start, size = unit[0], unit[1]
            if size >= RECORD_SIZE_MIN and start + size <= limit:
                claims[start].append((queue, _of_unit(queue, place, unit)))
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
    """The queue offsets of records whose places are known, with the numbers of their ranges."""

    def __init__(self, lost_in_ranges: Iterable[LostInRange]) -> None:
        columns: defaultdict[QueueKey, tuple[array[int], array[int]]] = defaultdict(lambda: (array("q"), array("q")))
        for number, losses in enumerate(lost_in_ranges):
            for record in (*losses.placed, *losses.unplaced):
                for queue, first, end in record.standings:
                    offsets, numbers = columns[queue]
                    offsets.extend(range(first, end))
                    numbers.extend([number] * (end - first))
        self._columns = {queue: _sorted(*one) for queue, one in columns.items()}

    def others(self, run: MissingRun) -> Iterator[tuple[LostRecord, int, int]]:
        """Records of a run that are none of those, each with the numbers of the first and last range that may hold it.

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


def _sorted(queue_offsets: array[int], numbers: array[int]) -> tuple[Any, Any]:
    unique, at = np.unique(np.frombuffer(queue_offsets, np.int64), return_index=True)
    return unique, np.frombuffer(numbers, np.int64)[at]


def _identity(record: Record) -> tuple[int, bytes, int, int]:
    """What no two records of a log have in common."""
    return record.physical_offset, record.topic_raw, record.queue_id, record.queue_offset


def _of_head(head: Record, restored: bytes | None) -> LostRecord | None:
    """The record that a header tells of; None where it stands in no queue."""
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


def _of_unit(queue: QueueMap, place: int, unit: Unit) -> LostRecord:
    physical_offset, size, base, count = unit
    return LostRecord(
        topic_bytes(queue.topic),
        queue.queue_id,
        base if queue.is_batch else place,
        batch_size=count if queue.is_batch else None,
        physical_offset=physical_offset,
        size=size,
        has_unit=True,
    )


def _one_of(claims: list[tuple[QueueMap, LostRecord]]) -> LostRecord | None:
    """The one record that units of several queues point to; None where they contradict each other.

    Further queues of which several units point to it are left out.
    """
    own = [record for _, record in claims if not record.topic.startswith(_LMQ)] or [claims[0][1]]
    if len({record.size for _, record in claims}) > 1 or len(own) > 1:
        return None
    others = [(record.topic, record.queue_offset) for _, record in claims if record is not own[0]]
    times = Counter(record.topic for _, record in claims)
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
        if record.head is None and record.topic.startswith(LMQ_PREFIX.encode())
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

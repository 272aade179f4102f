"""Fills a damaged range without a gap: lost records at their places or packed, bridges over the rest, a blank last.

Spec, "What a repair leaves". The record that replaces a lost one is a tombstone, so that every queue keeps its offsets
whoever builds it again: an ordinary record of the lost one's topic, queue and queue offset without keys. A bridge, over
what nobody can attribute, is a ROLLBACK record, which stands in no queue.

Which of the lost records stood in a further queue (multi-dispatch) nobody knows where only the gaps in that queue tell
of them; it is enough that the order in each queue is that of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from rmqtool.engine.append.encoder import RecordColumns, encode_blank, encode_records, record_size, topic_part
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import LMQ_PREFIX, is_kept_out
from rmqtool.formats import properties, system_flag
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, RECORD_SIZE_MIN
from rmqtool.formats.queue_name import QueueKey, topic_text
from rmqtool.formats.record_crc import PROPERTY_SIZE
from rmqtool.formats.tombstone import TOMBSTONE, TOMBSTONE_TAG, TOMBSTONE_TOPIC
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.repair.salvage.lost_records import LostInRange, LostRecord
from rmqtool.verify.match.queue_order import MissingRun

RESENT: Final = frozenset({properties.SCHEDULE_TOPIC, properties.HALF_TOPIC})
"""Topics whose messages the broker itself sends on to `REAL_TOPIC`, and is stuck at one that does not name it."""
_RESENT: Final = frozenset(map(str.encode, RESENT))
_HOST: Final = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
_SHORT_TOPIC: Final = b"-"
_TAG: Final = f"{properties.TAGS}\x01{TOMBSTONE_TAG}".encode()

BRIDGE_MAX: Final = 4 << 20
"""Bytes of one record over what nobody can attribute: older brokers allocate the size of each that they check."""

PIECES_MAX: Final = 10_000
WRITTEN_MAX: Final = 16 << 20
"""Bytes of records that are written together."""

Least = Callable[[LostRecord | None], int]
"""Bytes that the record that replaces a lost one takes at least; None asks for a bridge."""


@dataclass(frozen=True, slots=True)
class Filling:
    """Physical offsets [start, end), and their new content: a tombstone of a lost record, a bridge, or a blank."""

    start: int
    end: int
    lost: LostRecord | None = None
    is_blank: bool = False

    @property
    def length(self) -> int:
        return self.end - self.start


def lay_out(damaged: DamagedRange, losses: LostInRange, least: Least) -> list[Filling] | None:
    """Pieces that lie side by side and fill the range; after the last filling of the log's last range nothing follows.

    Where the places that units alone tell leave no room between them for a message of the same queue, they are wrong,
    or one of them is: the records of that queue are packed then, in the order of their queue offsets.

    Returns:
        None where the range is too short for a record or a blank, and no neighbor can be lengthened.
    """
    layout = _Layout(damaged, losses, least)
    fillings = layout.run()
    while layout.left and (packed := _without_places(losses, set(layout.left))) is not None:
        other = _Layout(damaged, packed, least)
        other_fillings = other.run()
        if other_fillings is None or len(other.left) >= len(layout.left):
            break
        losses, layout, fillings = packed, other, other_fillings
    return fillings


def _without_places(losses: LostInRange, queues: AbstractSet[QueueKey]) -> LostInRange | None:
    """The losses with the records of some queues among the unplaced, but those whose headers have an
    offset; else None.

    Records that stand in one further queue with them go along. What had a place keeps its order.
    """
    joined = set(queues)
    further = [{queue for queue, *_ in lost.standings} for lost in losses.placed if lost.further]
    while more := [row for row in further if not joined.isdisjoint(row) and not row <= joined]:
        joined.update(*more)
    moved = [lost for lost in losses.placed if lost.head is None and (lost.topic, lost.queue_id) in joined]
    if not moved:
        return None
    offsets: defaultdict[QueueKey, list[tuple[int, int]]] = defaultdict(list)
    for number, lost in enumerate(moved):
        for queue, first, _ in lost.standings:
            offsets[queue].append((first, number))
    ordered = [(number, 1, lost) for number, lost in enumerate(moved)]
    others: list[LostRecord] = []
    for lost in losses.unplaced:
        rows = offsets[lost.topic, lost.queue_id]
        if not rows:
            others.append(lost)
            continue
        at = bisect_right(rows, (lost.queue_offset, len(moved)))
        ordered.append((rows[at][1] if at < len(rows) else len(moved), 0, lost))
    ordered.sort(key=lambda row: row[:2])
    ids = set(map(id, moved))
    placed = [lost for lost in losses.placed if id(lost) not in ids]
    return LostInRange(placed, [*(lost for *_, lost in ordered), *others])


class _Layout:
    """One run of `lay_out`.

    Attributes:
        left: the queue of each record that no filling stands for, once it ran.
    """

    def __init__(self, damaged: DamagedRange, losses: LostInRange, least: Least) -> None:
        self._damaged, self._casualties, self._least = damaged, losses, least
        self._waiting = _Waiting(losses.unplaced, losses.placed)
        self._fillings: list[Filling] = []
        self._at = damaged.start
        self.left: list[QueueKey] = []

    def run(self) -> list[Filling] | None:
        damaged = self._damaged
        file_end = damaged.file_start + damaged.file_size
        limit = damaged.end if damaged.end < file_end else file_end - BLANK_SIZE_MIN
        for lost in self._casualties.placed:
            start, stop = lost.place
            is_inside = self._at <= start and stop <= (file_end - BLANK_SIZE_MIN if damaged.is_last else limit)
            if is_inside and stop - start >= self._least(lost):
                self._fill(start, to_end=True)
                self._add(stop, lost)
            else:
                self.left.append((lost.topic, lost.queue_id))
            for queue, *_ in lost.standings:
                self._waiting.coming[queue].popleft()
        self._fill(max(self._at, limit), to_end=damaged.end < file_end and not damaged.is_last)
        self.left += self._waiting.left()
        if damaged.reaches_file_end:
            if damaged.end - self._at < BLANK_SIZE_MIN:
                return None
            self._fillings.append(Filling(self._at, damaged.end, is_blank=True))
        return self._joined()

    def _add(self, end: int, lost: LostRecord | None = None) -> None:
        self._fillings.append(Filling(self._at, end, lost))
        self._at = end
        if lost is not None:
            self._waiting.note(lost)

    def _fill(self, end: int, *, to_end: bool) -> None:
        """Pack records that have no place of their own; the last one, or a bridge, takes the rest."""
        if end - self._at >= RECORD_SIZE_MIN:
            placements = list(self._waiting.take(self._at, end, self._least))
            for number, (lost, stop) in enumerate(placements):
                is_last = to_end and number == len(placements) - 1 and end - self._at <= BRIDGE_MAX
                self._add(end if is_last else stop, lost)
        while to_end and self._at < end:
            self._add(end if end - self._at <= BRIDGE_MAX else self._at + BRIDGE_MAX // 2)

    def _joined(self) -> list[Filling] | None:
        """The fillings, those that are too short for a record given to a neighbor."""
        fillings: list[Filling] = []
        short: Filling | None = None
        for filling in self._fillings:
            piece = filling if short is None else replace(filling, start=short.start)
            short = None
            if piece.is_blank or piece.length >= self._least(piece.lost):
                fillings.append(piece)
            elif fillings and not fillings[-1].is_blank:
                fillings[-1] = replace(fillings[-1], end=piece.end)
            else:
                short = piece
        return None if short is not None else fillings


class _Waiting:
    """Records without a place, by their queues; the first ones come first."""

    def __init__(self, records: Sequence[LostRecord], placed: Sequence[LostRecord]) -> None:
        self._queues: defaultdict[QueueKey, deque[tuple[int, LostRecord]]] = defaultdict(deque)
        for number, record in enumerate(records):
            self._queues[record.topic, record.queue_id].append((number, record))
        self._first = [(numbered_records[0][0], queue) for queue, numbered_records in self._queues.items()]
        heapify(self._first)
        self._laid: dict[QueueKey, int] = {}
        self._passed_over: list[QueueKey] = []
        self.coming: defaultdict[QueueKey, deque[int]] = defaultdict(deque)
        """Queue offsets of the records that have a place farther on."""
        for record in placed:
            for queue, first, _ in record.standings:
                self.coming[queue].append(first)

    def left(self) -> Iterator[QueueKey]:
        """The queue of each record that still waits, or was skipped."""
        yield from self._passed_over
        for queue, records in self._queues.items():
            yield from [queue] * len(records)

    def note(self, laid: LostRecord) -> None:
        """Remember a record that was laid: no record of its queue comes after it with a lower queue offset."""
        for queue, first, _ in laid.standings:
            self._laid[queue] = first

    def take(self, start: int, end: int, least: Least) -> Iterator[tuple[LostRecord, int]]:
        """Take records for as long as they fit into [start, end), each with the place where it may end.

        Only lower queue offsets go before the records of their queue that have a place farther on.
        """
        held: list[tuple[int, QueueKey]] = []
        while self._first:
            number, queue = heappop(self._first)
            record = self._queues[queue][0][1]
            coming = self.coming[queue]
            if coming and record.queue_offset >= coming[0]:
                held.append((number, queue))
                continue
            if record.queue_offset >= self._laid.get(queue, 0):
                start += least(record)
                if start > end:
                    held.append((number, queue))
                    break
                self.note(record)
                yield record, start
            else:
                self._passed_over.append(queue)
            self._queues[queue].popleft()
            if self._queues[queue]:
                heappush(self._first, (self._queues[queue][0][0], queue))
        for entry in held:
            heappush(self._first, entry)


def parts_of(fillings: Sequence[Filling]) -> Iterator[Sequence[Filling]]:
    """Pieces that are encoded and written together; their bodies are held in memory."""
    first = 0
    for number in range(1, len(fillings) + 1):
        is_end = number == len(fillings)
        if is_end or number - first >= PIECES_MAX or fillings[number].end - fillings[first].start > WRITTEN_MAX:
            yield fillings[first:number]
            first = number


@dataclass(frozen=True)
class TombstoneEncoder:
    """Makes the records of one store.

    Attributes:
        record_crc: whether the store writes whole-record CRCs, without which some brokers end the log.
    """

    rules: BrokerRules
    record_crc: bool = False

    def least(self, lost: LostRecord | None) -> int:
        """Bytes that the record that replaces a lost one takes at least; None asks for a bridge."""
        if lost is None:
            return self._size(_SHORT_TOPIC, b"")
        return self._size(lost.topic, self._required(lost))

    def records(self, fillings: Sequence[Filling], store_timestamp_ms: int) -> bytes:
        """The bytes of fillings that lie side by side; of a blank, the last one, those that count."""
        blank = fillings[-1] if fillings[-1].is_blank else None
        stand_ins = [filling for filling in fillings if not filling.is_blank]
        encoded = self._encoded(stand_ins, store_timestamp_ms) if stand_ins else b""
        return encoded if blank is None else encoded + encode_blank(blank.length)

    def _encoded(self, fillings: Sequence[Filling], time_ms: int) -> bytes:
        texts = [self._texts(filling) for filling in fillings]
        lost = [filling.lost for filling in fillings]
        times = [time_ms] * len(fillings)
        columns = RecordColumns(
            topics=[topic_part(topic, writes_v2=self.rules.reads_v2) for topic, _ in texts],
            bodies=[bytes(filling.length - self._size(*text)) for filling, text in zip(fillings, texts, strict=True)],
            properties=[block for _, block in texts],
            queue_ids=[record.queue_id if record is not None else 0 for record in lost],
            flags=[0] * len(fillings),
            queue_offsets=[record.queue_offset if record is not None else 0 for record in lost],
            sys_flags=[0 if record is not None else system_flag.TRANSACTION_ROLLBACK for record in lost],
            born_timestamps_ms=times,
            born_hosts=[_HOST] * len(fillings),
            store_timestamps_ms=times,
            store_hosts=[_HOST] * len(fillings),
            reconsume_times=[0] * len(fillings),
            prepared_transaction_offsets=[TOMBSTONE] * len(fillings),
            with_record_crc=[self.record_crc] * len(fillings),
        )
        return bytes(encode_records(columns, columns.sizes(), fillings[0].start))

    def _texts(self, filling: Filling) -> tuple[bytes, bytes]:
        """Topic and properties of the record for a filling, the tag among them where there is room."""
        if filling.lost is None:
            topic = TOMBSTONE_TOPIC.encode()
            return (topic if self._size(topic, b"") <= filling.length else _SHORT_TOPIC), b""
        topic, required = filling.lost.topic, self._required(filling.lost)
        block = _TAG + b"\x02" + required if required or self._ends_open else _TAG
        return topic, block if self._size(topic, block) <= filling.length else required

    def _required(self, lost: LostRecord) -> bytes:
        if not lost.further and lost.batch_size is None and lost.topic not in _RESENT:
            return b""
        named: dict[str, str] = {}
        topic = topic_text(lost.topic)
        if topic in RESENT:
            named |= {properties.REAL_TOPIC: TOMBSTONE_TOPIC, properties.REAL_QUEUE_ID: "0"}
        if topic == properties.SCHEDULE_TOPIC:
            named[properties.DELAY_LEVEL] = str(lost.queue_id + 1)
        if lost.batch_size is not None:
            named |= {properties.INNER_BASE: str(lost.queue_offset), properties.INNER_COUNT: str(lost.batch_size)}
        if lost.further:
            named[properties.MULTI_DISPATCH] = ",".join(name.decode("utf-8", "replace") for name, _ in lost.further)
            named[properties.MULTI_QUEUE_OFFSET] = ",".join(str(number) for _, number in lost.further)
        return properties.encode_properties(named, trailing_separator=self._ends_open)

    @property
    def _ends_open(self) -> bool:
        """True if a separator follows the last property; a whole-record CRC after it needs one."""
        return self.rules.trailing_separator or self.record_crc

    def _size(self, topic: bytes, block: bytes) -> int:
        part = topic_part(topic, writes_v2=self.rules.reads_v2)
        crc = PROPERTY_SIZE if self.record_crc else 0
        return record_size(len(part), 0, len(block) + crc, 2 * len(_HOST))


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
    """Lost records in the order in which they are laid, and the room for the names of further queues."""

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
        """Let records name the queue offsets missing in one gap of a queue; return the runs with too few records."""
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
    lists = (losses.placed, losses.unplaced)
    places = {id(record): (records, at) for records in lists for at, record in enumerate(records)}
    fillings = lay_out(damaged, losses, least) or ()
    for position, lost in enumerate(filling.lost for filling in fillings if filling.lost is not None):
        yield _Slot(number, position, *places[id(lost)])

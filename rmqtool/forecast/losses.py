"""Losses of a start: messages that are intact in the log now and not served afterwards, and damage that stays.

The log is scanned as the judge sees it, after damage too. A message counts as served if a unit of its queue, between
minimum and maximum, points to it with room for it, and its bytes lie inside the log (`DefaultMessageStore#getMessage`).

A message of a deleted topic is not lost by a start: somebody removed it. That is so of all that is not served of a
topic which the whole configuration does not have, and of what lies before the place in the log where a queue of the
topic began again. Where that is, the queues tell as they are before the start, for it may cut them; of a topic without
a unit the order of its records does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.derived_writer import QUEUES
from rmqtool.engine.dispatch.placed_messages import QUESTION
from rmqtool.engine.dispatch.queue_entries import EntryExtractor, QueueEntries, batch_bytes
from rmqtool.engine.queues.stored_units import StoredUnits
from rmqtool.engine.reading.record import SingleRecord, decode_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import is_deletable, is_deleted
from rmqtool.engine.segments.log import RecordLocation
from rmqtool.errors import UnreadableError
from rmqtool.forecast.record_arrays import RecordArrays
from rmqtool.forecast.result import ServedDamage
from rmqtool.forecast.served_units import ServedUnits, file_numbers, served_by_queue
from rmqtool.forecast.simulate import Simulation
from rmqtool.formats import system_flag
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import QueueName
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.memory import memory_budget
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, ScanOptions, open_log
from rmqtool.scan.row_columns import kept_rows, message_rows
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import Segment
from rmqtool.store.source import read_range
from rmqtool.store.view import StoreView

MISSED_MAX: Final = 2_000_000
"""Records that are looked for elsewhere than at their place together."""
MISSED_BYTES: Final = 64
"""Memory for such a record."""
HIGHEST_MAX: Final = 1 << 20
HIGHEST_BYTES: Final = 192
"""Queue offsets that are kept of clean files without a limit, and what one takes."""
STEPS_MAX: Final = 10_000
"""Records of a topic that step back and are kept in mind."""
_SERVED_AS_IT_IS: Final = frozenset(set(FINDING_IDS) - {Verdict.STALE})


@dataclass
class LossReport:
    """Counted losses."""

    messages: int = 0
    bytes: int = 0
    by_topic: Counter[str] = field(default_factory=Counter)
    unindexed: int = 0
    damage: list[ServedDamage] = field(default_factory=list)
    damage_count: int = 0
    highest: dict[QueueName, int] = field(default_factory=dict)
    """Highest queue offset of a message in the log, by queue; not of topics with removed messages."""
    removed: Counter[str] = field(default_factory=Counter)
    """Messages of deleted topics that are not served, by topic."""


class CleanFiles:
    """Files of the log of which a start loses nothing.

    Attributes:
        lock: who counts holds it, so that no file is counted twice at once.
        highest: the highest queue offset by queue, of each file with all that its losses depend on.
        room: how many more of them are kept: each file may have each queue.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.highest: dict[Hashable, dict[QueueName, int]] = {}
        self.room = memory_budget().share(HIGHEST_MAX * HIGHEST_BYTES, 16) // HIGHEST_BYTES


class LossCounter:
    """Counts over the log as it is before the start."""

    def __init__(self, simulation: Simulation, clean: CleanFiles | None = None, depends_on: Hashable = None) -> None:
        """The simulation must have run.

        Args:
            clean: files of the log that need not be counted again.
            depends_on: all that losses of a file of the log depend on.
        """
        log, store, options = simulation.log, simulation.store, simulation.options
        assert log is not None
        kept, self._log_end = log.segments, log.end
        self._log_minimum = min((segment.start for segment in kept), default=0)
        self._kept = {segment.path for segment in kept}
        # Only where names overlap is another file read than the one whose name says that it holds an offset.
        in_order = sorted(kept, key=lambda segment: segment.start)
        self._overlapping = kept if any(second.start < first.end for first, second in pairwise(in_order)) else ()
        self._simulation, self._stored = simulation, StoredUnits(store)
        self._served = served_by_queue(simulation.queues, self._log_minimum)
        self._index = simulation.index if options.enters_index else None
        self._unserved: dict[str, _Unserved] = {}
        self._order = _Order()
        self._missed: defaultdict[QueueName, list[RecordArrays]] = defaultdict(list)
        self._missed_count = 0
        self._clean = CleanFiles() if clean is None or store.extensions else clean
        self._depends_on = depends_on
        self._highest: dict[QueueName, int] = {}
        self._is_clean = True
        self.losses = LossReport()

    def count(self, segments: Sequence[Segment]) -> LossReport:
        """Scan files of the log; an `UnreadableError` if one may not be opened."""
        simulation, view = self._simulation, self._simulation.store.view
        scan = ScanOptions(
            simulation.options.delays_ms,
            simulation.options.record_crc,
            block_size=DISPATCH_BLOCK_SIZE,
            cache=simulation.options.cache,
            columns_only=not simulation.options.enters_index,
        )
        by_start = {segment.start: segment for segment in segments}  # of two files of one start, one counts
        with open_log(view.open, by_start.values(), scan) as table:
            for split in table.splits:
                identity = split.source.identity
                key = identity, split.physical_offset, split.more_follows, self._depends_on
                segment = by_start[split.physical_offset]
                highest = self._clean.highest.get(key)
                if highest is None:
                    highest = self._placed_highest(split, segment, table.scan)
                if highest is None:
                    self._highest, self._is_clean = {}, identity is not None
                    self._count_file(segment, table.batches(split))
                    highest = self._highest
                    if self._is_clean and len(highest) <= self._clean.room:  # else it is counted again
                        self._clean.room -= len(highest)
                        self._clean.highest[key] = highest
                split.source.close()
                for name, offset in highest.items():
                    self.losses.highest[name] = max(self.losses.highest.get(name, -1), offset)
            self._look_anywhere()
        losses = self.losses
        for topic, unserved in self._unserved.items():
            end: int | None = None  # a deleted topic has no route, whatever its queues have
            if not is_deleted(topic, simulation.whole_topics):
                says_place = partial(_says_its_place, simulation.rules, view, by_start)
                end = 0
                if simulation.tells_generations and is_deletable(topic):
                    end = unserved.starts_again(self._order.begins.get(topic, 0), says_place)
            removed, lost, lost_bytes = unserved.divided(end)
            if removed:
                losses.removed[topic] = removed
                for name in [name for name in losses.highest if name[0] == topic]:
                    del losses.highest[name]
            if lost:
                losses.messages += lost
                losses.bytes += lost_bytes
                losses.by_topic[topic] += lost
        return losses

    def _placed_highest(self, split: Split, segment: Segment, options: ScanOptions) -> dict[QueueName, int] | None:
        """Highest queue offsets in a file of which all units were seen, and are served; None for any other file."""
        if self._index is not None or self._overlapping or segment.path not in self._kept:
            return None
        count, end = options.known_messages(split) or (-1, 0)
        if options.cache is None or count < 0 or segment.start + end > self._log_end:
            return None
        seen = options.cache.notes.get(((split.source.identity, split.physical_offset), QUESTION))
        for placed, contents in ((self._simulation.entered.get(segment.start), None), (seen, seen and seen.contents)):
            if placed is None or placed.count != count:
                continue
            highest: dict[QueueName, int] = {}
            for (topic, queue_id), (low, high) in placed.spans.items():
                name = decode_java_utf8(topic), queue_id
                served = self._served.get(name)
                if not isinstance(served, ServedUnits) or not served.has_span(low, high, contents):
                    break
                highest[name] = max(high, highest.get(name, -1))
            else:
                return highest
        return None

    def _count_file(self, segment: Segment, batches: Iterable[Batch]) -> None:
        chunk = EntryExtractor(self._simulation.settings)
        for batch in batches:
            rows = batch.as_array()
            for row in rows[rows["verdict"] != Verdict.GOOD] if segment.path in self._kept else ():
                verdict, physical_offset, length = (int(row[name]) for name in ("verdict", "physical_offset", "size"))
                if verdict not in _SERVED_AS_IT_IS or physical_offset >= self._log_end:
                    continue
                self._is_clean = False
                self.losses.damage_count += 1
                if len(self.losses.damage) < self._simulation.options.damage_max:
                    finding = FINDING_IDS[Verdict(verdict)]
                    self.losses.damage.append(ServedDamage(finding, segment.path, physical_offset, length))
            good = message_rows(rows)
            # What a repair replaced a lost message with is not missed.
            sent = kept_rows(good, good["prepared_transaction_offset"] != TOMBSTONE)
            if not sent.size:
                continue
            chunk.take(sent, batch.topics, batch_bytes(batch))
            if self._index is not None and segment.path in self._kept:
                is_after_end = sent["physical_offset"] + sent["size"] > self._log_end
                inside = sent[~is_after_end] if is_after_end.any() else sent
                keyed = (inside["unique_key_length"] > 0) | (inside["keys_length"] > 0)
                keyed &= (inside["sys_flag"] & system_flag.TRANSACTION_MASK) != system_flag.TRANSACTION_ROLLBACK
                unindexed = int((keyed & ~self._index.covered.contain(inside["physical_offset"])).sum())
                self._is_clean &= not unindexed
                self.losses.unindexed += unindexed
            if chunk.is_full:
                self._count_chunk(segment, chunk)
        self._count_chunk(segment, chunk)

    def _count_chunk(self, segment: Segment, chunk: EntryExtractor) -> None:
        own = [entries.some(entries.own) for entries in chunk.entries() if entries.own.any()]
        by_queue = [((decode_java_utf8(entries.topic), entries.queue_id), entries) for entries in own]
        for topic, place in self._order.take(by_queue):
            if topic in self._unserved:
                self._unserved[topic].split(place)
        for name, entries in by_queue:
            self._entries(name, entries, segment)
        chunk.clear()

    def _entries(self, name: QueueName, entries: QueueEntries, segment: Segment) -> None:
        highest = int((entries.queue_offsets + entries.batch_sizes - 1).max())
        self._highest[name] = max(self._highest.get(name, -1), highest)
        sizes = entries.record_sizes.astype(np.int64)
        places = RecordArrays(
            entries.physical_offsets,
            sizes,
            np.full_like(sizes, min(segment.end, self._log_end)),
            entries.batch_sizes.astype(np.int64),
            entries.queue_offsets,
        )
        served = self._served.get(name)
        if served is None or segment.path not in self._kept:
            self._miss(name, places)
            return
        if self._overlapping:
            numbers = file_numbers(self._overlapping, segment.size, places.physical_offsets)
            starts = np.array([other.start for other in self._overlapping], np.int64)
            is_read = starts[numbers] == segment.start  # of two with one start the other one may do as well
            self._miss(name, places.some(~is_read))
            entries = entries._replace(queue_offsets=entries.queue_offsets[is_read])
            places = places.some(is_read)
        missed = places
        if not entries.is_batch:
            is_served = served.has_at(entries.queue_offsets, places)
            if is_served.all():
                return
            missed = places.some(~is_served)
        inside = missed.physical_offsets + missed.sizes <= missed.limits
        self._miss(name, missed.some(~inside))
        if inside.any():
            self._is_clean = False
            self._missed[name].append(missed.some(inside))
            self._missed_count += int(inside.sum())
            if self._missed_count > memory_budget().share(MISSED_MAX * MISSED_BYTES, 8) // MISSED_BYTES:
                self._look_anywhere()

    def _look_anywhere(self) -> None:
        """Find the records that are not at their place, many at a time, since each search reads a whole queue."""
        for name, parts in self._missed.items():
            missed = RecordArrays(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            self._miss(name, missed.some(~self._served[name].has_anywhere(missed)))
        self._missed.clear()
        self._missed_count = 0

    def _miss(self, name: QueueName, places: RecordArrays) -> None:
        if not places.sizes.size:
            return
        self._is_clean = False
        topic, log_minimum = name[0], self._log_minimum
        if topic not in self._unserved:
            queue_ids = sorted({queue_id for other, queue_id in (*self._served, name) if other == topic})
            starts, in_store = list[LiveStart](), set[int]()
            for queue_id in queue_ids:
                stored = self._stored.live_start(f"{QUEUES}/{topic}/{queue_id}", log_minimum)
                units = self._served.get((topic, queue_id))
                entered = units.live_start(log_minimum) if units is not None else None
                both = [LiveStart(topic, queue_id, *start) for start in (stored, entered) if start is not None]
                starts += [max(both, key=lambda start: start.physical_offset)] if both else []
                in_store |= {queue_id} if stored is not None else set()
            unserved = _Unserved(starts, in_store)
            for place in self._order.steps_back[topic]:
                unserved.split(place)
            self._unserved[topic] = unserved
        self._unserved[topic].take(name[1], places)


class _Order:
    """Finds where topics begin again by the order of their records alone.

    A single record that steps back says nothing, for its header may be wrong: two have to follow each other. Where a
    queue shows it like this, single records of other queues are new too, if they lie behind the last old one.

    Attributes:
        begins: physical offset at which the last generation of a topic begins; only of those with more than one.
        steps_back: by topic where records lie that step back, the first ones.
    """

    def __init__(self) -> None:
        self.begins: dict[str, int] = {}
        self.steps_back: defaultdict[str, list[int]] = defaultdict(list)
        self._open: dict[QueueName, tuple[int, int]] = {}
        """Of a queue whose last record steps back: where it lies, and the one before it."""
        self._last: dict[QueueName, tuple[int, int]] = {}
        """Of each queue the queue offset that comes next, and where its last record lies."""
        self._begun: defaultdict[str, set[int]] = defaultdict(set)
        """Queues of the last generation that have begun again."""
        self._alone: defaultdict[str, dict[int, int]] = defaultdict(dict)
        """The last of these records of each queue."""

    def take(self, by_queue: Iterable[tuple[QueueName, QueueEntries]]) -> list[tuple[str, int]]:
        """Take the next records of all queues; return the topics and places where one steps back."""
        begins: list[tuple[int, QueueName]] = []
        steps_back: list[tuple[str, int]] = []
        old_ends: dict[str, int] = {}
        for name, entries in by_queue:
            topic, queue_id = name
            offsets, places = entries.queue_offsets, entries.physical_offsets
            next_offset, last_place = self._last.get(name, (0, -1))
            place, before = self._open.pop(name, (-1, -1))
            if place >= 0 and offsets[0] == next_offset:
                begins.append((place, name))
                old_ends[topic] = max(before, old_ends.get(topic, -1))
            expected = np.append(next_offset, (offsets + entries.batch_sizes)[:-1])
            goes_on = np.append(offsets[1:] == expected[1:], False)
            for at in np.flatnonzero(offsets < expected).tolist():
                place, before = int(places[at]), int(places[at - 1]) if at else last_place
                if len(self.steps_back[topic]) < STEPS_MAX:
                    self.steps_back[topic].append(place)
                    steps_back.append((topic, place))
                if goes_on[at]:
                    begins.append((place, name))
                    old_ends[topic] = max(before, old_ends.get(topic, -1))
                else:
                    self._alone[topic][queue_id] = place
                    if at == len(offsets) - 1:
                        self._open[name] = place, before
            self._last[name] = int(offsets[-1] + entries.batch_sizes[-1]), int(places[-1])
        for physical_offset, (topic, queue_id) in sorted(begins):
            if topic not in self.begins or queue_id in self._begun[topic]:
                alone = (at for at in self._alone[topic].values() if old_ends[topic] < at < physical_offset)
                self.begins[topic], self._begun[topic] = min(alone, default=physical_offset), set()
            self._begun[topic].add(queue_id)
        return steps_back


class LiveStart(NamedTuple):
    """The first unit of a queue that leads into the log: its queue offset, and where its record lies."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class _Unserved:
    """Messages of one topic that are not served, counted between the places where its queues start."""

    def __init__(self, starts: Iterable[LiveStart], in_store: AbstractSet[int]) -> None:
        """`in_store` are the queues with units before the start: these show where the topic began again."""
        self._in_store = in_store
        self._starts = sorted(starts, key=lambda start: start.physical_offset)
        self._places = np.array([start.physical_offset for start in self._starts], np.int64)
        self._counts = np.zeros((len(self._starts) + 1, 2), np.int64)
        """Messages and bytes before each start, and after the last one."""
        self._following = np.zeros(2, np.int64)
        """Messages and bytes that continue their queue."""
        self._again: set[LiveStart] = set()
        """Queues whose first place, or a later one, an older record had."""

    def take(self, queue_id: int, records: RecordArrays) -> None:
        """Take records of a queue; those after its first unit continue it, and were not removed."""
        counted = records
        start = next((start for start in self._starts if start.queue_id == queue_id), None)
        if start is not None and queue_id in self._in_store:
            follows = records.physical_offsets >= start.physical_offset
            counted, following = records.some(~follows), records.some(follows)
            self._following += following.message_counts.sum(), following.sizes.sum()
        parts = np.searchsorted(self._places, counted.physical_offsets, side="right")
        np.add.at(self._counts[:, 0], parts, counted.message_counts)
        np.add.at(self._counts[:, 1], parts, counted.sizes)
        if start is not None and start not in self._again:
            ends = records.queue_offsets + records.message_counts
            is_before = (records.physical_offsets < start.physical_offset) & (ends > start.queue_offset)
            if is_before.any():
                self._again.add(start)

    def split(self, physical_offset: int) -> None:
        """Count messages before and after a physical offset apart; none from there on has been taken yet."""
        number = int(np.searchsorted(self._places, physical_offset))
        self._places = np.insert(self._places, number, physical_offset)
        self._counts = np.insert(self._counts, number + 1, 0, axis=0)

    def starts_again(self, order_begin: int, says_its_place: Callable[[LiveStart], bool]) -> int:
        """Physical offset at which the first queue of the topic began again; 0 where none did.

        A queue begins at 0: where its first unit is a later one, the order tells where those before it are.

        Args:
            order_begin: where the order of the records shows the last generation to begin; 0 where it shows none.
        """
        first = next((start for start in self._starts if start in self._again and says_its_place(start)), None)
        if not self._in_store:
            return order_begin or (first.physical_offset if first is not None else 0)
        if first is None:
            return 0
        lacks_first = first.queue_offset > 0 and 0 < order_begin < first.physical_offset
        return order_begin if lacks_first else first.physical_offset

    def divided(self, end: int | None) -> tuple[int, int, int]:
        """Messages before a physical offset which nobody gets, None for all; the other messages, and their bytes."""
        if end is None:
            return int(self._counts[:, 0].sum() + self._following[0]), 0, 0
        before = int(np.searchsorted(self._places, end, side="left")) + 1 if end else 0
        lost, lost_bytes = (self._counts[before:].sum(axis=0) + self._following).tolist()
        return int(self._counts[:before, 0].sum()), lost, lost_bytes


def _says_its_place(rules: BrokerRules, view: StoreView, by_start: Mapping[int, Segment], start: LiveStart) -> bool:
    """True if the record of a unit confirms its place in this queue."""
    segment = next((one for one in by_start.values() if one.start <= start.physical_offset < one.end), None)
    if segment is None:
        return False
    at = start.physical_offset - segment.start
    place = RecordLocation(start.physical_offset, segment.path, at, segment.size - at)
    try:
        with closing(view.open(segment.path)) as source:
            read = SingleRecord(rules, lambda position, length: read_range(source, at + position, length))
            record = decode_record(read, place)
    except UnreadableError:
        return False
    return record is not None and start == (
        record.topic, record.queue_id, record.queue_offset, record.physical_offset
    )  # fmt: skip

"""What a start costs: messages that are intact in the log now and are not served afterwards, and damage that stays.

The log is scanned as the judge sees it, behind damage too. A message counts as served if a unit of its queue, between
minimum and maximum, points to it with room for it, and its bytes lie inside the log (`DefaultMessageStore#getMessage`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.entry_extractor import EntryExtractor
from rmqtool.engine.dispatch.queue_entries import DispatchSettings, QueueEntries, batch_bytes, message_rows
from rmqtool.engine.queues.batch_queue import BatchQueue
from rmqtool.forecast.batch_pull import pulled_units
from rmqtool.forecast.database_state import DatabaseQueueState, DatabaseServedUnits
from rmqtool.forecast.index_state import IndexState
from rmqtool.forecast.queue_state import QueueState
from rmqtool.forecast.record_arrays import Bools, Int64s, RecordArrays
from rmqtool.forecast.result import Lost, ServedDamage
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_MAX, unit_format
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.memory import memory_budget
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.log import ScanOptions, plan_segments, scan_log
from rmqtool.scan.row_columns import kept_rows
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.walk import Batch
from rmqtool.store.directory import Segment
from rmqtool.store.view import StoreView

BLOCK_UNITS: Final = 100_000
MISSED_MAX: Final = 2_000_000
"""Records that are looked for elsewhere than at their place together."""
MISSED_BYTES: Final = 64
"""What such a record takes."""
LEADS_NOWHERE: Final = -1
_SERVED_AS_IT_IS: Final = frozenset(set(FINDING_IDS) - {Verdict.STALE})


class ServedUnits:
    """Tells which records a queue serves."""

    def __init__(self, state: QueueState, log_minimum: int) -> None:
        self._form = unit_format(is_batch=state.is_batch).dtype
        self._loaded = state.loaded
        self._unit_size = self._loaded.kind.size
        queue = state.queue(log_minimum)
        self._queue = queue if isinstance(queue, BatchQueue) else None
        self._minimum = 0 if state.is_batch else state.minimum
        end = self._loaded.end
        self._end = end if state.is_batch else end - end % self._unit_size
        self._fails_at_part = state.rules.part_of_unit_fails_pulls
        self._extension = state.extension
        self._looks_ahead = state.rules.limits_before_skipping
        self._span: tuple[int, int] | None = None

    def has_at(self, queue_offsets: Int64s, records: RecordArrays) -> Bools:
        """For each record whether the unit at its own queue offset points to it.

        Raises:
            UnreadableError: a queue file cannot be read.
        """
        positions = queue_offsets * self._unit_size
        is_served = np.zeros(positions.size, np.bool_)
        inside = np.flatnonzero((queue_offsets >= 0) & (positions >= self._minimum) & (positions < self._end))
        numbers_of = self._file_numbers(positions[inside])
        for number, segment in enumerate(self._loaded.segments):
            part = inside[numbers_of == number]
            if part.size:
                at = positions[part] % self._loaded.file_size  # as brokers do, whatever the file's name says
                units = self._units(segment, int(at.min()), int(at.max()) + self._unit_size)
                numbers = (at - at.min()) // self._unit_size
                known = at < self._handed_out(segment)
                part, units = part[known], units[numbers[known]]
                is_served[part] = (units["physical_offset"] == records.physical_offsets[part]) & records.fit(
                    part, units
                )
        return is_served

    def _file_numbers(self, positions: Int64s) -> Int64s:
        return file_numbers(self._loaded.segments, self._loaded.file_size, positions)

    def has_anywhere(self, records: RecordArrays) -> Bools:
        """For each record whether any unit points to it; reads the queue, so it is asked for misplaced ones only.

        Raises:
            UnreadableError: a queue file cannot be read.
        """
        wanted_in_order = records.physical_offsets
        is_served = np.zeros(wanted_in_order.size, np.bool_)
        if self._span is not None:
            lowest, highest = self._span
            if wanted_in_order.min() > highest or wanted_in_order.max() < lowest:
                return is_served
        order = np.argsort(wanted_in_order, kind="stable")
        sorted_offsets, low, high = wanted_in_order[order], JAVA_LONG_MAX, -1
        for units in self._pulled() if self._queue is not None else self._blocks():
            begins = units["physical_offset"].astype(np.int64)
            if not begins.size:
                continue
            low, high = min(low, int(begins.min())), max(high, int(begins.max()))
            at = np.searchsorted(sorted_offsets, begins).clip(max=sorted_offsets.size - 1)
            hits = np.flatnonzero((sorted_offsets[at] == begins) & records.fit(order[at], units))
            is_served[order[at[hits]]] = True
        self._span = (low, high)
        return is_served

    def _pulled(self) -> Iterator[NDArray[np.void]]:
        """The units of a batch queue that a client gets."""
        assert self._queue is not None
        holding = [segment for segment in self._loaded.segments if self._loaded.length(segment)]

        def units_of(segment: Segment) -> NDArray[np.void]:
            return self._units(segment, 0, self._loaded.length(segment))

        for segment, units, given in pulled_units(self._queue, holding, units_of):
            count = self._handed_out(segment) // self._unit_size
            yield units[:count][given[:count]]

    def _blocks(self) -> Iterator[NDArray[np.void]]:
        """All units, many at a time."""
        starts = np.array([segment.start for segment in self._loaded.segments], np.int64)
        for number in np.unique(self._file_numbers(starts)).tolist():
            segment = self._loaded.segments[number]
            start, end = max(0, self._minimum - segment.start), self._handed_out(segment)
            # What a wrong name leaves below the file's own start is never read.
            start = max(start, -(-(segment.start % self._loaded.file_size) // self._unit_size) * self._unit_size)
            for position in range(start, end, BLOCK_UNITS * self._unit_size):
                units = self._units(segment, position, min(end, position + BLOCK_UNITS * self._unit_size))
                if units.size:
                    yield units

    def _handed_out(self, segment: Segment) -> int:
        """Bytes of the units that a client gets: each pull of the last one may throw where a part of a unit follows."""
        whole, rest = divmod(self._loaded.length(segment), self._unit_size)
        whole -= bool(rest) and self._fails_at_part
        return min(whole * self._unit_size, max(0, self._end - segment.start))

    def _units(self, segment: Segment, start: int, end: int) -> NDArray[np.void]:
        """Units of a file; one that no pull can pass leads nowhere, for its address leads to what makes brokers throw.

        Brokers since 5.0 look at the next unit of the file before they end a pull.
        """
        ahead = self._unit_size if self._extension is not None and self._looks_ahead else 0
        stop = max(end, min(end + ahead, self._loaded.length(segment)))
        raw = self._loaded.read(segment, start, stop - start)
        units = np.frombuffer(raw[: len(raw) // self._unit_size * self._unit_size], self._form)
        count = max(0, end - start) // self._unit_size
        if self._extension is None or not (is_address := units["tags_code"] <= EXTENSION_ADDRESS_MAX).any():
            return units[:count]
        throws = np.zeros(units.size, np.bool_)
        throws[is_address] = self._extension.ends_pulls(units["tags_code"][is_address].astype(np.int64))
        if self._looks_ahead:
            throws[:-1] |= throws[1:]
        units = units[:count].copy()
        units["physical_offset"][throws[:count]] = LEADS_NOWHERE
        return units


def file_numbers(segments: Sequence[Segment], size: int, positions: Int64s) -> Int64s:
    """The number of the file in which a broker looks for each position; -1 where no file holds it.

    It takes the file whose number the position gives, if that one holds it, else the first one that does
    (`MappedFileQueue#findMappedFileByOffset`): of two files for one offset, one may never be read.
    """
    numbers = np.full(positions.size, -1, np.int64)
    if not segments:
        return numbers
    starts = np.array([segment.start for segment in segments], np.int64)
    for number in reversed(range(len(segments))):
        numbers[(positions >= starts[number]) & (positions < starts[number] + size)] = number
    expected = positions // size - starts[0] // size
    expected = expected.clip(0, len(segments) - 1)
    is_there = (positions >= starts[expected]) & (positions < starts[expected] + size)
    return np.where(is_there, expected, numbers)


@dataclass
class LossReport:
    """What was counted."""

    messages: int = 0
    bytes: int = 0
    by_topic: Counter[str] = field(default_factory=Counter)
    unindexed: int = 0
    damage: list[ServedDamage] = field(default_factory=list)
    damage_count: int = 0
    highest: dict[tuple[str, int], int] = field(default_factory=dict)
    """Highest queue offset of a message in the log, by queue."""

    @property
    def lost(self) -> Lost:
        return Lost(self.messages, self.bytes, dict(sorted(self.by_topic.items())))


class CleanFiles:
    """Files of the log of which a start loses nothing, with the highest queue offset in each by queue.

    Attributes:
        highest: by the file and by all that its losses depend on.
        lock: who counts holds it, so that no file is counted twice at once.
    """

    def __init__(self) -> None:
        self.highest: dict[Hashable, dict[tuple[str, int], int]] = {}
        self.lock = Lock()


class LossCounter:
    """Counts over the log as it is before the start."""

    def __init__(
        self,
        queues: Mapping[tuple[str, int], QueueState | DatabaseQueueState],
        index: IndexState | None,
        settings: DispatchSettings,
        kept: Sequence[Segment],
        log_end: int,
        damage_max: int,
        clean: CleanFiles | None = None,
        depends_on: Hashable = None,
    ) -> None:
        """`kept` are the log's files after the start, `log_end` where it ends; `clean` need not be counted again."""
        log_minimum = min((segment.start for segment in kept), default=0)
        self._served = {
            name: DatabaseServedUnits(state, log_minimum)
            if isinstance(state, DatabaseQueueState)
            else ServedUnits(state, log_minimum)
            for name, state in queues.items()
        }
        self._index = index
        self._settings = settings
        self._kept = {segment.path for segment in kept}
        # Only where names overlap is another file read than the one whose name says that it holds an offset.
        in_order = sorted(kept, key=lambda segment: segment.start)
        self._overlapping = kept if any(second.start < first.end for first, second in pairwise(in_order)) else ()
        self._log_end = log_end
        self._damage_max = damage_max
        self._missed: defaultdict[tuple[str, int], list[RecordArrays]] = defaultdict(list)
        self._missed_count = 0
        self._clean, self._depends_on = CleanFiles() if clean is None else clean, depends_on
        self._highest: dict[tuple[str, int], int] = {}
        self._is_clean = True
        self.losses = LossReport()

    def count(self, view: StoreView, segments: Sequence[Segment], options: ScanOptions) -> None:
        """Scan files of the log.

        Raises:
            UnreadableError: a file may not be opened.
        """
        by_start = {segment.start: segment for segment in segments}  # of two files of one start, one counts
        with closing(plan_segments(view.open, by_start.values())) as plan:
            for split in plan.splits:
                identity = split.source.identity
                key = identity, split.physical_offset, split.more_follows, self._depends_on
                highest = self._clean.highest.get(key)
                if highest is None:
                    self._highest, self._is_clean = {}, identity is not None
                    self._count_file(by_start[split.physical_offset], scan_log(replace(plan, splits=(split,)), options))
                    highest = self._highest
                    if self._is_clean:
                        self._clean.highest[key] = highest
                split.source.close()
                for name, offset in highest.items():
                    self.losses.highest[name] = max(self.losses.highest.get(name, -1), offset)
            self._look_anywhere()

    def _count_file(self, segment: Segment, batches: Iterable[Batch]) -> None:
        chunk = EntryExtractor(self._settings)
        for batch in batches:
            rows = batch.as_array()
            for row in rows[rows["verdict"] != Verdict.GOOD]:
                self._damage(segment.path, row)
            good = message_rows(rows)
            # What a repair put in the place of a lost message is not missed.
            sent = kept_rows(good, good["prepared_transaction_offset"] != TOMBSTONE)
            if not sent.size:
                continue
            chunk.take(sent, batch.topics, batch_bytes(batch))
            self._unindexed(sent, segment.path)
            if chunk.is_full:
                self._count_chunk(segment, chunk)
        self._count_chunk(segment, chunk)

    def _count_chunk(self, segment: Segment, chunk: EntryExtractor) -> None:
        for entries in chunk.entries():
            self._entries(entries, segment)
        chunk.clear()

    def _entries(self, entries: QueueEntries, segment: Segment) -> None:
        if not entries.own.all():
            entries = entries.some(entries.own)
        if not entries.physical_offsets.size:
            return
        topic = decode_java_utf8(entries.topic)
        name = (topic, entries.queue_id)
        highest = int((entries.queue_offsets + entries.batch_sizes - 1).max())
        self._highest[name] = max(self._highest.get(name, -1), highest)
        places = _places(entries, min(segment.end, self._log_end))
        served = self._served.get(name)
        if served is None or segment.path not in self._kept:
            self._lose(topic, places)
            return
        if self._overlapping:
            numbers = file_numbers(self._overlapping, segment.size, places.physical_offsets)
            starts = np.array([other.start for other in self._overlapping], np.int64)
            is_read = starts[numbers] == segment.start  # of two with one start the other one may do as well
            self._lose(topic, places.some(~is_read))
            entries = entries._replace(queue_offsets=entries.queue_offsets[is_read])
            places = places.some(is_read)
        missed = places if entries.is_batch else places.some(~served.has_at(entries.queue_offsets, places))
        inside = missed.physical_offsets + missed.sizes <= missed.limits
        self._lose(topic, missed.some(~inside))
        if inside.any():
            self._is_clean = False
            self._missed[name].append(missed.some(inside))
            self._missed_count += int(inside.sum())
            if self._missed_count > memory_budget().share(MISSED_MAX * MISSED_BYTES, 8) // MISSED_BYTES:
                self._look_anywhere()

    def _look_anywhere(self) -> None:
        """Look for the records that are not at their place, many at a time, for each look reads a whole queue."""
        for name, parts in self._missed.items():
            missed = RecordArrays(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            self._lose(name[0], missed.some(~self._served[name].has_anywhere(missed)))
        self._missed.clear()
        self._missed_count = 0

    def _lose(self, topic: str, places: RecordArrays) -> None:
        count = int(places.message_counts.sum())
        if count:
            self._is_clean = False
            self.losses.messages += count
            self.losses.bytes += int(places.sizes.sum())
            self.losses.by_topic[topic] += count

    def _unindexed(self, rows: NDArray[np.void], path: str) -> None:
        if self._index is None or path not in self._kept:
            return
        behind = rows["physical_offset"] + rows["size"] > self._log_end
        unindexed = self._index.without_entry(rows[~behind] if behind.any() else rows)
        self._is_clean &= not unindexed
        self.losses.unindexed += unindexed

    def _damage(self, path: str, row: Any) -> None:
        verdict, physical_offset, length = (int(row[name]) for name in ("verdict", "physical_offset", "size"))
        if verdict not in _SERVED_AS_IT_IS or path not in self._kept or physical_offset >= self._log_end:
            return
        self._is_clean = False
        self.losses.damage_count += 1
        if len(self.losses.damage) < self._damage_max:
            self.losses.damage.append(ServedDamage(FINDING_IDS[Verdict(verdict)], path, physical_offset, length))


def _places(entries: QueueEntries, limit: int) -> RecordArrays:
    sizes = entries.record_sizes.astype(np.int64)
    return RecordArrays(
        entries.physical_offsets, sizes, np.full_like(sizes, limit), entries.batch_sizes.astype(np.int64)
    )

"""Writes one queue so that each record stands at its own queue offset, whatever is missing before it.

The broker's own dispatch closes a gap by moving all later entries up, and puts filler before a queue that begins
in the middle. Filler makes a later put vanish (`ConsumeQueue#putMessagePositionInfo`), so here stand units that cannot
be read: a pull skips them and nothing else.

**Which of several records has a place.** Where the queue has a unit for one of them, that one keeps it: consumers get
it there. Else the newest one has it, for a broker numbers a message by the end of its queue: what had that place or a
later one before was gone from the queue, with a deleted topic or with units that were lost. A single record that steps
back says nothing, for its header may be wrong: two have to follow each other.

**Which units are kept.** Consumers get what the queue's units lead to, at these queue offsets. So where the log lacks a
message, the queue's own units stay if each leads to a record that belongs there. Units of light queues stay where the
log no longer tells which queues a record named beside its own: properties tell them, and nothing protects the
properties of records without a checksum of their own. Without such a unit all later messages of the light queue would
move up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import Int64s, QueueEntries
from rmqtool.engine.dispatch.queue_writer import BatchQueueWriter, QueueEnd, QueueWriter
from rmqtool.engine.queues.stored_units import StoredUnits
from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE, UNIT, UNIT_SIZE
from rmqtool.formats.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from rmqtool.formats.tombstone import DEAD_BEFORE, DEAD_SIZE
from rmqtool.quantities import OFFSETS_END
from rmqtool.repair.derived.result import Generations
from rmqtool.store.directory import Store
from rmqtool.store.sink import FileSink, ReadableSink
from rmqtool.store.source import read_range

KEPT_MAX: Final = 10_000
"""Units of one gap whose records are looked at."""
_Fits = Callable[[Record | None, int, int], bool]
"""Predicate: True if a unit may lead to a record, by the unit's physical offset and size."""

GAP_UNITS_MAX: Final = 1 << 24
"""Units that are put into one gap; a record further ahead has a queue offset that nobody should believe."""

GAP_FILES_MAX: Final = 1000
"""Files that one gap may take, where they are small."""
BLOCK_UNITS: Final = 1 << 16


@dataclass
class RecordOffsets:
    """Facts about the log that the writers of all queues share.

    Attributes:
        starts: physical offsets at which its files begin.
        tombstones: physical offsets of the records that replace lost ones.
    """

    starts: Sequence[int]
    tombstones: set[int] = field(default_factory=set)

    def dead_unit(self, physical_offset: int, *, in_front: bool) -> NDArray[Any] | None:
        """The unit for a message that is lost at, or right before, a place in the log.

        Args:
            in_front: nothing of the log stands before it in its queue.

        Returns:
            None where no such unit can be: before the log's first file, unless that file is not the log's first
            byte and the unit counts as one of a message that has expired.
        """
        number = bisect_right(self.starts, physical_offset) - 1
        start = self.starts[max(0, number)]
        if start == 0 or (number <= 0 and not in_front):
            return None
        return np.array([(start - DEAD_BEFORE, DEAD_SIZE, 0)], UNIT.dtype)


class GapPreservingQueueWriter(QueueWriter):
    """One queue of 20-byte units, each at its record's own queue offset.

    Attributes:
        gap_units: once finished, units that stand where the log has no record.
        superseded: records whose places, or places before them, newer records of the queue have.
        generations: where the whole queue began again, if it did.
        file_times_ms: store time of the last record in each file, by the file's start in the queue's stream.
    """

    def __init__(
        self,
        sink: ReadableSink,
        directory: str,
        file_size: int,
        rules: BrokerRules,
        end: QueueEnd | None = None,
        *,
        log: RecordOffsets,
        kept: KeptUnits,
        removed_before: int,
    ) -> None:
        super().__init__(sink, directory, file_size, rules, end)
        self._built, self._log, self._kept, self._removed_before = sink, log, kept, removed_before
        self._first_start = self._last_start
        """Stream position at which the first file begins; of those that were there, the last one."""
        self._newest = kept.newest(directory) if removed_before == OFFSETS_END else -1
        self._has_kept = False
        """True if the queue has the unit of a record that was put: those after it continue the queue."""
        self._last_place = -1
        """Physical offset of the last record that was put."""
        self._dead_end: tuple[int, int] | None = None
        """Of a last unit that is dead: its place in the stream, and where in the log its tombstone ends."""
        self._next_queue_offset: int | None = None
        """After the last record that was put; None before the first one."""
        self._last_kept = -1
        """A place whose record consumers get there, so that the queue is not cut there or before."""
        self._gaps: list[tuple[int, int]] = []
        """Places [begin, end) with units for which the log had no record so far."""
        self._step_back: tuple[QueueEntries, Int64s] | None = None
        """A single record at the place of an older one; the next record tells whether the queue continues there."""
        self.gap_units = self.superseded = 0
        self.generations = Generations()
        self.file_times_ms: dict[int, int] = {}

    def shows(self, entries: QueueEntries) -> NDArray[np.bool_]:
        """All but those of tombstones whose units are dead."""
        shown = super().shows(entries)
        for index, place in enumerate(entries.physical_offsets.tolist()) if self._log.tombstones else ():
            shown[index] = place not in self._log.tombstones or self._log.dead_unit(place, in_front=False) is None
        return shown

    def put(self, entries: QueueEntries, tags_codes: Int64s | None = None) -> None:
        codes = entries.tags_codes if tags_codes is None else tags_codes
        if entries.physical_offsets.size and entries.physical_offsets[0] < self._removed_before:
            is_kept = self._kept.lead_to(self._directory, entries.queue_offsets, entries.physical_offsets)
            follows = np.logical_or.accumulate(is_kept) | self._has_kept  # one that is kept
            self._has_kept = bool(follows[-1])
            if self._removed_before == OFFSETS_END:
                follows &= entries.physical_offsets <= self._newest
            stays = (entries.physical_offsets >= self._removed_before) | follows
            entries, codes = entries.some(stays), codes[stays]
        for start, stop in _runs(entries.queue_offsets):
            self._enter(_part(entries, start, stop), codes[start:stop])

    def _enter(self, run: QueueEntries, codes: Int64s) -> None:
        """Enter records with consecutive queue offsets."""
        if self._step_back is not None:
            before, before_codes = self._step_back
            self._step_back = None
            goes_on = int(run.queue_offsets[0]) == int(before.queue_offsets[0]) + 1
            if goes_on and self._cut_at(int(before.queue_offsets[0]), int(before.physical_offsets[0])):
                self._append(before, before_codes)
            else:
                self._leave_out(before, before_codes, int(run.queue_offsets[0]))
        while run.physical_offsets.size:
            first = int(run.queue_offsets[0])
            end = self._end // UNIT_SIZE
            if first == 0 and (
                self._last_start is not None
                and end > 0
                and int(self._kept.physical_offsets(self._directory, end, 1)[0]) == int(run.physical_offsets[0])
            ):
                super().put(_part(run, 0, 1), codes[:1])
                self.misplaced -= 1  # the queue had it there
                self._next_queue_offset = self._end // UNIT_SIZE
                run, codes = _part(run, 1, run.physical_offsets.size), codes[1:]
                continue
            if self._last_start is not None and self._next_queue_offset is None:
                # Units of expired messages, from the place of the queue's first record in the log on: they are wrong.
                expected = first * UNIT_SIZE
                if self._last_start <= expected < self._end:
                    self._write(expected, np.zeros((self._end - expected) // UNIT_SIZE, UNIT.dtype))
                    self._end = expected
            if self._last_start is None or not 0 <= first < self._end // UNIT_SIZE:
                self._append(run, codes)
                return
            settled = self._enter_inside(run, codes)
            run, codes = _part(run, settled, run.physical_offsets.size), codes[settled:]

    def _leave_out(self, record: QueueEntries, codes: Int64s, following: int | None) -> None:
        """Handle a single record that steps back as brokers do: one that says 0 goes to the end.

        Args:
            following: the queue offset of the next record; None where there is none.
        """
        end = self._end // UNIT_SIZE
        if int(record.queue_offsets[0]) == 0 and following in (None, end + 1):
            super().put(record, codes)
            self._next_queue_offset = end + 1
        else:
            self.ignored += 1

    def _append(self, run: QueueEntries, codes: Int64s) -> None:
        first = int(run.queue_offsets[0])
        if self._next_queue_offset is None or first > self._next_queue_offset:
            self._fill_gap(first, int(run.physical_offsets[0]))
        super().put(run, codes)
        if self._first_start is None and self.begin is not None:
            self._first_start = self._file_start(self.begin)
        self._note(run)

    def _enter_inside(self, run: QueueEntries, codes: Int64s) -> int:
        """Enter records at places that the queue has already; return how many are settled, fewer than all where it is
        cut.
        """
        first = int(run.queue_offsets[0])
        count = min(run.physical_offsets.size, self._end // UNIT_SIZE - first, BLOCK_UNITS)
        here = _part(run, 0, count)
        places, offsets = here.queue_offsets, here.physical_offsets
        units, kept = self._units_at(first, count), self._kept.physical_offsets(self._directory, first, count)
        built = units["physical_offset"].astype(np.int64)
        is_free = units["record_size"] == 0
        is_same = (built == offsets) & ~is_free
        for low, high in self._gaps:
            is_free |= (places >= low) & (places < high)
        is_free &= ~is_same & (places * UNIT_SIZE >= (self._first_start or 0))
        again = np.flatnonzero(is_free & (kept == offsets))
        if again.size and int(again[0]) == 0 and self._cut_at(first, int(offsets[0])):
            return 0  # the queue has it before records that lie earlier in the log: it began again there
        is_own = (kept == offsets) & ~is_same & (places * UNIT_SIZE >= (self._first_start or 0))
        is_other = (kept == built) & ~(is_same | is_free | is_own)
        differing = np.flatnonzero(~(is_same | is_free | is_other))
        end = int(differing[0]) if differing.size else count
        stop = min(end, int(again[0])) if again.size and again[0] else end
        entered = np.flatnonzero(is_free[:stop])
        for low, high in _runs(entered):
            part = slice(int(entered[low]), int(entered[high - 1]) + 1)
            self._write_units(int(places[part][0]), _units_of(_part(here, part.start, part.stop), codes[part]))
        if entered.size:
            self.generations.starts.add(int(offsets[entered[0]]))
            if int(places[entered[0]]) == 0:
                self.generations.zeros.update(offsets[entered[:2]].tolist())
            self._gaps = [gap for span in self._gaps for gap in _without(span, places[entered])]
        self.ignored += int(is_other[:stop].sum())
        if stop:
            self._note(_part(here, 0, stop))
        if stop == count or stop < end:
            return stop
        if run.physical_offsets.size - stop == 1 and not is_own[stop]:
            self._step_back = _part(run, stop, stop + 1), codes[stop:]
            return stop + 1
        if self._cut_at(first + stop, int(offsets[stop])):
            return stop
        if is_own[stop]:
            self._write_units(first + stop, _units_of(_part(here, stop, stop + 1), codes[stop : stop + 1]))
            self.superseded += 1
        else:
            self.ignored += 1
        return stop + 1

    def _cut_at(self, place: int, physical_offset: int) -> bool:
        """End the queue before a place that a newer record has, unless consumers get the unit there or a later one."""
        # A damaged offset may have put the first file far behind the place.
        position, first, end = place * UNIT_SIZE, self._first_start or 0, self._end
        begins_again = self.begin is not None and position <= self.begin
        if not begins_again and position < first:
            return False  # what comes before the first record of the log stays
        if place <= self._last_kept:
            return False
        for at in reversed(range(max(place, first // UNIT_SIZE), end // UNIT_SIZE, BLOCK_UNITS)):
            count = min(BLOCK_UNITS, end // UNIT_SIZE - at)
            units = self._units_at(at, count)
            kept = self._kept.physical_offsets(self._directory, at, count)
            is_kept = (units["physical_offset"] == kept) & (units["record_size"] > 0)
            if is_kept.any():
                self._last_kept = at + int(np.flatnonzero(is_kept)[-1])
                return False
        for start in range(max(self._file_start(position), first), end, self._file_size):
            if begins_again or start >= position:
                self._sink.remove(self._path(start))
                self.file_times_ms.pop(start, None)
            else:
                zeros = bytes(min(end, start + self._file_size) - position)
                self._sink.write_at(self._path(start), position - start, zeros)
        self.superseded += (end - max(position, self.begin or 0)) // UNIT_SIZE
        self._gaps = [(low, min(high, place)) for low, high in self._gaps if low < place]
        self._dead_end = None
        if begins_again:
            self._first_start = self._last_start = self._next_queue_offset = self.begin = None
            self._end = 0
            self.generations = Generations(physical_offset, self._last_place)
        else:
            self._last_start, self._end = self._file_start(position - UNIT_SIZE), position
            self._next_queue_offset = place
        return True

    def _fill_gap(self, queue_offset: int, physical_offset: int) -> None:
        expected = queue_offset * UNIT_SIZE
        begin = self._end if self._last_start is not None else self._file_start(expected)
        count = (expected - begin) // UNIT_SIZE
        most = min(GAP_UNITS_MAX, GAP_FILES_MAX * self._file_size // UNIT_SIZE)
        if queue_offset <= 0 or not 0 < count <= most:
            return
        unit = self._log.dead_unit(physical_offset, in_front=self._next_queue_offset is None)
        units = unit if unit is not None else self._units_before(begin, expected, physical_offset)
        if units is None:
            return
        if self._last_start is None:
            self._first_start = self._last_start = self._end = self.begin = begin
            self._sink.create(self._path(begin), self._file_size)
        if unit is not None:
            self._gaps.append((begin // UNIT_SIZE, expected // UNIT_SIZE))
        while self._end < expected:
            start = self._file_for(self._end)
            room = (min(expected, start + self._file_size) - self._end) // UNIT_SIZE
            at = (self._end - begin) // UNIT_SIZE
            self._write(self._end, units.repeat(room) if unit is not None else units[at : at + room].copy())
            self._end += room * UNIT_SIZE

    def _units_before(self, begin: int, end: int, physical_offset: int) -> NDArray[Any] | None:
        """Old units of the queue in a gap before a record; None without any."""
        own = self._kept.of_own_records(self._directory, (begin, end))
        if own is not None:
            return own
        gap = self._directory, (begin, end), (self._last_place, physical_offset)
        if self._directory.split("/")[1].startswith(LMQ_PREFIX):
            light = self._kept.in_between(*gap, _tells_nothing)
            if light is not None:
                return light
        # Whatever the headers of the records say of themselves: consumers get these there today, and where they are
        # left out, each later message of the queue moves up.
        wrong = self._kept.in_between(*gap, _is_whole)
        is_lost = wrong is not None and not self._log.tombstones.isdisjoint(wrong["physical_offset"].tolist())
        return None if is_lost else wrong

    def _write(self, stream_position: int, units: NDArray[Any]) -> None:
        """Write units, those of tombstones as dead ones, so that nobody receives a message that nobody sent."""
        self._dead_end = None
        for index, place in enumerate(units["physical_offset"].tolist()) if self._log.tombstones else ():
            if place in self._log.tombstones:
                unit = self._log.dead_unit(place, in_front=False)
                if unit is not None and index == len(units) - 1:
                    self._dead_end = stream_position + index * UNIT_SIZE, place + int(units["record_size"][index])
                units[index] = units[index] if unit is None else unit[0]
        super()._write(stream_position, units)

    def _write_units(self, place: int, units: NDArray[Any]) -> None:
        for index, physical_offset in enumerate(units["physical_offset"].tolist()) if self._log.tombstones else ():
            unit = self._log.dead_unit(physical_offset, in_front=False)
            if physical_offset in self._log.tombstones and unit is not None:
                units[index] = unit[0]
        for at, start, count in self._file_parts(place, len(units)):
            part = units[at - place : at - place + count]
            self._sink.write_at(self._path(start), at * UNIT_SIZE - start, part.tobytes())

    def _units_at(self, place: int, count: int) -> NDArray[Any]:
        """Units built so far, at places before the queue's end; zeros before its first file."""
        parts = [np.empty(0, UNIT.dtype)]
        for at, start, part_count in self._file_parts(place, count):
            raw = b""
            if start >= (self._first_start or 0):
                raw = self._built.read_at(self._path(start), at * UNIT_SIZE - start, part_count * UNIT_SIZE)
            parts.append(np.frombuffer(raw.ljust(part_count * UNIT_SIZE, b"\0"), UNIT.dtype))
        return np.concatenate(parts)

    def _file_parts(self, place: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Split places by file: the first one, the file's start, and their number."""
        per_file = self._file_size // UNIT_SIZE
        at, end = place, place + count
        while at < end:
            part_count = min(end - at, per_file - at % per_file)
            yield at, self._file_start(at * UNIT_SIZE), part_count
            at += part_count

    def _file_start(self, position: int) -> int:
        return position - position % self._file_size

    def finish(self) -> None:
        """Let a dead unit at the queue's end reach to the end of its tombstone.

        By the last unit brokers tell what of the log is in the queues. What comes after it, 5.3.2 to 5.4.0 enter once
        more, and do not start where the last file of a queue is full.
        """
        if self._step_back is not None:
            place = int(self._step_back[0].physical_offsets[0])
            self.generations.starts.add(place)
            if int(self._step_back[0].queue_offsets[0]) == 0:
                self.generations.zeros.add(place)
            self._leave_out(*self._step_back, None)
        self.gap_units = sum(high - low for low, high in self._gaps)
        if self._dead_end is None:
            return
        position, tombstone_end = self._dead_end
        unit = self._log.dead_unit(tombstone_end - 1, in_front=False)
        assert unit is not None, "it was written there"
        unit["record_size"] = tombstone_end - unit["physical_offset"]
        super()._write(position, unit)

    def _note(self, entries: QueueEntries) -> None:
        """Remember the ends of records, and the times of the files that they are in."""
        self._next_queue_offset = int(entries.queue_offsets[-1]) + 1
        self._last_place = int(entries.physical_offsets[-1])
        positions = entries.queue_offsets * UNIT_SIZE
        starts = positions - positions % self._file_size
        last = np.flatnonzero(np.append(starts[1:] != starts[:-1], True))
        for index in last.tolist():
            self.file_times_ms[int(starts[index])] = int(entries.store_timestamps_ms[index])


class NewestBatchQueueWriter(BatchQueueWriter):
    """One queue of 46-byte units that has its newest records only, where it began again.

    Attributes:
        superseded, generations: see `GapPreservingQueueWriter`.
    """

    def __init__(
        self,
        sink: FileSink,
        directory: str,
        file_size: int,
        end: QueueEnd,
        *,
        kept: KeptUnits,
        removed_before: int,
    ) -> None:
        super().__init__(sink, directory, file_size, end)
        self._kept, self._removed_before = kept.of_batch_queue(directory), removed_before
        self._next_queue_offset = 0
        self._starts: list[int] = []
        self._has_kept = False
        self.superseded = 0
        self.generations = Generations()

    def put(self, entries: QueueEntries) -> None:
        is_kept = np.isin(entries.physical_offsets, self._kept)
        follows = np.logical_or.accumulate(is_kept) | self._has_kept  # one that is kept
        if self._removed_before == OFFSETS_END:
            follows &= entries.physical_offsets <= self._kept.max(initial=-1)
        stays = (entries.physical_offsets >= self._removed_before) | follows
        entries, is_kept = entries.some(stays), is_kept[stays]
        offsets, ends = entries.queue_offsets, entries.queue_offsets + entries.batch_sizes
        start = 0
        for number in np.flatnonzero(offsets == 0).tolist():
            before = int(ends[number - 1]) if number else self._next_queue_offset
            continues = number + 1 < ends.size and offsets[number + 1] == ends[number]
            if before > 0 and (is_kept[number] or continues):
                self._enter(_part(entries, start, number), is_kept[start:number])
                start = number
                if not self._has_kept:
                    self.superseded += self._end // BATCH_UNIT_SIZE
                    for file_start in self._starts:
                        self._sink.remove(self._path(file_start))
                    self._starts, self._last_start, self._end, self.begin = [], None, 0, None
                    self._physical_offset = -1
                    begin = int(entries.physical_offsets[number])
                    self.generations = Generations(begin, begin - 1)
        self._enter(_part(entries, start, ends.size), is_kept[start:])

    def _enter(self, entries: QueueEntries, is_kept: NDArray[np.bool_]) -> None:
        if entries.physical_offsets.size:
            super().put(entries)
            self._has_kept |= bool(is_kept.any())
            self._next_queue_offset = int(entries.queue_offsets[-1] + entries.batch_sizes[-1])

    def _file_for(self, first: int) -> int:
        start = super()._file_for(first)
        if start not in self._starts[-1:]:
            self._starts.append(start)
        return start


def _part(entries: QueueEntries, start: int, stop: int) -> QueueEntries:
    if start == 0 and stop == entries.queue_offsets.size:
        return entries
    columns: list[Any] = [column[start:stop] for column in entries[3:]]
    return QueueEntries(*entries[:3], *columns)


def _runs(numbers: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of consecutive numbers."""
    if numbers.size:
        yield from pairwise([0, *(np.flatnonzero(numbers[1:] != numbers[:-1] + 1) + 1).tolist(), numbers.size])


def _without(span: tuple[int, int], places: Int64s) -> Iterator[tuple[int, int]]:
    """Parts of [begin, end) without some of its places, which are in order."""
    at = span[0]
    for place in places[(places >= span[0]) & (places < span[1])].tolist():
        if at < place:
            yield at, place
        at = place + 1
    if at < span[1]:
        yield at, span[1]


def _units_of(entries: QueueEntries, codes: Int64s) -> NDArray[Any]:
    units = np.empty(entries.physical_offsets.size, UNIT.dtype)
    units["physical_offset"], units["record_size"] = entries.physical_offsets, entries.record_sizes
    units["tags_code"] = codes
    return units


class KeptUnits(StoredUnits):
    """Looks up units of a store's queues, and finds the right ones."""

    def __init__(self, store: Store, rules: BrokerRules, log_end: int | None = None) -> None:
        """`log_end` is where the log is to end; None: where it ends now."""
        super().__init__(store)
        self._rules, self._log_end = rules, log_end

    def of_batch_queue(self, directory: str) -> NDArray[np.int64]:
        """Where the units of a batch queue lead to."""
        _, topic, queue_id = directory.split("/")
        queue = self._store.batch_queues.get((topic, int(queue_id)))
        parts = [np.empty(0, np.int64)]
        for segment in queue.segments if queue is not None else ():
            with suppress(UnreadableError), closing(self._store.view.open(segment.path)) as source:
                raw = read_range(source, 0, segment.size // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE)
                units = np.frombuffer(raw, BATCH_UNIT.dtype)
                parts.append(units["physical_offset"][units["batch_size"] > 0].astype(np.int64))
        return np.concatenate(parts)

    def of_own_records(self, directory: str, places: tuple[int, int]) -> NDArray[Any] | None:
        """The units of a queue at stream positions; None unless each leads to a whole record that says its place."""
        _, topic, queue_id = directory.split("/")
        try:
            units = self._units(directory, *places)
            if units is None:
                return None
            with OpenFiles(self._store.view) as files:
                log, place = Log(self._store, self._rules, files), places[0] // UNIT_SIZE
                for number, (at, size) in enumerate(units[["physical_offset", "record_size"]].tolist()):
                    record = read_record(log, at) if self._log_end is None or at < self._log_end else None
                    if record is None or (record.physical_offset, record.size) != (at, size):
                        return None
                    claim = record.topic, str(record.queue_id), record.queue_offset
                    if claim != (topic, queue_id, place + number) or record.body_crc_ok is not True:
                        return None
        except UnreadableError:
            return None
        return units

    def in_between(
        self, directory: str, places: tuple[int, int], physical: tuple[int, int], fits: _Fits
    ) -> NDArray[Any] | None:
        """Units of a gap, if each leads to a record that fits, and they are in the order of the log; else None.

        Args:
            places: stream positions at which the gap begins and ends.
            physical: physical offsets of the records before and after the gap; the units lead to others in between.
        """
        try:
            units = self._units(directory, *places)
            if units is None:
                return None
            offsets = [physical[0], *units["physical_offset"].tolist(), physical[1]]
            if any(one >= two for one, two in pairwise(offsets)):
                return None
            with OpenFiles(self._store.view) as files:
                log = Log(self._store, self._rules, files)
                pairs = zip(offsets[1:-1], units["record_size"].tolist(), strict=True)
                return units if all(fits(read_record(log, at), at, size) for at, size in pairs) else None
        except UnreadableError:
            return None

    def _units(self, directory: str, begin: int, end: int) -> NDArray[Any] | None:
        queue = self._queues.get(directory) if end - begin <= KEPT_MAX * UNIT_SIZE else None
        parts: list[bytes] = []
        for segment in queue.segments if queue is not None else ():
            low, high = max(begin, segment.start), min(end, segment.end)
            if low < high:
                with closing(self._store.view.open(segment.path)) as source:
                    parts.append(read_range(source, low - segment.start, high - low))
        raw = b"".join(parts)
        return np.frombuffer(raw, UNIT.dtype) if len(raw) == end - begin and len(raw) % UNIT_SIZE == 0 else None


def _is_whole(record: Record | None, physical_offset: int, size: int) -> bool:
    """True if a unit leads to a record of the unit's size whose body is intact."""
    return (
        record is not None
        and (record.physical_offset, record.size) == (physical_offset, size)
        and record.body_crc_ok is True
    )


def _tells_nothing(record: Record | None, physical_offset: int, size: int) -> bool:
    """True if a whole record does not name the further queues that it is in, so that only units tell of these."""
    return (
        record is not None
        and _is_whole(record, physical_offset, size)
        and not {MULTI_DISPATCH, MULTI_QUEUE_OFFSET} <= record.properties.keys()
    )

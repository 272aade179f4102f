"""Writes one queue so that each record stands at its own queue offset, whatever is missing before it.

The broker's own dispatch closes a gap by moving all later entries up, and puts filler before a queue that begins
in the middle. Filler makes a later put vanish (`ConsumeQueue#putMessagePositionInfo`), so here stand units that cannot
be read: a pull skips them and nothing else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import Int64s, QueueEntries
from rmqtool.engine.dispatch.queue_writer import QueueEnd, QueueWriter
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.formats.tombstone import DEAD_BEFORE, DEAD_SIZE
from rmqtool.repair.build.kept_units import KeptUnits
from rmqtool.store.sink import FileSink

GAP_UNITS_MAX: Final = 1 << 24
"""Units that are put into one gap; a record further ahead has a queue offset that nobody should believe."""

GAP_FILES_MAX: Final = 1000
"""Files that one gap may take, where they are small."""


@dataclass
class RecordOffsets:
    """What the writers of all queues share about the log.

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
        gap_units: units that were put where the log has no record.
        file_times_ms: store time of the last record in each file, by the file's start in the queue's stream.
    """

    def __init__(
        self,
        sink: FileSink,
        directory: str,
        file_size: int,
        rules: BrokerRules,
        end: QueueEnd | None = None,
        *,
        log: RecordOffsets,
        kept: KeptUnits | None = None,
    ) -> None:
        """See `QueueWriter`; `kept` has what the queue had before."""
        super().__init__(sink, directory, file_size, rules, end)
        self._log, self._kept = log, kept
        self._last_place = -1
        """Physical offset of the last record that was put."""
        self._dead_end: tuple[int, int] | None = None
        """Of a last unit that is dead: its place in the stream, and where in the log its tombstone ends."""
        self._next_queue_offset: int | None = None
        """After the last record that was put; None before the first one."""
        self.gap_units = 0
        self.file_times_ms: dict[int, int] = {}

    def shows(self, entries: QueueEntries) -> NDArray[np.bool_]:
        """All but those of tombstones whose units are dead."""
        shown = super().shows(entries)
        for index, place in enumerate(entries.physical_offsets.tolist()) if self._log.tombstones else ():
            shown[index] = place not in self._log.tombstones or self._log.dead_unit(place, in_front=False) is None
        return shown

    def put(self, entries: QueueEntries, tags_codes: Int64s | None = None) -> None:
        """Enter records; see `QueueWriter.put`."""
        queue_offsets = entries.queue_offsets
        codes = entries.tags_codes if tags_codes is None else tags_codes
        jumps = np.flatnonzero(queue_offsets[1:] > queue_offsets[:-1] + 1) + 1
        start = 0
        for stop in [*jumps.tolist(), queue_offsets.size]:
            part = _part(entries, start, stop)
            first = int(queue_offsets[start])
            if self._next_queue_offset is None:
                self._cut_head(first)
            if self._next_queue_offset is None or first > self._next_queue_offset:
                self._fill_gap(first, int(part.physical_offsets[0]))
            super().put(part, codes[start:stop])
            self._next_queue_offset = int(queue_offsets[stop - 1]) + 1
            self._last_place = int(part.physical_offsets[-1])
            self._note_times(part)
            start = stop

    def _cut_head(self, queue_offset: int) -> None:
        """Drop units of expired messages from the place of the queue's first record in the log on: they are wrong."""
        end, expected = self._end, queue_offset * UNIT_SIZE
        if self._last_start is None or not self._last_start <= expected < end:
            return
        self._write(expected, np.zeros((end - expected) // UNIT_SIZE, UNIT.dtype))
        self._end = expected

    def _fill_gap(self, queue_offset: int, physical_offset: int) -> None:
        """Bring the queue's end to a queue offset."""
        expected = queue_offset * UNIT_SIZE
        begin = self._end if self._last_start is not None else expected - expected % self._file_size
        count = (expected - begin) // UNIT_SIZE
        most = min(GAP_UNITS_MAX, GAP_FILES_MAX * self._file_size // UNIT_SIZE)
        if queue_offset <= 0 or not 0 < count <= most:
            return
        unit = self._log.dead_unit(physical_offset, in_front=self._next_queue_offset is None)
        units = unit if unit is not None else self._units_before(begin, expected, physical_offset)
        if units is None:
            return
        if self._last_start is None:
            self._last_start = self._end = self.begin = begin
            self._sink.create(self._path(begin), self._file_size)
        while self._end < expected:
            start = self._file_for(self._end)
            room = (min(expected, start + self._file_size) - self._end) // UNIT_SIZE
            at = (self._end - begin) // UNIT_SIZE
            self._write(self._end, units.repeat(room) if unit is not None else units[at : at + room].copy())
            self._end += room * UNIT_SIZE
        self.gap_units += count if unit is not None else 0

    def _units_before(self, begin: int, end: int, physical_offset: int) -> NDArray[Any] | None:
        """What the queue had in a gap before a record."""
        if self._kept is None:
            return None
        return self._kept.between(self._directory, (begin, end), (self._last_place, physical_offset))

    def _write(self, stream_position: int, units: NDArray[Any]) -> None:
        """Write units, those of tombstones dead, so that nobody receives a message that nobody sent."""
        self._dead_end = None
        for index, place in enumerate(units["physical_offset"].tolist()) if self._log.tombstones else ():
            if place in self._log.tombstones:
                unit = self._log.dead_unit(place, in_front=False)
                if unit is not None and index == len(units) - 1:
                    self._dead_end = stream_position + index * UNIT_SIZE, place + int(units["record_size"][index])
                units[index] = units[index] if unit is None else unit[0]
        super()._write(stream_position, units)

    def finish(self) -> None:
        """Let a dead unit at the queue's end reach to the end of its tombstone.

        By the last unit brokers tell what of the log is in the queues. What comes after it, 5.3.2 to 5.4.0 enter once
        more, and do not start where the last file of a queue is full.
        """
        if self._dead_end is None:
            return
        position, tombstone_end = self._dead_end
        unit = self._log.dead_unit(tombstone_end - 1, in_front=False)
        assert unit is not None, "it was written there"
        unit["record_size"] = tombstone_end - unit["physical_offset"]
        super()._write(position, unit)

    def _note_times(self, entries: QueueEntries) -> None:
        positions = entries.queue_offsets * UNIT_SIZE
        starts = positions - positions % self._file_size
        last = np.flatnonzero(np.append(starts[1:] != starts[:-1], True))
        for index in last.tolist():
            self.file_times_ms[int(starts[index])] = int(entries.store_timestamps_ms[index])


def _part(entries: QueueEntries, start: int, stop: int) -> QueueEntries:
    if start == 0 and stop == entries.queue_offsets.size:
        return entries
    columns: list[Any] = [column[start:stop] for column in entries[3:]]
    return QueueEntries(*entries[:3], *columns)

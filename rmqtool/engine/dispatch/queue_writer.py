"""Writes one consume queue as the broker does, out of place and ignored entries included; batch queues likewise.

Broker: `ConsumeQueue#putMessagePositionInfo`, `#fillPreBlank`, `MappedFileQueue#getLastMappedFile`,
`BatchConsumeQueue#putMessagePositionInfoWrapper`, `#putBatchMessagePositionInfo`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import Int64s, QueueEntries
from rmqtool.engine.queues.loaded_files import LoadedFiles
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE, FILLER_UNIT, UNIT, UNIT_SIZE
from rmqtool.quantities import JAVA_LONG_MAX, OFFSETS_END
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.sink import FileSink

_UNIT: Final = UNIT.dtype
NOT_COMPACTED: Final = -1


@dataclass(frozen=True)
class QueueEnd:
    """Where writing continues; the default is a queue without files.

    Attributes:
        last_start: stream position at which the last file begins, None without files.
        end: stream position after the last unit.
        physical_offset: broker's maxPhysicOffset: up to there records count as entered already.
        last_path: the last file's path; None where its name is the usual one.
    """

    last_start: int | None = None
    end: int = 0
    physical_offset: int = -1
    last_path: str | None = field(default=None, compare=False)


def queue_end(loaded: LoadedFiles, rules: BrokerRules) -> QueueEnd:
    """The end of a queue of either kind, as the broker finds it at start (`ConsumeQueue#recover`).

    Before the first entry stands filler, and a queue that ends within it takes no record below 2 GiB any more.

    Raises:
        UnreadableError: the last unit cannot be read.
    """
    last = loaded.last
    if last is None:
        return QueueEnd()
    position = loaded.last_unit_position()
    physical_offset = loaded.physical_end(*position, rules) if position is not None else -1
    return QueueEnd(last.start, loaded.end, physical_offset, last.path)


class StreamWriter:
    """A stream that is cut into files of one size, as queues and their extensions are.

    What writes raises WriteError where the sink does not take it.
    """

    def __init__(
        self, sink: FileSink, directory: str, file_size: int, last_file: tuple[int | None, str | None], end: int
    ) -> None:
        """Continue at an end.

        Args:
            last_file: stream position at which the last file begins (None without files), and its path where the name
                is not the usual one.
            end: stream position after what is written.
        """
        self._sink = sink
        self._directory = directory
        self._file_size = file_size
        self._last_start = last_file[0]
        self._known_path = last_file
        self._end = end

    def _path(self, start: int) -> str:
        known_start, known_path = self._known_path
        return known_path if known_path and start == known_start else f"{self._directory}/{segment_name(start)}"


class UnitWriter(StreamWriter):
    """A queue of either kind on its way: units of one size in files that follow one another.

    Attributes:
        ignored: entries that were left out, as the broker does with what it takes for a repetition.
        first_queue_offset: that of the first record that was put; None before it.
        begin: stream position of the first unit of a queue that began with this writer; None for one that was there.
    """

    def __init__(self, sink: FileSink, directory: str, file_size: int, unit_size: int, end: QueueEnd | None) -> None:
        """Continue at an end, or begin a queue; no file is made before the first entry.

        Args:
            directory: path of the queue in the store.
            file_size: bytes of a full file, a multiple of the unit's.
        """
        assert file_size > 0, file_size
        assert file_size % unit_size == 0, file_size
        end = end or QueueEnd()
        super().__init__(sink, directory, file_size, (end.last_start, end.last_path), end.end)
        self._physical_offset = end.physical_offset
        self.ignored = 0
        self.first_queue_offset: int | None = None
        self.begin: int | None = None

    @property
    def end(self) -> QueueEnd:
        """Where writing continues."""
        return QueueEnd(self._last_start, self._end, self._physical_offset)

    def _file_for(self, first: int) -> int:
        """Start of the last file, or of a new one where it has no room; the first of all holds position `first`."""
        if self._last_start is None:
            self._last_start, self._end, self.begin = first - first % self._file_size, first, first
        elif self._end >= self._last_start + self._file_size:
            self._last_start = self._end = self._last_start + self._file_size
        else:
            return self._last_start
        self._sink.create(self._path(self._last_start), self._file_size)
        return self._last_start

    def _write(self, stream_position: int, units: NDArray[Any]) -> None:
        assert self._last_start is not None
        self._sink.write_at(self._path(self._last_start), stream_position - self._last_start, units.tobytes())


class QueueWriter(UnitWriter):
    """One queue of 20-byte units.

    Attributes:
        misplaced: entries that stand at another queue offset than their record says.
    """

    def __init__(
        self, sink: FileSink, directory: str, file_size: int, rules: BrokerRules, end: QueueEnd | None = None
    ) -> None:
        super().__init__(sink, directory, file_size, UNIT_SIZE, end)
        self._ends_at_start = rules.queue_end_is_record_start
        self.misplaced = 0

    def shows(self, entries: QueueEntries) -> NDArray[np.bool_]:
        """Mask of the entries that get a unit that leads to their record."""
        return np.ones(entries.physical_offsets.size, np.bool_)

    def put(self, entries: QueueEntries, tags_codes: Int64s | None = None) -> None:
        """Enter records.

        Args:
            entries: in log order.
            tags_codes: what stands in the units instead of the entries' own, as addresses in the extension.
        """
        units = np.empty(entries.physical_offsets.size, _UNIT)
        units["physical_offset"] = entries.physical_offsets
        units["record_size"] = entries.record_sizes
        units["tags_code"] = entries.tags_codes if tags_codes is None else tags_codes
        ends = entries.physical_offsets
        if not self._ends_at_start:
            ends = ends + entries.record_sizes
        queue_offsets = entries.queue_offsets
        if self.first_queue_offset is None and ends.size:
            self.first_queue_offset = int(queue_offsets[0])
        if ends.size > 1 and not (ends[1:] > ends[:-1]).all():
            # Not the order of a log: what an entry raises may hide the next one, so they go one by one.
            for index in range(ends.size):
                one = slice(index, index + 1)
                self._put_rising(queue_offsets[one], units[one], ends[one])
            return
        self._put_rising(queue_offsets, units, ends)

    def _put_rising(self, queue_offsets: Int64s, units: NDArray[Any], ends: Int64s) -> None:
        """Enter records whose ends rise: those that count as entered already are the first ones."""
        known = int(np.searchsorted(ends, self._physical_offset, side="right"))
        self.ignored += known
        if known == ends.size:
            return
        breaks = np.flatnonzero(queue_offsets[known + 1 :] - queue_offsets[known:-1] != 1) + known + 1
        start = known
        for stop in [*breaks.tolist(), ends.size]:
            self._put_run(int(queue_offsets[start]), units[start:stop], ends[start:stop])
            start = stop

    def _put_run(self, queue_offset: int, units: NDArray[Any], ends: Int64s) -> None:
        at, count = 0, units.size
        while at < count:
            expected = ((queue_offset + at) * UNIT_SIZE + OFFSETS_END) % (
                2 * OFFSETS_END
            ) - OFFSETS_END  # in a Java long
            if not 0 <= expected <= JAVA_LONG_MAX - self._file_size:
                self.ignored += 1  # no file can have that name
                at += 1
                continue
            last_start = self._file_for(expected)
            if queue_offset + at and expected < self._end:
                # A queue that ends within a unit, as odd files make it, has the place of that unit too.
                repeated = min(count - at, -(-(self._end - expected) // UNIT_SIZE))
                self.ignored += repeated
                at += repeated
                continue
            room = (last_start + self._file_size - self._end) // UNIT_SIZE
            if room <= 0:
                self.ignored += count - at  # the file is not full, and takes no unit any more
                return
            # Queue offset 0 goes wherever the queue ends; the next one is then judged again.
            entered = 1 if queue_offset + at == 0 < self._end else min(count - at, room)
            if expected != self._end:
                self.misplaced += entered
            self._write(self._end, units[at : at + entered])
            self._end += entered * UNIT_SIZE
            at += entered
            self._physical_offset = int(ends[at - 1])

    def _file_for(self, first: int) -> int:
        """Start of the last file, or of a new one where it has no room; the queue's first file begins with filler."""
        is_first = self._last_start is None
        start = super()._file_for(first)
        if is_first and first != start:
            self._write(start, np.array([FILLER_UNIT], _UNIT).repeat((first - start) // UNIT_SIZE))
        return start


class BatchQueueWriter(UnitWriter):
    """One queue of 46-byte units. Its end's physical offset is the start of the last record, not the end.

    Left out, and counted as `ignored`, is what is known already, or has numbers that mean nothing.
    """

    def __init__(self, sink: FileSink, directory: str, file_size: int, end: QueueEnd | None = None) -> None:
        super().__init__(sink, directory, file_size, BATCH_UNIT_SIZE, end)

    def put(self, entries: QueueEntries) -> None:
        """Enter records, in log order."""
        begins = entries.physical_offsets
        if self.first_queue_offset is None and begins.size:
            self.first_queue_offset = int(entries.queue_offsets[0])
        sound = (entries.queue_offsets >= 0) & (entries.batch_sizes >= 0)
        # Each that is entered raises the mark for those after it; one below the mark changes nothing.
        marks = np.maximum.accumulate(np.concatenate([[self._physical_offset], np.where(sound, begins, -1)]))
        entered = sound & (begins > marks[:-1])
        count = int(entered.sum())
        self.ignored += begins.size - count
        units = np.zeros(count, BATCH_UNIT.dtype)
        units["physical_offset"] = begins[entered]
        units["record_size"] = entries.record_sizes[entered]
        units["tags_code"] = entries.tags_codes[entered]
        units["store_timestamp_ms"] = entries.store_timestamps_ms[entered]
        units["base_queue_offset"] = entries.queue_offsets[entered]
        units["batch_size"] = entries.batch_sizes[entered]
        units["compacted_offset"] = NOT_COMPACTED
        at = 0
        while at < count:
            room = self._file_for(0) + self._file_size - self._end
            written = min(count - at, room // BATCH_UNIT_SIZE)
            if written <= 0:
                self.ignored += count - at  # the file is not full, and takes no unit any more
                return
            self._write(self._end, units[at : at + written])
            self._end += written * BATCH_UNIT_SIZE
            at += written
            self._physical_offset = int(units["physical_offset"][at - 1])

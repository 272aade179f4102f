"""One queue after its files were looked at alone: which places hold what, and where its units point to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqtool.errors import UnreadableError
from rmqtool.formats import consumequeue
from rmqtool.store.source import ByteSource, read_salvaging
from rmqtool.verify.survey.offset_runs import Array, OffsetRuns

Open = Callable[[str], ByteSource]
Span = tuple[int, int]
"""Places [begin, end) of a queue, counted in units."""


class UnitFile(NamedTuple):
    """One file of a queue: `first` is the place of its first unit in the queue, counted in units."""

    path: str
    first: int
    unit_count: int

    @property
    def end(self) -> int:
        return self.first + self.unit_count


@dataclass(frozen=True)
class QueueMap:
    """A queue's files and units.

    Attributes:
        units: where the units point to that count: neither filler nor dead, nor behind the queue's end.
        end: place behind the last unit that counts; the first place of all where none does.
        gaps: invalid units in front of `end`.
        zero_files: files without any byte but zero.
        bad_files: what files of a wrong length lack; it is reported already.
        absent_files: what lies between files that do not follow each other; it is reported already.
    """

    topic: str
    queue_id: int
    is_batch: bool
    directory: str
    files: tuple[UnitFile, ...]
    units_per_file: int
    units: OffsetRuns
    end: int
    gaps: tuple[Span, ...] = ()
    dead: tuple[Span, ...] = ()
    zero_files: tuple[Span, ...] = ()
    bad_files: tuple[Span, ...] = ()
    absent_files: tuple[Span, ...] = ()

    @property
    def unit_size(self) -> int:
        return consumequeue.BATCH_UNIT_SIZE if self.is_batch else consumequeue.UNIT_SIZE

    @property
    def first(self) -> int:
        """The first place of all that a file holds."""
        return self.files[0].first if self.files else 0

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    def file_at(self, place: int) -> UnitFile | None:
        """The file that holds a place."""
        return next((file for file in self.files if file.first <= place < file.end), None)

    def position(self, place: int) -> tuple[str, int | None]:
        """File and file position of a place; the directory where no file holds it."""
        file = self.file_at(place)
        return (file.path, (place - file.first) * self.unit_size) if file else (self.directory, None)

    def read(self, open_file: Open, begin: int, end: int) -> tuple[Array, Array]:
        """Places and units of [begin, end); what cannot be read is zero, what no file holds is left out."""
        dtype = consumequeue.unit_format(is_batch=self.is_batch).dtype
        places, units = [np.empty(0, np.int64)], [np.empty(0, dtype)]
        for file in self.files:
            low, high = max(begin, file.first), min(end, file.end)
            if low < high:
                buffer = bytearray((high - low) * self.unit_size)
                try:
                    source = open_file(file.path)
                except UnreadableError:
                    continue
                try:
                    read_salvaging(source, (low - file.first) * self.unit_size, memoryview(buffer))
                finally:
                    source.close()
                places.append(np.arange(low, high))
                units.append(np.frombuffer(buffer, dtype))
        if len(places) == 2:
            return places[1], units[1]
        return np.concatenate(places), np.concatenate(units)

    def pointing_into(self, open_file: Open, begin: int, end: int) -> tuple[Array, Array]:
        """Places and units, in order of the log, of those that point into [begin, end)."""
        places, units = [np.empty(0, np.int64)], [np.empty(0, consumequeue.unit_format(is_batch=self.is_batch).dtype)]
        for low, high in self.units.ranges(begin, end):
            found_places, range_units = self.read(open_file, low, high)
            offsets = range_units["physical_offset"].astype(np.int64)
            inside = self.units.chosen(found_places, offsets, begin, end)
            places.append(found_places if inside.all() else found_places[inside])
            units.append(range_units if inside.all() else range_units[inside])
        if len(places) == 2:
            return places[1], units[1]
        all_places, all_units = np.concatenate(places), np.concatenate(units)
        order = np.argsort(all_units["physical_offset"], kind="stable")
        return all_places[order], all_units[order]

    def count_in(self, open_file: Open, begin: int, end: int) -> Span:
        """How many units point into [begin, end), and the place of the first one (-1 without)."""
        count, first = 0, -1
        for low, high in self.units.ranges(begin, end):
            whole = self.units.runs[(self.units.runs["begin"] <= low) & (self.units.runs["end"] >= high)]
            if len(whole) and whole[0]["first"] >= begin and whole[0]["last"] < end:
                place, amount = low, high - low
            else:
                places, units = self.read(open_file, low, high)
                inside = np.flatnonzero(self.units.chosen(places, units["physical_offset"], begin, end))
                if not inside.size:
                    continue
                place, amount = int(places[inside[0]]), int(inside.size)
            count += amount
            first = place if first < 0 else min(first, place)
        return count, first

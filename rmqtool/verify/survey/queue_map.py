"""One queue after its files were read alone: its places, and the targets of its units, as runs.

A store may have a million queues, whose maps take some 2 KB each. So they are in memory while there is room, and in a
temporary file from there on: of those the process keeps a name, a place and the range of the log that their units point
into, some 300 bytes.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.errors import UnreadableError, WriteError
from rmqtool.formats import consumequeue
from rmqtool.formats.queue_name import QueueKey, topic_bytes, topic_text
from rmqtool.memory import memory_budget
from rmqtool.scan.compiled import is_worth, load_kernel
from rmqtool.store.source import ByteSource, read_salvaging, reason

SAMPLE_EVERY: Final = 256
RUNS_MAX: Final = 1 << 18
"""Runs of one list that are followed; in 300,000 units in senseless order there are about half as many."""
RUNS_APART: Final = 256
"""Runs that are read each by itself."""
RANGE_MAX: Final = 1 << 18
COMPILED_FROM_UNITS: Final = 1 << 18
"""Units of one range from which loading the compiled comparison pays."""
KERNEL: Final = "rmqtool.engine.dispatch.unit_kernel"
RUN: Final = np.dtype([("begin", "i8"), ("end", "i8"), ("first", "i8"), ("last", "i8")])
"""A run: members [begin, end) by place, and the physical offsets of its first and last member."""

_UNIT: Final = consumequeue.unit_format(is_batch=False).dtype
_BATCH_UNIT: Final = consumequeue.unit_format(is_batch=True).dtype
Array = NDArray[Any]


@dataclass(frozen=True)
class OffsetRuns:
    """The runs of one list, and the offsets at every `SAMPLE_EVERY`-th place; `dropped` members are in no run."""

    runs: Array
    sample_places: Array
    sample_offsets: Array
    dropped: int = 0

    def ranges(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Places [low, high) that together hold all members which point into [begin, end); see `chosen`."""
        touched = self._touching(begin, end)
        if len(touched) <= RUNS_APART:
            narrowed = []
            for low, high in touched[["begin", "end"]].tolist():
                places, offsets = self._samples(low, high)
                first, behind = offsets.searchsorted((begin, end)).tolist()
                start = int(places[first - 1]) if first > 0 else low
                stop = min(high, int(places[behind]) + 1) if behind < len(places) else high
                narrowed.append((start, stop))
            return narrowed
        # Very many short runs: read what lies between them too.
        apart = np.flatnonzero(touched["begin"][1:] - touched["end"][:-1] > SAMPLE_EVERY)
        lows = touched["begin"][np.concatenate([[0], apart + 1])].tolist()
        highs = touched["end"][np.concatenate([apart, [len(touched) - 1]])].tolist()
        return [
            (at, min(at + RANGE_MAX, high))
            for low, high in zip(lows, highs, strict=True)
            for at in range(low, high, RANGE_MAX)
        ]

    def touches(self, begin: int, end: int) -> bool:
        """True if a run may have members that point into [begin, end)."""
        return bool(len(self._touching(begin, end)))

    def inner(self, begin: int, end: int) -> tuple[int, int] | None:
        """Sampled places [first, stop) between which all members of the only run that does point into [begin, end)."""
        low, high = self._touching(begin, end)[0][["begin", "end"]].tolist()
        places, offsets = self._samples(low, high)
        first, behind = offsets.searchsorted((begin, end)).tolist()
        return (int(places[first]), int(places[behind - 1])) if behind - first > 1 else None

    def chosen(self, places: Array, physical_offsets: Array, begin: int, end: int) -> Array:
        """Mask of the members of one of the ranges that point into [begin, end) and are in a run."""
        inside = (physical_offsets >= begin) & (physical_offsets < end)
        touched = self._touching(begin, end)
        if len(touched) > RUNS_APART:
            of_run = np.searchsorted(touched["begin"], places, side="right") - 1
            inside &= (of_run >= 0) & (places < touched["end"][of_run])
        return np.asarray(inside)

    def _touching(self, begin: int, end: int) -> Array:
        return self.runs[(self.runs["first"] < end) & (self.runs["last"] >= begin)]

    def _samples(self, low: int, high: int) -> tuple[Array, Array]:
        """Sampled places within [low, high), and the offsets there."""
        first, stop = self.sample_places.searchsorted((low, high)).tolist()
        return self.sample_places[first:stop], self.sample_offsets[first:stop]

    @property
    def drops(self) -> Array:
        """The runs that begin at an older record than the run before ended with."""
        return self.runs[1:][self.runs["first"][1:] <= self.runs["last"][:-1]]


@dataclass
class RunsBuilder:
    """Takes the members in order of their places, a block at a time; equal offsets in a row may be in order."""

    may_repeat: bool = False
    _runs: list[Array] = field(default_factory=list)
    _samples: list[tuple[Array, Array]] = field(default_factory=list)
    _count: int = 0
    _dropped: int = 0

    def take(self, place: int, physical_offsets: Array) -> None:
        """Take members at `place`, `place` + 1 and so on."""
        offsets = physical_offsets
        steps = offsets[1:] < offsets[:-1] if self.may_repeat else offsets[1:] <= offsets[:-1]
        bounds = np.concatenate([[0], np.flatnonzero(steps) + 1, [len(offsets)]])
        runs = np.empty(len(bounds) - 1, RUN)
        runs["begin"], runs["end"] = place + bounds[:-1], place + bounds[1:]
        runs["first"], runs["last"] = offsets[bounds[:-1]], offsets[bounds[1:] - 1]
        if self._runs:
            last = self._runs[-1][-1]
            rises = last["last"] < runs[0]["first"] or (self.may_repeat and last["last"] == runs[0]["first"])
            if last["end"] == runs[0]["begin"] and rises:
                last["end"], last["last"] = runs[0]["end"], runs[0]["last"]
                runs = runs[1:]
        kept = runs[: max(0, RUNS_MAX - self._count)]
        if len(kept) < len(runs):
            self._dropped += int((runs["end"] - runs["begin"])[len(kept) :].sum())
        if len(kept):
            self._runs.append(kept)
            self._count += len(kept)
        sampled = np.arange(-place % SAMPLE_EVERY, len(offsets), SAMPLE_EVERY)
        if sampled.size:
            self._samples.append((place + sampled, offsets[sampled]))

    def finish(self) -> OffsetRuns:
        return OffsetRuns(
            np.concatenate(self._runs) if self._runs else np.empty(0, RUN),
            np.concatenate([places for places, _ in self._samples] or [np.empty(0, np.int64)]),
            np.concatenate([offsets for _, offsets in self._samples] or [np.empty(0, np.int64)]),
            self._dropped,
        )


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
        units: where the units point to that count: neither filler nor dead, nor after the queue's end.
        end: place after the last unit that counts; the first place of all where none does.
        gaps: invalid units before `end`.
        zero_files: files without any byte but zero.
        bad_files: what files of a wrong length lack; it is reported already.
        absent_files: what lies between files that do not follow each other; it is reported already.
        unit_count: units that count.
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
    unit_count: int = 0

    @property
    def unit_size(self) -> int:
        return consumequeue.BATCH_UNIT_SIZE if self.is_batch else consumequeue.UNIT_SIZE

    @property
    def unit_type(self) -> np.dtype[Any]:
        return _BATCH_UNIT if self.is_batch else _UNIT

    @property
    def first(self) -> int:
        """The first place of all that a file holds."""
        return self.files[0].first if self.files else 0

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    def position(self, place: int) -> tuple[str, int | None]:
        """File and file position of a place; the directory where no file holds it."""
        file = next((file for file in self.files if file.first <= place < file.end), None)
        return (file.path, (place - file.first) * self.unit_size) if file else (self.directory, None)

    def read(self, open_file: Open, begin: int, end: int) -> tuple[Array, Array]:
        """Places and units of [begin, end); unreadable ones are zero, those outside all files are left out."""
        dtype = self.unit_type
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

    def differing(
        self, open_file: Open, begin: int, end: int, expected: QueueEntries | None
    ) -> tuple[Array, Array] | None:
        """Units as from `pointing_into`; None where a check of all of them shows that they are those expected."""
        ranges = self.units.ranges(begin, end)
        if expected is None or len(ranges) != 1 or self.unit_type.itemsize != consumequeue.UNIT_SIZE:
            return self.pointing_into(open_file, begin, end)
        ((low, high),) = ranges
        places, units = self.read(open_file, low, high)
        if len(units) == high - low and is_worth(len(units), COMPILED_FROM_UNITS):
            columns = expected.queue_offsets, expected.physical_offsets, expected.record_sizes, expected.tags_codes
            if load_kernel(KERNEL).are_met(units.view(np.uint8), low, begin, end, *columns):
                return None
        return self._chosen([(places, units)], begin, end)

    def pointing_into(self, open_file: Open, begin: int, end: int) -> tuple[Array, Array]:
        """Places and units, in order of the log, of those that point into [begin, end)."""
        ranges = self.units.ranges(begin, end)
        return self._chosen((self.read(open_file, low, high) for low, high in ranges), begin, end)

    def _chosen(self, read: Iterable[tuple[Array, Array]], begin: int, end: int) -> tuple[Array, Array]:
        places, units = [np.empty(0, np.int64)], [np.empty(0, self.unit_type)]
        for found_places, range_units in read:
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
        """Number of units that point into [begin, end), and the place of the first one (-1 without)."""
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


MEMORY_MAX: Final = 1 << 60
"""Bytes of maps that stay in memory without a limit."""
MAP_BYTES: Final = 1536
FILE_BYTES: Final = 256
"""Memory for a map without its arrays, and for each of its files."""


class _Content(msgspec.Struct, array_like=True, frozen=True):
    """A map as it lies in the file; the names of topics are no text, so paths are bytes."""

    is_batch: bool
    directory: bytes
    files: tuple[tuple[bytes, int, int], ...]
    units_per_file: int
    end: int
    spans: tuple[tuple[Span, ...], tuple[Span, ...], tuple[Span, ...], tuple[Span, ...], tuple[Span, ...]]
    unit_count: int
    dropped: int
    runs: bytes
    sample_places: bytes
    sample_offsets: bytes


class QueueMaps(Mapping[QueueKey, QueueMap]):
    """Maps by topic and queue id, in the order in which they were added."""

    def __init__(self) -> None:
        self._memory_left = memory_budget().share(MEMORY_MAX, 8)
        self._places: dict[QueueKey, QueueMap | int] = {}
        """A map, or the number of one that lies in the file."""
        self._bounds = array("q", [0])
        """Where each map in the file ends."""
        self._firsts, self._lasts = array("q"), array("q")
        """The oldest and the newest record that a unit of it points to."""
        self._file: IO[bytes] | None = None

    def add(self, key: QueueKey, queue: QueueMap) -> None:
        """Keep the map of a queue; WriteError if the temporary file does not take it."""
        units = queue.units
        size = units.runs.nbytes + units.sample_places.nbytes + units.sample_offsets.nbytes
        self._memory_left -= MAP_BYTES + FILE_BYTES * len(queue.files) + size
        if self._memory_left >= 0:
            self._places[key] = queue
            return
        content = msgspec.msgpack.encode(
            _Content(
                queue.is_batch,
                topic_bytes(queue.directory),
                tuple((topic_bytes(file.path), file.first, file.unit_count) for file in queue.files),
                queue.units_per_file,
                queue.end,
                (queue.gaps, queue.dead, queue.zero_files, queue.bad_files, queue.absent_files),
                queue.unit_count,
                units.dropped,
                units.runs.tobytes(),
                units.sample_places.astype(np.int64, copy=False).tobytes(),
                units.sample_offsets.astype(np.int64, copy=False).tobytes(),
            )
        )
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the last reference
                weakref.finalize(self, self._file.close)
            if os.pwrite(self._file.fileno(), content, self._bounds[-1]) < len(content):
                raise WriteError(f"{tempfile.gettempdir()}: no space left for what --max-memory keeps out of memory")
        except OSError as error:
            raise WriteError(f"{tempfile.gettempdir()}: {reason(error)}") from error
        self._places[key] = len(self._firsts)
        self._bounds.append(self._bounds[-1] + len(content))
        self._firsts.append(int(units.runs["first"].min(initial=0)))
        self._lasts.append(int(units.runs["last"].max(initial=-1)))

    def into(self, begin: int, end: int) -> Iterator[tuple[QueueKey, QueueMap]]:
        """The queues, in order, of which some may have units that point into [begin, end) of the log."""
        for key, place in self._places.items():
            if not isinstance(place, int):
                yield key, place
            elif self._firsts[place] < end and self._lasts[place] >= begin:
                yield key, self._read(key, place)

    def __getitem__(self, key: QueueKey) -> QueueMap:
        place = self._places[key]
        return self._read(key, place) if isinstance(place, int) else place

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A process elsewhere gets them all."""
        return dict, (dict(self),)

    def _read(self, key: QueueKey, number: int) -> QueueMap:
        assert self._file is not None, "a map lies in a file that was never made"
        start, end = self._bounds[number], self._bounds[number + 1]
        try:
            content = os.pread(self._file.fileno(), end - start, start)
        except OSError as error:
            raise WriteError(f"{tempfile.gettempdir()}: {reason(error)}") from error
        stored = msgspec.msgpack.decode(content, type=_Content)
        runs = OffsetRuns(
            np.frombuffer(stored.runs, RUN),
            np.frombuffer(stored.sample_places, np.int64),
            np.frombuffer(stored.sample_offsets, np.int64),
            stored.dropped,
        )
        return QueueMap(
            topic_text(key[0]),
            key[1],
            stored.is_batch,
            topic_text(stored.directory),
            tuple(UnitFile(topic_text(path), first, count) for path, first, count in stored.files),
            stored.units_per_file,
            runs,
            stored.end,
            *stored.spans,
            stored.unit_count,
        )

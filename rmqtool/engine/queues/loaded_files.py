"""The files of one queue: where recovery ends it, and which unit is the first that counts as readable.

Broker: `MappedFileQueue#load`, `#truncateDirtyFiles`, `ConsumeQueue#recover`, `BatchConsumeQueue#recover`,
`ConsumeQueue#correctMinOffset`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple

from rmqtool.engine.queues.unit import BATCH_UNITS, PLAIN, UnitKind, whole_units
from rmqtool.engine.rules.broker_rules import BrokerRules, MinOffsetSearch
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.formats.consumequeue import DEFAULT_FILE_UNITS, UNIT_SIZE
from rmqtool.quantities import JAVA_LONG_MAX, OFFSETS_END
from rmqtool.store.directory import QueueFiles, Segment

FILES_EXAMINED: Final = 3
"""Recovery reads this many files from the end and trusts the ones before."""
BLOCK_UNITS: Final = 4096
READ_UNITS: Final = 4096
"""Units that are read ahead while iterating."""
READ_WHOLE_BYTES: Final = 1 << 18
"""Of a file that takes up to this much on the disk all units are read to find its end quickly."""
NO_ODD_LENGTHS: Final[Mapping[str, int]] = MappingProxyType({})
_SUMMARY: Final = Struct(">5q")


@cache
def valid_units_question(file_size: int, kind: UnitKind) -> Hashable:
    """Asks a file for the `UnitsSummary` of the valid units that it begins with, packed."""
    return "valid units", file_size, kind


class UnitsSummary(NamedTuple):
    """Summary of the valid units at the start of a file.

    Attributes:
        length: bytes of them.
        highest: the highest physical offset in them; -1 without.
        first: physical offset in the first one.
        last: physical offset in the last one.
        last_size: size of the last one's record.
    """

    length: int
    highest: int
    first: int
    last: int
    last_size: int

    def joined(self, units: bytes | bytearray, kind: UnitKind) -> UnitsSummary:
        """The summary extended by the valid units that follow."""
        import numpy as np

        if not units:
            return self
        begins = np.frombuffer(units, np.uint8).reshape(-1, kind.size)[:, :8].copy().view(">i8")
        last, last_size = kind.form.unpack(units[-kind.size :])[:2]
        first = self.first if self.length else int(begins[0, 0])
        return UnitsSummary(self.length + len(units), max(self.highest, int(begins.max())), first, last, last_size)

    def packed(self) -> bytes:
        """The summary in a few bytes: one is kept for each file of a queue."""
        return _SUMMARY.pack(*self)


NO_UNITS: Final = UnitsSummary(0, -1, 0, 0, 0)


class LoadedFiles:
    """A queue's files up to the end of its units. File sizes and positions in bytes.

    Every method raises UnreadableError where the disk does not give what it reads.

    Attributes:
        segments: its files in order.
        end: stream position after the last unit.
        odd_lengths: bytes that are read of files, by path, where the end does not tell them.
    """

    __slots__ = ("_files", "end", "file_size", "kind", "odd_lengths", "segments")

    def __init__(self, segments: Iterable[Segment], file_size: int, kind: UnitKind, files: OpenFiles) -> None:
        """Take a queue as a load finds it: up to the end of its last file, which is `file_size` bytes long."""
        self.kind = kind
        self.file_size = file_size
        self.segments: list[Segment] = list(segments)
        self.end = self.segments[-1].start + file_size if self.segments else 0
        self.odd_lengths: Mapping[str, int] = NO_ODD_LENGTHS
        self._files = files

    @classmethod
    def recovered(
        cls, queue: QueueFiles | None, file_size: int, kind: UnitKind, files: OpenFiles, *, quickly: bool = False
    ) -> LoadedFiles:
        """The queue as recovery leaves it; None is a queue without files.

        Args:
            quickly: find the end by a handful of reads, so that thousands of large queues take a second; it is the same
                one unless a unit in the middle is damaged.
        """
        if not quickly:
            file_size = file_size or DEFAULT_FILE_UNITS * kind.size
        loaded = cls(
            with_content(queue.segments) if queue is not None and file_size > 0 else (), file_size, kind, files
        )
        loaded.recover(loaded.likely_length if quickly else loaded.valid_length)
        loaded.segments = [segment for segment in loaded.segments if segment.start <= loaded.end]
        return loaded

    def recover(self, length_of: Callable[[Segment], int]) -> tuple[Segment, int] | None:
        """End the queue at the first invalid unit of the last files; the last unit's file and position in it.

        Args:
            length_of: bytes of the valid units that a file begins with.
        """
        last = None
        for segment in self.segments[-FILES_EXAMINED:]:
            length = length_of(segment)
            self.end = segment.start + length
            last = (segment, length - self.kind.size) if length else last
            if length != self.file_size:
                break
        return last

    @property
    def first(self) -> Segment | None:
        return self.segments[0] if self.segments else None

    @property
    def last(self) -> Segment | None:
        return self.segments[-1] if self.segments else None

    def length(self, segment: Segment) -> int:
        """Bytes of a file that hold units."""
        odd_length = self.odd_lengths.get(segment.path)
        return max(0, min(self.file_size, self.end - segment.start)) if odd_length is None else odd_length

    def lengths(self) -> list[int]:
        """Lengths of all files."""
        return [self.length(segment) for segment in self.segments]

    def last_unit_position(self) -> tuple[Segment, int] | None:
        """The last unit's file and position in it; None without units."""
        for segment in reversed(self.segments):
            if length := self.length(segment):
                return segment, length - self.kind.size
        return None

    def segment_at(self, stream_position: int) -> Segment | None:
        """The file that holds a byte of the queue's stream (`MappedFileQueue#findMappedFileByOffset`)."""
        index = bisect_right(self.segments, stream_position, key=attrgetter("start")) - 1
        if index < 0 or stream_position >= self.segments[index].start + self.file_size:
            return None
        return self.segments[index]

    def next_start(self, stream_position: int) -> int:
        """Where the file that holds a byte of the stream, or else the one after it, begins or has that byte."""
        index = bisect_right(self.segments, stream_position, key=attrgetter("start"))
        if index and stream_position < self.segments[index - 1].start + self.file_size:
            return stream_position
        return self.segments[index].start if index < len(self.segments) else stream_position

    def read(self, segment: Segment, position: int, length: int) -> bytes:
        """Units from a position, zeros where the file is shorter than it should be."""
        readable = min(length, self.length(segment) - position)
        return self._files.read(segment.path, position, readable).ljust(max(0, readable), b"\0")

    def identity(self, segment: Segment) -> Hashable | None:
        """Identity of a file's content; None where nothing shows a change."""
        return self._files.identity(segment.path)

    def physical_offset_at(self, segment: Segment, position: int) -> int:
        """Where the record of a unit begins; units of every kind begin with it."""
        size = self.kind.size
        if (known := self.noted_units(segment)) is not None and size <= known.length:
            is_inside = position + size <= self.length(segment)
            if is_inside and position in (0, known.length - size):
                return known.last if position else known.first
        return int.from_bytes(self.read(segment, position, size)[:8], "big", signed=True)

    def physical_end(self, segment: Segment, position: int, rules: BrokerRules) -> int:
        """Broker's maxPhysicOffset as a unit shows it: the start or the end of its record, by kind and version.

        An end after all numbers is a negative one, as Java adds.
        """
        end_position, known = position + self.kind.size, self.noted_units(segment)
        if known is not None and end_position == known.length <= self.length(segment):
            begin, size = known.last, known.last_size
        else:
            begin, size = self.kind.form.unpack(self.read(segment, position, self.kind.size))[:2]
        is_start = self.kind is BATCH_UNITS or rules.queue_end_is_record_start
        end = int(begin if is_start else begin + size)
        return end if end <= JAVA_LONG_MAX else end - 2 * OFFSETS_END

    def valid_length(
        self, segment: Segment, start: int = 0, end: int | None = None, on_units: Callable[[bytes], None] | None = None
    ) -> int:
        """File position of the first invalid unit from a position on; where a file is too short, zeros are read.

        Args:
            on_units: is given the valid units, some at a time.
        """
        position, end = start, self.file_size if end is None else end
        while position < end:
            expected = min(BLOCK_UNITS * self.kind.size, end - position)
            block = self._files.read(segment.path, position, expected)
            valid = self.kind.valid_count(block) * self.kind.size
            position += valid
            if on_units is not None:
                on_units(block[:valid])
            if valid < expected:
                break
        return position

    def known_units(self, segment: Segment) -> UnitsSummary:
        """Summary of the valid units at the start of a file.

        Read once while the file stays the same, where the files have a cache.
        """
        question = valid_units_question(self.file_size, self.kind)
        packed = self._files.known(segment.path, question, lambda: self._read_units(segment).packed())
        return UnitsSummary._make(_SUMMARY.unpack(packed))

    def noted_units(self, segment: Segment) -> UnitsSummary | None:
        """Summary of the valid units as far as it is known without opening the file; else None."""
        packed = self._files.noted(segment.path, valid_units_question(self.file_size, self.kind))
        return None if packed is None else UnitsSummary._make(_SUMMARY.unpack(packed))

    def _read_units(self, segment: Segment) -> UnitsSummary:
        summary = NO_UNITS

        def note(units: bytes) -> None:
            nonlocal summary
            summary = summary.joined(units, self.kind)

        self.valid_length(segment, on_units=note)
        return summary

    def likely_length(self, segment: Segment) -> int:
        """Length of all units of a file, found by halving where it takes much room on the disk."""
        size = self.kind.size
        low, high = 0, min(self.file_size, segment.size) // size  # valid below, taken as invalid from `high` on
        while high - low > BLOCK_UNITS and segment.entry.allocated_bytes > READ_WHOLE_BYTES:
            middle = (low + high) // 2
            if self.kind.valid_count(self._files.read(segment.path, middle * size, size)) == 1:
                low = middle + 1
            else:
                high = middle
        return self.valid_length(segment, low * size, high * size)


def with_content(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Files without empty last ones, which a broker deletes at load, or on which it does not start."""
    while segments and segments[-1].size == 0:
        segments = segments[:-1]
    return segments


def minimum_position(
    loaded: LoadedFiles,
    rules: BrokerRules,
    log_minimum: int,
    known: int = 0,
    *,
    by_halving: bool = False,
    on_endless: Callable[[], None] | None = None,
) -> int:
    """Stream position of the first plain unit that counts as readable: the first file's first one not below the log.

    Args:
        log_minimum: first physical offset of the commitlog.
        known: the minimum before, which stays where no such unit is in the first file.
        by_halving: take the units for ordered where the version reads one after another.
        on_endless: called where the broker halves without end, as it does in a queue that ends within a unit.

    Raises:
        UnreadableError: a file cannot be read.
    """
    first, last = loaded.first, loaded.last
    if first is None or last is None:
        return known
    if rules.min_offset_search is MinOffsetSearch.LINEAR:
        if by_halving:
            position = _searched(loaded, first, log_minimum, known - first.start)
        else:
            position = _first_at_or_above(loaded, first, log_minimum)
        return known if position is None else first.start + position
    if known >= loaded.end and not (rules.empty_queue_examined_again and known == loaded.end):
        return known
    last_length = loaded.length(last)
    if last_length and loaded.physical_offset_at(last, last_length - UNIT_SIZE) < log_minimum:
        return last.start + last_length
    position = _searched(loaded, first, log_minimum, known - first.start, on_endless)
    return known if position is None else first.start + position


def _first_at_or_above(loaded: LoadedFiles, first: Segment, log_minimum: int) -> int | None:
    if loaded.length(first) >= UNIT_SIZE and loaded.physical_offset_at(first, 0) >= log_minimum:
        return 0
    position = 0
    while block := whole_units(loaded.read(first, position, READ_UNITS * UNIT_SIZE), UNIT_SIZE):
        for number, (physical_offset, _, _) in enumerate(PLAIN.iter_unpack(block)):
            if physical_offset >= log_minimum:
                return position + number * UNIT_SIZE
        position += len(block)
    return None


def _searched(
    loaded: LoadedFiles, first: Segment, log_minimum: int, known: int, on_endless: Callable[[], None] | None = None
) -> int | None:
    """Search by halving from the known minimum on; None where that stays."""
    length, start = loaded.length(first), max(0, known)
    if start >= length or (known >= 0 and loaded.physical_offset_at(first, start) >= log_minimum):
        return None
    low, high = 0, length - start - UNIT_SIZE
    while high - low > UNIT_SIZE:
        middle = (low + high) // 2 // UNIT_SIZE * UNIT_SIZE
        physical_offset = loaded.physical_offset_at(first, start + middle)
        if middle == low and physical_offset < log_minimum:
            if on_endless is not None:
                on_endless()
            break
        high = middle if physical_offset >= log_minimum else high
        low = middle if physical_offset <= log_minimum else low
    for position in range(low, high + 1, UNIT_SIZE):
        if loaded.physical_offset_at(first, start + position) >= log_minimum:
            return start + position
    return None

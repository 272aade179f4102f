"""The files of one queue after load: which are kept, and where reading ends.

Broker: `MappedFileQueue#load`, `#truncateDirtyFiles`, `ConsumeQueue#recover`, `BatchConsumeQueue#recover`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from rmqtool.engine.open_files import OpenFiles
from rmqtool.store.directory import QueueFiles, Segment

FILES_EXAMINED: Final = 3
"""Recovery reads this many files from the end and trusts the ones before."""
BLOCK_UNITS: Final = 50_000
DEFAULT_UNITS_PER_FILE: Final = 300_000


class LoadedFiles:
    """A queue's files with the positions up to which they hold units. File sizes and positions in bytes."""

    def __init__(
        self,
        found: QueueFiles | None,
        file_size: int,
        unit_size: int,
        files: OpenFiles,
        valid_count: Callable[[bytes], int],
    ) -> None:
        """Find the queue's end.

        Raises:
            UnreadableError: a file cannot be read.
        """
        self.unit_size = unit_size
        self.file_size: int = file_size or DEFAULT_UNITS_PER_FILE * unit_size
        self._files = files
        segments = found.segments if found is not None else ()
        # A last file of length 0 is deleted at load or keeps the broker from starting; there is nothing in it anyway.
        while segments and segments[-1].size == 0:
            segments = segments[:-1]
        self.end: int = self._recovered_end(segments, valid_count)
        self.segments: tuple[Segment, ...] = tuple(kept for kept in segments if kept.start <= self.end)
        self._starts = [segment.start for segment in self.segments]

    @property
    def first(self) -> Segment | None:
        return self.segments[0] if self.segments else None

    @property
    def last(self) -> Segment | None:
        return self.segments[-1] if self.segments else None

    def length(self, segment: Segment) -> int:
        """Bytes of a file that hold units."""
        return max(0, min(self.file_size, self.end - segment.start))

    def segment_at(self, stream_position: int) -> Segment | None:
        """The file that holds a byte of the queue's stream (`MappedFileQueue#findMappedFileByOffset`)."""
        index = bisect_right(self._starts, stream_position) - 1
        if index < 0 or stream_position >= self._starts[index] + self.file_size:
            return None
        return self.segments[index]

    def read(self, segment: Segment, position: int, length: int) -> bytes:
        """Units from a position, zeros where the file is shorter than it should be.

        Raises:
            UnreadableError: the file cannot be read.
        """
        wanted = min(length, self.length(segment) - position)
        return self._files.read(segment.path, position, wanted).ljust(max(0, wanted), b"\0")

    def _recovered_end(self, segments: tuple[Segment, ...], valid_count: Callable[[bytes], int]) -> int:
        end = 0
        for segment in segments[-FILES_EXAMINED:]:
            length = self._valid_length(segment, valid_count)
            end = segment.start + length
            if length != self.file_size:
                break
        return end

    def _valid_length(self, segment: Segment, valid_count: Callable[[bytes], int]) -> int:
        """Bytes of the valid units that a file begins with."""
        length = 0
        while length < self.file_size:
            wanted = min(BLOCK_UNITS * self.unit_size, self.file_size - length)
            block = self._files.read(segment.path, length, wanted)
            valid = valid_count(block) * self.unit_size
            length += valid
            if valid < wanted:
                break
        return length

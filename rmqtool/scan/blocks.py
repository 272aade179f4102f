"""A moving window over a byte source: blocks are read into one buffer, unreadable ranges become zeros and are remembered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from rmqtool.store.source import ByteSource, read_salvaging

BLOCK_SIZE = 512 << 10
"""Bytes of a window: with the rows made of it, about what a core keeps in its cache."""
_ZEROS = bytes(1 << 16)


class Window:
    """Bytes [start, end) of a source in one reused buffer.

    Attributes:
        buffer: the bytes; `buffer[0]` is file position `start`.
        unreadable: ranges of the file that the disk did not give, as far as they were met.
    """

    def __init__(self, source: ByteSource, block_size: int = BLOCK_SIZE) -> None:
        self.source = source
        self.block_size = min(block_size, max(source.size, 1))
        self.storage = bytearray(self.block_size)
        self.buffer = memoryview(self.storage)
        self.start = 0
        self.end = 0
        self.unreadable: list[tuple[int, int]] = []

    def fill(self, position: int) -> None:
        """Make `position` the window's start and read as much as fits; bytes that are there already are kept."""
        kept = self.end - position
        if 0 < kept <= self.end - self.start and position > self.start:
            self.buffer[:kept] = self.buffer[position - self.start : self.end - self.start]
        else:
            kept = 0
        self.start = position
        wanted = min(self.block_size, self.source.size - position)
        self._remember(read_salvaging(self.source, position + kept, self.buffer[kept:wanted]))
        self.end = position + wanted

    def bytes_at(self, position: int, length: int) -> bytes | memoryview:
        """A range of the file, from the window if it lies in it; shorter only behind the file's end."""
        length = max(0, min(length, self.source.size - position))
        if self.start <= position and position + length <= self.end:
            return self.buffer[position - self.start : position - self.start + length]
        buffer = bytearray(length)
        self._remember(read_salvaging(self.source, position, memoryview(buffer)))
        return buffer

    def chunks(self, start: int, end: int) -> Iterator[bytes | memoryview]:
        """The bytes of a range of any length, in parts of at most a block."""
        while start < end:
            part = self.bytes_at(start, min(self.block_size, end - start))
            if not part:
                return
            yield part
            start += len(part)

    def unreadable_in(self, start: int, end: int) -> tuple[int, int] | None:
        """The first unreadable range that touches [start, end)."""
        for bad_start, bad_end in self.unreadable:
            if bad_start < end and bad_end > start:
                return bad_start, bad_end
        return None

    def _remember(self, ranges: list[tuple[int, int]]) -> None:
        for found in ranges:
            at = bisect_right(self.unreadable, found)
            if found not in self.unreadable[max(0, at - 1) : at]:
                self.unreadable.insert(at, found)


def last_data_end(source: ByteSource, start: int, end: int) -> int:
    """Position behind the last byte of [start, end) that is not zero; `start` if there is none. Holes are not read."""
    for extent_start, extent_end in reversed(list(source.extents(start, end))):
        at = extent_end
        while at > extent_start:
            step = min(len(_ZEROS), at - extent_start)
            block = bytearray(step)
            # A range that cannot be read is no evidence of zeros: it counts as data.
            if read_salvaging(source, at - step, memoryview(block)):
                return at
            if (stripped := len(block.rstrip(b"\0"))) > 0:
                return at - step + stripped
            at -= step
    return start


def first_data(source: ByteSource, start: int, end: int) -> int:
    """Position of the first byte of [start, end) that is not zero; `end` if there is none."""
    for extent_start, extent_end in source.extents(start, end):
        at = extent_start
        while at < extent_end:
            step = min(len(_ZEROS), extent_end - at)
            block = bytearray(step)
            if read_salvaging(source, at, memoryview(block)):
                return at
            if len(stripped := block.lstrip(b"\0")) > 0:
                return at + step - len(stripped)
            at += step
    return end

"""A moving window over a byte source; unreadable bytes become zeros and are noted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from rmqtool.store.source import ByteSource, BytesSource, read_salvaging

BLOCK_SIZE: Final = 512 << 10
"""Bytes of a window: with the rows made of it, about what a core keeps in its cache."""
_FIRST_STEP: Final = 4 << 10
_STEP: Final = 64 << 10


class Window:
    """Bytes [start, end) of a source in one reused buffer.

    Attributes:
        buffer: the bytes; `buffer[0]` is file position `start`.
        unreadable: ranges of the file that the disk did not give, as far as they were met; in order and disjoint.
    """

    def __init__(self, source: ByteSource, block_size: int = BLOCK_SIZE) -> None:
        self.source = source
        self.block_size = min(block_size, max(source.size, 1))
        self.start = 0
        self.end = 0
        self.unreadable: list[tuple[int, int]] = []

    @cached_property
    def storage(self) -> bytearray:
        """Memory for the bytes; empty for a walk that reads nothing, since its bytes were seen before."""
        return bytearray(self.block_size)

    @cached_property
    def buffer(self) -> memoryview:
        return memoryview(self.storage)

    @classmethod
    def over(cls, source: BytesSource, content: bytearray) -> Window:
        """The window that is all of a source in memory, whose content is not copied."""
        window = cls(source, 0)
        window.block_size = window.end = len(content)
        window.storage = content
        return window

    def fill(self, position: int, until: int | None = None) -> None:
        """Make `position` the window's start and read on, up to `until`; bytes that are there already are kept."""
        kept = self.end - position
        if 0 < kept <= self.end - self.start and position > self.start:
            self.buffer[:kept] = self.buffer[position - self.start : self.end - self.start]
        else:
            kept = 0
        self.start = position
        until = self.source.size if until is None else until
        window_size = max(kept, min(self.block_size, until - position))
        self._note(read_salvaging(self.source, position + kept, self.buffer[kept:window_size]))
        self.end = position + window_size

    def bytes_at(self, position: int, length: int) -> bytes | bytearray | memoryview:
        """A range of the file, from the window if it lies in it; shorter only after the file's end."""
        length = max(0, min(length, self.source.size - position))
        if self.holds(position, position + length):
            return self.buffer[position - self.start : position - self.start + length]
        buffer = bytearray(length)
        self._note(read_salvaging(self.source, position, memoryview(buffer)))
        return buffer

    def holds(self, start: int, end: int) -> bool:
        """True if a range of the file is inside the window."""
        return self.start <= start and end <= self.end

    def chunks(self, start: int, end: int) -> Iterator[bytes | bytearray | memoryview]:
        """The bytes of a range of any length, in parts of at most a block."""
        while start < end:
            part = self.bytes_at(start, min(self.block_size, end - start))
            if not part:
                return
            yield part
            start += len(part)

    def unreadable_in(self, start: int, end: int) -> tuple[int, int] | None:
        """The first unreadable range that touches [start, end)."""
        at = bisect_right(self.unreadable, start, key=lambda byte_range: byte_range[1])
        if at < len(self.unreadable) and self.unreadable[at][0] < end:
            return self.unreadable[at]
        return None

    def readable_end(self, position: int) -> int:
        """File position up to which the window's bytes after `position` are those of the file."""
        byte_range = self.unreadable_in(position, self.end) if self.unreadable else None
        return self.end if byte_range is None else max(position, byte_range[0])

    def _note(self, ranges: list[tuple[int, int]]) -> None:
        for start, end in ranges:
            first = bisect_left(self.unreadable, start, key=lambda byte_range: byte_range[1])
            behind = bisect_right(self.unreadable, end, key=lambda byte_range: byte_range[0])
            touched = [(start, end), *self.unreadable[first:behind]]
            self.unreadable[first:behind] = [(min(part[0] for part in touched), max(part[1] for part in touched))]


def last_data_end(source: ByteSource, start: int, end: int) -> int:
    """Position after the last byte of [start, end) that is not zero; `start` if there is none. Holes are not read."""
    longest = _FIRST_STEP
    for extent_start, extent_end in reversed(list(source.extents(start, end))):
        at = extent_end
        while at > extent_start:
            step = min(longest, at - extent_start)
            longest = min(2 * longest, _STEP)
            block = bytearray(step)
            # A range that cannot be read is no evidence of zeros: it counts as data.
            if read_salvaging(source, at - step, memoryview(block)):
                return at
            if (stripped := len(block.rstrip(b"\0"))) > 0:
                return at - step + stripped
            at -= step
    return start

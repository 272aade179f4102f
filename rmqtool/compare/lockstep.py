"""Reads two files at once and tells whether they are equal, byte for byte; the walk over one is then that of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np

from rmqtool.store.source import ByteSource

_STEP: Final = 1 << 20


class LockstepSource:
    """See `ByteSource`; its bytes are those of the first file.

    Attributes:
        is_equal: whether all that was read so far is the same in the second file.
    """

    identity: ClassVar[None] = None

    def __init__(self, source: ByteSource, other: ByteSource) -> None:
        self._source = source
        self._other = other
        self._buffer = bytearray()
        self._compared_to = 0
        self.name = source.name
        self.size = source.size
        self.is_equal = source.size == other.size

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self._source.read_into(position, buffer)
        # A read that leaves something out proves nothing about what it left out: `finish` looks at that.
        if self.is_equal and position <= self._compared_to < position + count:
            self._compare(position, buffer[:count])
            self._compared_to = position + count
        return count

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self._source.extents(start, end)

    def finish(self) -> bool:
        """Compare what was not read so far; whether the files are equal."""
        buffer = memoryview(bytearray(_STEP))
        for start, end in sorted(
            [*self._source.extents(self._compared_to, self.size), *self._other.extents(self._compared_to, self.size)]
        ):
            at = max(start, self._compared_to)
            while at < end and self.is_equal:
                step = buffer[: min(_STEP, end - at)]
                try:
                    if self._source.read_into(at, step) < len(step):
                        self.is_equal = False
                except OSError:
                    self.is_equal = False
                self._compare(at, step)
                at += len(step)
            self._compared_to = max(self._compared_to, end)
        return self.is_equal

    def close(self) -> None:
        self._source.close()
        self._other.close()

    def _compare(self, position: int, here: memoryview) -> None:
        if len(self._buffer) < len(here):
            self._buffer = bytearray(len(here))
        there = memoryview(self._buffer)[: len(here)]
        try:
            self.is_equal &= self._other.read_into(position, there) == len(here) and equal_bytes(here, there)
        except OSError:
            self.is_equal = False


def equal_bytes(one: memoryview, other: memoryview) -> bool:
    """Whether two chunks of memory of one length hold the same bytes."""
    whole = len(one) // 8 * 8
    words = np.frombuffer(one[:whole], np.uint64), np.frombuffer(other[:whole], np.uint64)
    return bool((words[0] == words[1]).all()) and bytes(one[whole:]) == bytes(other[whole:])


def first_difference(source: ByteSource, other: ByteSource, start: int) -> int | None:
    """File position of the first byte from `start` on that differs, or that one file alone has; None if it is equal.

    Raises:
        OSError: a disk does not give the bytes.
    """
    buffers = memoryview(bytearray(_STEP)), memoryview(bytearray(_STEP))
    at = start
    while True:
        counts = source.read_into(at, buffers[0]), other.read_into(at, buffers[1])
        length = min(counts)
        differing = np.flatnonzero(np.frombuffer(buffers[0], np.uint8) != np.frombuffer(buffers[1], np.uint8))
        if differing.size and differing[0] < length:
            return at + int(differing[0])
        if length < _STEP:
            return at + length if counts[0] != counts[1] else None
        at += length

"""Bytes that are yet to be written: a few in memory, zeros by the gigabyte, or a part of a file of this machine.

Content is named, compared and passed on without its bytes; they are read when it is opened, a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqtool.errors import UnreadableError
from rmqtool.store.source import ByteSource, BytesSource, FileSource


@dataclass(frozen=True)
class Literal:
    """Bytes in memory."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)

    def open(self) -> ByteSource:
        return BytesSource("new content", self.data)


@dataclass(frozen=True)
class Zeros:
    """So many zero bytes, without holding them."""

    length: int

    def open(self) -> ByteSource:
        return ZeroSource("zeros", self.length)


@dataclass(frozen=True)
class FilePart:
    """`length` bytes of a file from `position` on; the file stays as it is for as long as this is used."""

    place: Path
    position: int
    length: int

    @classmethod
    def whole(cls, place: Path) -> FilePart:
        """All of a file.

        Raises:
            UnreadableError: it is missing, may not be read, or is no regular file.
        """
        with FileSource.open(place) as source:
            return cls(place, 0, source.size)

    def open(self) -> ByteSource:
        """The bytes.

        Raises:
            UnreadableError: the file is missing, may not be read, or has become shorter.
        """
        source = FileSource.open(self.place)
        if source.size < self.position + self.length:
            source.close()
            raise UnreadableError(f"{self.place}: became shorter while it was read")
        return PartSource(str(self.place), source, self.position, self.length)


Content = Literal | Zeros | FilePart


@dataclass
class ZeroSource:
    """A byte source that is one hole."""

    name: str
    size: int

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = max(0, min(len(buffer), self.size - position))
        buffer[:count] = bytes(count)
        return count

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        del start, end
        yield from ()

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class PartSource:
    """A range of another source as a source of its own; closing it closes the other one."""

    name: str
    base: ByteSource
    start: int
    size: int

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = max(0, min(len(buffer), self.size - position))
        return self.base.read_into(self.start + position, buffer[:count])

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, self.size)
        for data_start, data_end in self.base.extents(self.start + start, self.start + end):
            yield data_start - self.start, data_end - self.start

    def close(self) -> None:
        self.base.close()

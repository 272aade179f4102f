"""Byte sources: positioned reads of one file, holes known, bad sectors and shrinking files survived; and new content.

Reads go into the caller's buffer; nothing is mapped, so a file that shrinks while it is read is a short read and not a
SIGBUS. Content that is yet to be written (a few bytes, zeros by the gigabyte, a part of a file of this machine) is
named, compared and passed on without its bytes; they are read when it is opened, a block at a time.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self

from rmqtool.errors import UnreadableError

SMALLEST_READ = 512
"""Bytes of the smallest read with which a bad range is narrowed down: one sector."""


SMALL_READ = 1 << 16
"""Bytes that a read may ask for beyond the end of a file without a look at its size."""


class ReadCount:
    """Number of bytes that the sources of this process have read, for progress displays.

    Threads may lose a count to each other, which a progress bar tolerates.
    """

    byte_count = 0


READS = ReadCount()


class ByteSource(Protocol):
    """Bytes of one file, addressed by file position."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def identity(self) -> Hashable | None:
        """A value that changes with the bytes; None where nothing shows a change."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Read into the buffer from a file position; bytes read, fewer than asked for only where the file ends.

        Raises:
            OSError: the disk does not give the bytes.
        """

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges of [start, end) that may hold data, in order; between them are holes, which read as zero."""

    def close(self) -> None: ...


class LostRangeError(OSError):
    """A range that the source knows not to get: none of its sectors need be asked for.

    Attributes:
        start, end: file positions; the read that failed touches the range.
    """

    def __init__(self, text: str, start: int, end: int) -> None:
        super().__init__(errno.EIO, text)
        self.start, self.end = start, end


class Closable:
    """A context manager that closes itself."""

    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class FileSource(Closable):
    """A regular file of the file system, opened read-only."""

    name: str
    descriptor: int
    size: int

    @classmethod
    def open(cls, path: Path | str, name: str | None = None) -> FileSource:
        """Open a regular file; a FIFO, device, socket or directory is refused without being waited for.

        Raises:
            UnreadableError: it is missing, may not be read, or is no regular file.
        """
        name = name if name is not None else str(path)
        try:
            # Looked at first, for opening a FIFO would let its writer continue; opened without waiting all the same,
            # and looked at again, for it may have been exchanged in between.
            if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - Path.stat does the same by a longer way
                raise UnreadableError(f"{name}: not a regular file")
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise UnreadableError(f"{name}: {reason(error)}") from error
        except ValueError as error:  # a zero byte or a lone surrogate: no file can have that name
            raise UnreadableError(f"{name!r}: not a file name") from error
        return cls.of_descriptor(name, descriptor)

    @classmethod
    def of_descriptor(cls, name: str, descriptor: int) -> Self:
        """The file that a descriptor leads to.

        Raises:
            UnreadableError: it is not a regular file; the descriptor is closed.
        """
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            os.close(descriptor)
            raise UnreadableError(f"{name}: not a regular file")
        return cls(name, descriptor, file_status.st_size)

    @property
    def identity(self) -> Hashable | None:
        """Identity of the file; one that is written through a map may change unseen for a while."""
        if self.descriptor < 0:
            return None
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def read_into(self, position: int, buffer: memoryview) -> int:
        done = 0
        while done < len(buffer):
            count = os.preadv(self.descriptor, [buffer[done:]], position + done)
            if count == 0:
                break
            done += count
        READS.byte_count += done
        return done

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        at = start
        while at < end:
            try:
                data = os.lseek(self.descriptor, at, os.SEEK_DATA)
                hole = os.lseek(self.descriptor, data, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:  # not a file system that knows holes: all of it may be data
                    yield at, end
                return
            if data >= end:
                return
            yield data, min(hole, end)
            at = hole

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass
class BytesSource(Closable):
    """Bytes in memory: an overlay's new content, a record under test."""

    name: str
    content: bytes | bytearray
    identity: ClassVar[None] = None

    @property
    def size(self) -> int:
        return len(self.content)

    def read_into(self, position: int, buffer: memoryview) -> int:
        part = self.content[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        if start < min(end, self.size):
            yield start, min(end, self.size)


def read_range(source: ByteSource, position: int, length: int) -> bytes:
    """Bytes of a range, fewer where the file ends.

    Raises:
        UnreadableError: the disk does not give them.
    """
    if length <= 0 or position < 0:
        return b""
    if length > SMALL_READ:
        length = min(length, max(0, source.size - position))
    buffer = bytearray(length)
    try:
        count = source.read_into(position, memoryview(buffer))
    except OSError as error:
        raise UnreadableError(f"{source.name}: {reason(error)} at byte {position}") from error
    return bytes(buffer[:count])


def read_salvaging(source: ByteSource, position: int, buffer: memoryview) -> list[tuple[int, int]]:
    """Fill the whole buffer whatever the disk does.

    A failed read is repeated in ever smaller steps, down to a sector; what stays unreadable becomes zero.

    Returns:
        The unreadable ranges as (start, end) file positions, joined; the end of a file that shrank meanwhile is one.
    """
    missing: list[tuple[int, int]] = []
    _salvage(source, position, buffer, missing)
    joined: list[tuple[int, int]] = []
    for start, end in missing:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return joined


def _salvage(source: ByteSource, position: int, buffer: memoryview, missing: list[tuple[int, int]]) -> None:
    try:
        count = source.read_into(position, buffer)
    except LostRangeError as lost:
        start, end = max(0, lost.start - position), min(len(buffer), lost.end - position)
        if start:
            _salvage(source, position, buffer[:start], missing)
        buffer[start:end] = bytes(end - start)
        missing.append((position + start, position + end))
        if end < len(buffer):
            _salvage(source, position + end, buffer[end:], missing)
        return
    except OSError:
        # The nearest boundary below the middle, or above, of sectors of the file and not of the buffer: a good neighbor
        # must not be lost with a bad sector.
        middle = (position + len(buffer) // 2) // SMALLEST_READ * SMALLEST_READ
        if middle <= position:
            middle += SMALLEST_READ
        if middle < position + len(buffer):
            _salvage(source, position, buffer[: middle - position], missing)
            _salvage(source, middle, buffer[middle - position :], missing)
            return
        count = 0
    if count < len(buffer):
        buffer[count:] = bytes(len(buffer) - count)
        missing.append((position + count, position + len(buffer)))


def reason(error: OSError) -> str:
    """The operating system's message, as the tail of a sentence."""
    return (error.strerror or str(error)).lower()


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
class ZeroSource(Closable):
    """A byte source that is one hole."""

    name: str
    size: int
    identity: ClassVar[None] = None

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = max(0, min(len(buffer), self.size - position))
        buffer[:count] = bytes(count)
        return count

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        del start, end
        yield from ()


@dataclass
class PartSource:
    """A range of another source as a source of its own; closing it closes the other one."""

    name: str
    base: ByteSource
    start: int
    size: int
    identity: ClassVar[None] = None

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = max(0, min(len(buffer), self.size - position))
        return self.base.read_into(self.start + position, buffer[:count])

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        end = min(end, self.size)
        for data_start, data_end in self.base.extents(self.start + start, self.start + end):
            yield data_start - self.start, data_end - self.start

    def close(self) -> None:
        self.base.close()

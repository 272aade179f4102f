"""Digests of file content that take no time for holes and zeros, however many gigabytes of them there are.

SHA-256 over the length and over each block of 64 KiB that is not all zero, with its position. Where the file system has
holes makes no difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rmqtool.errors import UnreadableError
from rmqtool.store.source import ByteSource, Content, FilePart, read_salvaging, reason

BLOCK: Final = 64 << 10
_READ: Final = 16 * BLOCK
_ZEROS: Final = bytes(BLOCK)


def digest_of(source: ByteSource, start: int, end: int, *, salvaging: bool = False) -> str:
    """Digest of a range of a file, which depends on its bytes and not on where it lies; as `sparse-sha256:<hex>`.

    Args:
        salvaging: take what the disk does not give for zeros, as a copy of it has them.
    """
    return _RangeDigest(min(start, end), end).finish(source, salvaging=salvaging)


def digest_of_content(content: Content) -> str:
    """Digest of content that is yet to be written; the same as that of the range once it holds it."""
    if isinstance(content, BuiltFile) and content.known_digest is not None:
        return content.known_digest
    with closing(content.open()) as source:
        return digest_of(source, 0, content.length)


@dataclass(frozen=True)
class BuiltFile(FilePart):
    """All of a file that a planner has built; whoever reads it from its start to its end computes its digest too."""

    _digests: list[str] = field(default_factory=list, compare=False)

    @property
    def known_digest(self) -> str | None:
        """The digest, once somebody has read the file."""
        return self._digests[0] if self._digests else None

    def open(self) -> ByteSource:
        source = super().open()
        return source if self._digests else _DigestingSource(source, self._digests)


class _RangeDigest:
    """Digest of a range, up to `at`; `at` is whole blocks after the range's start."""

    def __init__(self, start: int, end: int) -> None:
        self._start = start
        self._end = end
        self._digest = hashlib.sha256((end - start).to_bytes(8, "big"))
        self.at = start

    def add(self, data: memoryview) -> None:
        """Add the next bytes: whole blocks, or all up to the range's end."""
        for begin in range(0, len(data), BLOCK):
            block = data[begin : begin + BLOCK]
            if block != _ZEROS[: len(block)]:
                self._digest.update((self.at + begin - self._start).to_bytes(8, "big"))
                self._digest.update(block)
        self.at += len(data)

    def finish(self, source: ByteSource, *, salvaging: bool = False) -> str:
        """Read the rest, without holes."""
        read = read_salvaging if salvaging else read_fully
        start, end = self._start, self._end
        buffer = memoryview(bytearray(min(_READ, end - start)))
        for data_start, found_end in source.extents(self.at, end):
            # Blocks begin where the range begins, so that an extent is widened to whole ones.
            self.at = max(self.at, start + (data_start - start) // BLOCK * BLOCK)
            data_end = min(end, start + -(-(found_end - start) // BLOCK) * BLOCK)
            while self.at < data_end:
                part = buffer[: min(_READ, data_end - self.at)]
                read(source, self.at, part)
                self.add(part)
        return f"sparse-sha256:{self._digest.hexdigest()}"


class _DigestingSource:
    """A source whose reader may go through it in order; then its digest is known when it is closed."""

    identity: ClassVar[None] = None

    def __init__(self, base: ByteSource, digests: list[str]) -> None:
        self.name = base.name
        self.size = base.size
        self._base = base
        self._digests = digests
        self._range = _RangeDigest(0, base.size)
        self._part = bytearray()
        """Bytes after the last whole block."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self._base.read_into(position, buffer)
        known = self._range.at + len(self._part) - position
        if 0 <= known < count:
            self._take(buffer[known:count])
        return count

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self._base.extents(start, end)

    def close(self) -> None:
        """Read the rest where it is short; else the reader has not gone through the file."""
        with suppress(UnreadableError, OSError):
            if sum(end - start for start, end in self._base.extents(self._range.at, self.size)) <= 2 * BLOCK:
                self._digests.append(self._range.finish(self._base))
        self._base.close()

    def _take(self, data: memoryview) -> None:
        rest = min(len(data), -len(self._part) % BLOCK)
        self._part += data[:rest]
        if len(self._part) == BLOCK:
            self._range.add(memoryview(bytes(self._part)))
            self._part.clear()
        whole = (len(data) - rest) // BLOCK * BLOCK
        self._range.add(data[rest : rest + whole])
        self._part += data[rest + whole :]


def read_fully(source: ByteSource, position: int, buffer: memoryview) -> None:
    """Fill a buffer; UnreadableError too where the file has become shorter."""
    try:
        count = source.read_into(position, buffer)
    except OSError as error:
        raise UnreadableError(f"{source.name}: {reason(error)} at byte {position}") from error
    if count < len(buffer):
        raise UnreadableError(f"{source.name}: became shorter while it was read")

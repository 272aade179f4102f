"""The files of a store that an answer reads from: opened when first needed, kept open, never too many of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

from rmqtool.memory import memory_budget
from rmqtool.store.source import ByteSource, Closable, read_range
from rmqtool.store.view import StoreView

Answer = TypeVar("Answer")
OPEN_MAX: Final = 64
CACHED_MAX: Final = 32 << 20
CACHED_FROM: Final = 4096
"""Bytes of the smallest block that is worth remembering."""
NOTES_MAX: Final = 1 << 20
NOTE_BYTES: Final = 512
"""Memory for a file's result in a cache."""


class ReadCache:
    """Blocks of files that several readers read one after the other; any thread may ask.

    A block is known by its file's identity, so that one which changes, or has changes laid over it, is read again.
    """

    def __init__(self, notes: dict[Hashable, Any] | None = None) -> None:
        self._blocks: OrderedDict[tuple[Hashable, int, int], bytes] = OrderedDict()
        self._memory_left = memory_budget().share(CACHED_MAX, 16)
        self._lock = Lock()
        self.notes: dict[Hashable, Any] = {} if notes is None else notes
        """Results for whole files, by their identity and the question."""

    def read(self, source: ByteSource, position: int, length: int) -> bytes:
        identity = source.identity if length >= CACHED_FROM else None
        if identity is None:
            return read_range(source, position, length)
        key = identity, position, length
        with self._lock:
            if (known := self._blocks.get(key)) is not None:
                self._blocks.move_to_end(key)
                return known
        block = read_range(source, position, length)
        with self._lock:
            if key not in self._blocks:
                self._blocks[key] = block
                self._memory_left -= len(block)
            while self._memory_left < 0:
                self._memory_left += len(self._blocks.popitem(last=False)[1])
        return block


class OpenFiles(Closable):
    """Positioned reads by path; the file that was not read for the longest time is closed first.

    Every method raises UnreadableError where the disk does not give what it reads.
    """

    def __init__(
        self, view: StoreView, cache: ReadCache | None = None, change_of: Callable[[str], object | None] | None = None
    ) -> None:
        """Open nothing yet.

        Args:
            change_of: what is laid over a file, if anything; one without need not be opened to be known again.
        """
        self._view = view
        self._change_of = change_of
        self._identities: dict[str, Hashable] = {}
        self._read = read_range if cache is None else cache.read
        self._notes = None if cache is None else cache.notes
        self._open: OrderedDict[str, ByteSource] = OrderedDict()

    def read(self, path: str, position: int, length: int) -> bytes:
        """Bytes of a range, fewer where the file ends."""
        return self._read(self._source(path), position, length)

    def extents(self, path: str, start: int, end: int) -> list[tuple[int, int]]:
        """Ranges that may hold anything but zeros, in order."""
        return list(self._source(path).extents(start, end))

    def known(self, path: str, question: Hashable, answer: Callable[[], Answer]) -> Answer:
        """Result for a file; computed once while it stays the same, where the files have a cache."""
        identity = None if self._notes is None else self.identity(path)
        if self._notes is None or identity is None:
            return answer()
        key = identity, question
        if key in self._notes:
            noted: Answer = self._notes[key]
            return noted
        new = answer()
        if len(self._notes) < _notes_max():
            self._notes[key] = new
        return new

    def noted(self, path: str, question: Hashable) -> Any | None:
        """Result that `known` has for an unchanged file; None where the file would have to be opened."""
        identity = self._identities.get(path)
        if identity is None or self._notes is None or self._change_of is None or self._change_of(path) is not None:
            return None
        return self._notes.get((identity, question))

    def identity(self, path: str) -> Hashable | None:
        """Identity of a file's bytes, as in `ByteSource`."""
        if self._change_of is None or self._change_of(path) is not None:
            return self._source(path).identity
        identity = self._identities.get(path)
        if identity is None:
            identity = self._source(path).identity
            if len(self._identities) < _notes_max():
                self._identities[path] = identity
        return identity

    def _source(self, path: str) -> ByteSource:
        cached = self._open.get(path)
        if cached is not None:
            self._open.move_to_end(path)
            return cached
        source = self._view.open(path)
        self._open[path] = source
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)[1].close()
        return source

    def close(self) -> None:
        """Close all; a later read opens its file again."""
        while self._open:
            self._open.popitem()[1].close()


def _notes_max() -> int:
    return memory_budget().share(NOTES_MAX * NOTE_BYTES, 16) // NOTE_BYTES

"""Reads index files: their headers, slots and entries, one at a time or a block at a time.

What lies after a file's end reads as zero, for the broker's mapping extends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cached_property
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqtool.formats.index import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    entry_position,
)
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry, StoreView

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_ENTRIES: Final = 1 << 19
_ENTRY: Final = Struct(ENTRY.struct_code)


class IndexEntry(NamedTuple):
    """One entry: a record, and the number of the next older entry in its slot."""

    key_hash: int
    physical_offset: int
    time_delta_seconds: int
    previous_entry: int


class IndexFile:
    """One index file."""

    def __init__(self, read: Callable[[int, int], bytes], slot_count: int) -> None:
        """`read` gives the bytes of a file position and a length; see `read_range`."""
        self._read = read
        self.slot_count = slot_count
        self._entries_start = entry_position(0, slot_count)

    @cached_property
    def header(self) -> IndexHeader:
        """Its header.

        Raises:
            UnreadableError: the disk does not give it.
        """
        return IndexHeader.parse(self._read(0, HEADER_SIZE))

    def newest_entry(self, key_hash: int) -> int:
        """Number of the newest entry in the hash's slot.

        Raises:
            UnreadableError: the disk does not give it.
        """
        raw = self._read(HEADER_SIZE + key_hash % self.slot_count * SLOT_SIZE, SLOT_SIZE)
        return int.from_bytes(raw.ljust(SLOT_SIZE, b"\0"), "big", signed=True)

    def entry(self, number: int) -> IndexEntry:
        """An entry.

        Raises:
            UnreadableError: the disk does not give it.
        """
        raw = self._read(self._entries_start + number * ENTRY_SIZE, ENTRY_SIZE)
        return IndexEntry._make(_ENTRY.unpack(raw.ljust(ENTRY_SIZE, b"\0")))

    def entries(self, last: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """The entries that the file has up to a number, in blocks with the number of the first one.

        Raises:
            UnreadableError: the disk does not give them.
        """
        import numpy as np

        for number in range(1, last + 1, BLOCK_ENTRIES):
            count = min(BLOCK_ENTRIES, last + 1 - number)
            raw = self._read(self._entries_start + number * ENTRY_SIZE, count * ENTRY_SIZE)
            yield number, np.frombuffer(raw[: len(raw) // ENTRY_SIZE * ENTRY_SIZE], ENTRY.dtype)


def index_headers(view: StoreView, files: Iterable[Entry]) -> Iterator[IndexHeader]:
    """The headers of the index files that are long enough to have one.

    Raises:
        UnreadableError: a file cannot be read.
    """
    for entry in files:
        with closing(view.open(entry.path)) as source:
            raw = read_range(source, 0, HEADER_SIZE)
        if len(raw) == HEADER_SIZE:
            yield IndexHeader.parse(raw)

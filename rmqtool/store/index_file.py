"""Reads index files: their headers, slots and entries, one at a time or a block at a time.

What lies after a file's end reads as zero, for the broker's mapping extends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import cached_property, partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqtool.errors import UnreadableError
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader, entry_position
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import Entry, StoreView

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_ENTRIES: Final = 1 << 19
CHAIN_STEPS_MAX: Final = 64
"""Entries of one chain that are looked at; 4 is usual, but all messages with one tag are in one chain."""
WHOLE_MAX: Final = 1 << 16
"""A file up to this size is read at once."""
_LAST_ENTRIES: Final = 16
_ENTRY: Final = Struct(ENTRY.struct_code)


class IndexEntry(NamedTuple):
    """One entry: a record, and the number of the next older entry in its slot."""

    key_hash: int
    physical_offset: int
    time_delta_seconds: int
    previous_entry: int


class IndexFile:
    """One index file.

    Every method raises UnreadableError where the disk does not give what it reads.
    """

    def __init__(self, read: Callable[[int, int], bytes], slot_count: int) -> None:
        """`read` gives the bytes of a file position and a length; see `read_range`."""
        self._read = read
        self.slot_count = slot_count
        self._entries_start = entry_position(0, slot_count)

    @cached_property
    def header(self) -> IndexHeader:
        """Its header."""
        return IndexHeader.parse(self._read(0, HEADER_SIZE))

    def newest_entry(self, key_hash: int) -> int:
        """Number of the newest entry in the hash's slot."""
        raw = self._read(HEADER_SIZE + key_hash % self.slot_count * SLOT_SIZE, SLOT_SIZE)
        return int.from_bytes(raw.ljust(SLOT_SIZE, b"\0"), "big", signed=True)

    def entry(self, number: int) -> IndexEntry:
        """An entry."""
        raw = self._read(self._entries_start + number * ENTRY_SIZE, ENTRY_SIZE)
        return IndexEntry._make(_ENTRY.unpack(raw.ljust(ENTRY_SIZE, b"\0")))

    def entries_of_last_record(self) -> int:
        """Number of entries at the end that belong to the record that the header names last."""
        last = self.header.next_entry_number - 1
        number = last
        while number > 0:
            for entry in self.entries_before(number, _LAST_ENTRIES):
                if entry.physical_offset != self.header.end_physical_offset:
                    return last - number
                number -= 1
        return last - number

    def entries_before(self, number: int, count: int) -> list[IndexEntry]:
        """Entries from a number downwards, newest first; number 0 is none."""
        count = max(0, min(count, number))
        raw = self._read(self._entries_start + (number + 1 - count) * ENTRY_SIZE, count * ENTRY_SIZE)
        entries = _ENTRY.iter_unpack(raw.ljust(count * ENTRY_SIZE, b"\0"))
        return [IndexEntry._make(fields) for fields in entries][::-1]

    def is_reached(self, number: int, last: int) -> bool:
        """True if the chain of an entry's slot reaches that entry; chains run backwards, so numbers fall.

        One that has fallen that long through entries of this very slot is a chain: chance does not make such a one.

        Args:
            last: the file's last entry.
        """
        entry = self.entry(number)
        if min(entry.key_hash, entry.physical_offset, entry.time_delta_seconds) < 0:
            return False
        slot = entry.key_hash % self.slot_count
        at = self.newest_entry(slot)
        if at > last:
            return False
        for _ in range(CHAIN_STEPS_MAX):
            if at <= number:
                return at == number
            link = self.entry(at)
            if link.previous_entry >= at or link.key_hash < 0 or link.key_hash % self.slot_count != slot:
                return False
            at = link.previous_entry
        return True

    def entries(self, last: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """The entries that the file has up to a number, in blocks with the number of the first one."""
        import numpy as np

        for number in range(1, last + 1, BLOCK_ENTRIES):
            count = min(BLOCK_ENTRIES, last + 1 - number)
            raw = self._read(self._entries_start + number * ENTRY_SIZE, count * ENTRY_SIZE)
            yield number, np.frombuffer(raw[: len(raw) // ENTRY_SIZE * ENTRY_SIZE], ENTRY.dtype)


def reader_of(source: ByteSource) -> Callable[[int, int], bytes]:
    """Reader for an `IndexFile`: a small file is read once, a large one range by range."""
    content = None
    if source.size <= WHOLE_MAX:
        with suppress(UnreadableError):  # then some of it may still be readable
            content = read_range(source, 0, source.size)
    if content is None:
        return partial(read_range, source)

    def read(position: int, length: int) -> bytes:
        return content[position : position + max(0, length)] if position >= 0 else b""

    return read


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

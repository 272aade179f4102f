"""Infers how many hash slots a store's index files have: no file says it, but only one count makes the chains agree.

Broker: `IndexFile` (layout, `putKey`), `IndexService` (one pair of counts for all files of a store).
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.formats.index import (
    DEFAULT_SLOT_COUNT,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    entry_position,
    file_size,
    slot_position,
)
from rmqtool.store.index_file import IndexEntry, IndexFile, reader_of
from rmqtool.store.source import ByteSource, BytesSource, read_range
from rmqtool.store.view import Entry, StoreView

FILES_MAX: Final = 16
"""Files that are asked before it is given up; the healthiest come first."""
SAMPLES_MAX: Final = 32
BLOCK: Final = 1 << 20
SEARCH_MAX: Final = 1 << 30
"""Bytes that are searched backwards for the last one that is not zero."""
SWEEP_FILE_SIZE_MAX: Final = 1 << 20
"""A file up to this size is worth trying every count where its own counter says nothing."""
LIKELY_MAX: Final = 4096
"""Counts of a sweep that are looked at closely; only senseless bytes make more of them likely."""
PROOF_BITS: Final = 32
"""Unlikelihood of a chance agreement, as a power of two: a sweep tries up to 2^18 counts."""
_LIKELY_ROOM: Final = 10 * ENTRY_SIZE
"""People configure numbers of entries in tens."""


def infer_slot_count(view: StoreView, files: Sequence[Entry]) -> int | None:
    """Hash slots of a store's index files; None if no file proves a count."""
    lengths = Counter(entry.size for entry in files)
    by_health = sorted(files, key=lambda entry: (-lengths[entry.size], -entry.size, -entry.allocated_bytes, entry.path))
    for entry in by_health[:FILES_MAX]:
        with suppress(UnreadableError), closing(view.open(entry.path)) as source:
            if (count := slot_count_of(source)) is not None:
                return count
    return None


def infer_entry_count(files: Sequence[Entry], slot_count: int) -> int | None:
    """Entries (the unused entry 0 included) for which the index files have room; None if their lengths fit no count.

    The length that most files have decides, of equally common ones one that shows a count, then the larger: short
    files are cut, not small.
    """
    rooms = Counter(entry.size - HEADER_SIZE - SLOT_SIZE * slot_count for entry in files)
    whole = {room: files_count for room, files_count in rooms.items() if room > ENTRY_SIZE and room % ENTRY_SIZE == 0}
    if not whole:
        return None
    return max(whole, key=lambda room: (whole[room], room % _LIKELY_ROOM == 0, room)) // ENTRY_SIZE


def shows_entry_count(files: Sequence[Entry], slot_count: int, entry_count: int) -> bool:
    """True if files show a count: several have its length, or it is one that somebody would configure.

    The only file may have been cut or lengthened, and brokers do not read entries after the last one that they allow.
    """
    size = file_size(slot_count, entry_count)
    return entry_count * ENTRY_SIZE % _LIKELY_ROOM == 0 or sum(entry.size == size for entry in files) > 1


def slot_count_of(source: ByteSource) -> int | None:
    """Hash slots of one index file; None if it has no entries, or none that agree with any count.

    Raises:
        UnreadableError: the disk does not give the bytes.
    """
    header = read_range(source, 0, HEADER_SIZE)
    if len(header) < HEADER_SIZE:
        return None
    fields = IndexHeader.parse(header)
    if fields.next_entry_number > 1:
        read = reader_of(source)
        candidates = [IndexFile(read, count) for count in _candidates(source, fields.next_entry_number - 1)]
        for tells in (_is_proven, _has_named_ends):
            for candidate in candidates:
                if tells(candidate, fields):
                    return candidate.slot_count
    return _without_counter(source)


def _without_counter(source: ByteSource) -> int | None:
    """The count of a file whose counter or end is damaged: the default, or any if the file is small enough to try all.

    A count that fits the length of a whole file is tried before one that does not.
    """
    room = (source.size - HEADER_SIZE) // SLOT_SIZE
    named = _named_by_slots(source)
    if room > DEFAULT_SLOT_COUNT and _is_named(source, named, DEFAULT_SLOT_COUNT):
        return DEFAULT_SLOT_COUNT
    if not named or source.size > SWEEP_FILE_SIZE_MAX:
        return None
    content = read_range(source, 0, source.size)
    small = BytesSource(source.name, content)
    counts = [*range(room % 5 or 5, room, 5), *(count for count in range(1, room) if count % 5 != room % 5)]
    likely = islice((count for count in counts if _may_be(content, named, count)), LIKELY_MAX)
    return next((count for count in likely if _is_named(small, named, count)), None)


def _may_be(content: bytes, named: list[tuple[int, int]], slot_count: int) -> bool:
    """True if one of the first slots agrees, which rules out nearly every wrong count in a microsecond."""
    for slot, number in named[:4]:
        position = entry_position(number, slot_count)
        hash_bytes = content[position : position + 4]
        if hash_bytes and slot < slot_count and int.from_bytes(hash_bytes, "big") % slot_count == slot:
            return True
    return False


def _candidates(source: ByteSource, last_entry: int) -> Iterator[int]:
    """Counts worth proving: the broker's default, then those for which the last entry ends at the last byte in use."""
    room = (source.size - HEADER_SIZE) // SLOT_SIZE
    if room > DEFAULT_SLOT_COUNT:
        yield DEFAULT_SLOT_COUNT
    last_byte = _last_data_byte(source)
    if last_byte is None:
        return
    # The last entry may itself end in zeros, so it can lie at five places; a whole file's length tells which.
    highest = (last_byte - HEADER_SIZE - ENTRY_SIZE * last_entry) // SLOT_SIZE
    nearby = [count for count in range(highest, highest - ENTRY_SIZE // SLOT_SIZE, -1) if 0 < count <= room]
    yield from sorted(nearby, key=lambda count: count % 5 != room % 5)


def _is_proven(file: IndexFile, header: IndexHeader) -> bool:
    """True if the chains agree with a count: three quarters of the sampled entries are reached from their slot.

    A wrong count reads hashes and chains out of unrelated bytes; that a walk then meets just the entry it began with
    does not happen for most of the samples. Damage to some chains does not hide the right count.
    """
    last_entry = header.next_entry_number - 1
    samples = sorted({1 + (last_entry - 1) * i // (SAMPLES_MAX - 1) for i in range(SAMPLES_MAX)})
    agreeing = sum(file.is_reached(number, last_entry) for number in samples)
    if len(samples) > 2:
        return agreeing * 4 >= len(samples) * 3
    # One or two entries prove too little by themselves; the header names the records of the first and the last.
    return agreeing == len(samples) and _are_named(header, file.entry(1), file.entry(last_entry))


def _has_named_ends(file: IndexFile, header: IndexHeader) -> bool:
    """True if the first and the last entry, by the header's records, are where a count puts them, and none is behind.

    It needs no chain: where all slots were lost, nothing else tells the count. A place of 20 bytes beside the right one
    has another entry after it, or where number 0 is, which no key has; any other one has no record's offset.
    """
    last_entry = header.next_entry_number - 1
    unused, first, last, behind = (file.entry(number) for number in (0, 1, last_entry, last_entry + 1))
    if not any(first) or any(unused) or any(behind) or header.end_physical_offset <= 0:
        return False
    is_entry = min(first.key_hash, last.key_hash, last.time_delta_seconds) >= 0 and last.previous_entry < last_entry
    return is_entry and _are_named(header, first, last)


def _are_named(header: IndexHeader, first: IndexEntry, last: IndexEntry) -> bool:
    return (first.physical_offset, last.physical_offset) == (header.begin_physical_offset, header.end_physical_offset)


def _last_data_byte(source: ByteSource) -> int | None:
    """File position of the last byte that is not zero, None if there is none after the header within reach."""
    searched = 0
    for start, end in reversed(list(source.extents(HEADER_SIZE, source.size))):
        at = end
        while at > start and searched < SEARCH_MAX:
            begin = max(start, at - BLOCK)
            block = read_range(source, begin, at - begin).rstrip(b"\0")
            if block:
                return begin + len(block) - 1
            searched += at - begin
            at = begin
    return None


def _named_by_slots(source: ByteSource) -> list[tuple[int, int]]:
    """The first slots in use, as (slot, newest entry); beyond the last slot, whose place is unknown, other data."""
    named: list[tuple[int, int]] = []
    end = min(source.size, slot_position(DEFAULT_SLOT_COUNT))
    for extent_start, extent_end in source.extents(HEADER_SIZE, end):
        start = extent_start // SLOT_SIZE * SLOT_SIZE  # the header's size is a multiple too
        for begin in range(max(start, HEADER_SIZE), extent_end, BLOCK):
            block = read_range(source, begin, min(BLOCK, extent_end - begin) // SLOT_SIZE * SLOT_SIZE)
            if not block.strip(b"\0"):
                continue
            first = (begin - HEADER_SIZE) // SLOT_SIZE
            for index, (value,) in enumerate(struct.iter_unpack(">i", block)):
                if value > 0:
                    named.append((first + index, value))
                if len(named) == SAMPLES_MAX:
                    return named
    return named


def _is_named(source: ByteSource, named: list[tuple[int, int]], slot_count: int) -> bool:
    """True if the entries that slots name belong into those slots; needs no counter."""
    usable = [(slot, number) for slot, number in named if slot < slot_count]
    file = IndexFile(reader_of(source), slot_count)
    present = [pair for pair in usable if entry_position(pair[1], slot_count) < source.size]
    hashes = ((slot, file.entry(number).key_hash) for slot, number in present)
    agreeing = sum(key_hash >= 0 and key_hash % slot_count == slot for slot, key_hash in hashes)
    return agreeing * 4 >= len(usable) * 3 and agreeing * math.log2(slot_count) >= PROOF_BITS

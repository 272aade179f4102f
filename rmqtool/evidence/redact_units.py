"""Reads the files in which brokers keep nothing but numbers, and masks what cannot be such numbers; see `plausible`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rmqtool.evidence.plausible import BOUNDS, MASK, is_plausible, masked_entries, masked_slots, masked_units
from rmqtool.evidence.redact_log import CHUNK, Chunks, read_or_zeros
from rmqtool.formats import consumequeue, index
from rmqtool.formats.layout import Format
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import ByteSource
from rmqtool.store.unit_files import SINGLE_UNITS, UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TEXTS: Final = {
    FileKind.ABORT: re.compile(rb"\d{1,10}\s{0,2}"),
    FileKind.ABORT_BACKUP: re.compile(rb"\d{1,10}\s{0,2}"),
    FileKind.CONTROLLER: re.compile(rb"[\d\-\r\n]*"),
}
"""Texts that brokers write into small files."""
_SMALL_MAX: Final = 1 << 20
"""Bytes of a file with a header, or of text; brokers write 4096 at most."""
_EXTENSION_HEAD: Final = Struct(consumequeue.EXTENSION_UNIT.struct_code)
KINDS: Final = frozenset({*UNITS, *SINGLE_UNITS, *_TEXTS, FileKind.INDEX, FileKind.CONSUMEQUEUE_EXT})
"""Kinds of files that hold numbers only."""


def redact_numbers(
    kind: FileKind, source: ByteSource, slot_count: int | None, ranges: Iterable[tuple[int, int]]
) -> Chunks:
    """Bytes of a file of numbers by position, in order; gaps between chunks are zeros.

    Args:
        slot_count: of the store's index files; None where nothing shows it.
        ranges: start and end of each, in order, without touching each other.
    """
    if kind is FileKind.INDEX:
        return _redacted_index(source, slot_count, ranges)
    if kind is FileKind.CONSUMEQUEUE_EXT:
        return _cut(_redacted_extension(source), ranges)
    if kind in UNITS:
        declared = UNITS[kind]
        return _redacted(source, ranges, 0, declared.size or 1, lambda _at, raw: masked_units(declared, raw))
    if kind in SINGLE_UNITS:
        return _cut(_redacted_head(source, SINGLE_UNITS[kind]), ranges)
    raw = read_or_zeros(source, 0, min(source.size, _SMALL_MAX))
    return _cut(iter([(0, raw if _TEXTS[kind].fullmatch(raw) else raw.translate(MASK))]), ranges)


def _redacted(
    source: ByteSource, ranges: Iterable[tuple[int, int]], base: int, unit: int, redact: Callable[[int, bytes], bytes]
) -> Chunks:
    """Redact units from a position on, a few at a time, and only where the file has data."""
    length = CHUNK - CHUNK % unit
    done = base
    for start, end in ranges:
        for data_start, data_end in source.extents(max(start, done), max(end, done)):
            first = max(done, data_start - (data_start - base) % unit)
            last = min(source.size, data_end + -(data_end - base) % unit)
            for at in range(first, last, length):
                raw = read_or_zeros(source, at, min(length, last - at))
                if any(raw):
                    yield at, redact(at, raw)
            done = max(done, last)


def _redacted_index(source: ByteSource, slot_count: int | None, ranges: Iterable[tuple[int, int]]) -> Chunks:
    raw = read_or_zeros(source, 0, min(index.HEADER_SIZE, source.size))
    yield 0, masked_units(index.HEADER, raw)
    if slot_count is None:
        return
    entries_at = index.entry_position(0, slot_count)
    parts, hashes = list(ranges), _entry_hashes(source, entries_at)

    def slots(at: int, raw: bytes) -> bytes:
        whole = len(raw) - len(raw) % index.SLOT_SIZE
        first = (at - index.HEADER_SIZE) // index.SLOT_SIZE
        return masked_slots(raw[:whole], first, hashes, slot_count) + raw[whole:].translate(MASK)

    of_slots = [(max(start, index.HEADER_SIZE), min(end, entries_at)) for start, end in parts]
    yield from _redacted(
        source, (part for part in of_slots if part[0] < part[1]), index.HEADER_SIZE, index.SLOT_SIZE, slots
    )
    of_entries = [(max(start, entries_at), end) for start, end in parts if end > entries_at]
    yield from _redacted(
        source,
        of_entries,
        entries_at,
        index.ENTRY_SIZE,
        lambda _at, raw: masked_entries(raw, (source.size - entries_at) // index.ENTRY_SIZE),
    )


def _entry_hashes(source: ByteSource, entries_at: int) -> NDArray[Any]:
    hashes = np.zeros(max(0, source.size - entries_at) // index.ENTRY_SIZE, np.int32)
    for start, end in source.extents(entries_at, source.size):
        first, last = (start - entries_at) // index.ENTRY_SIZE, -(-(end - entries_at) // index.ENTRY_SIZE)
        for number in range(first, min(last, len(hashes)), CHUNK // index.ENTRY_SIZE):
            count = min(CHUNK // index.ENTRY_SIZE, len(hashes) - number)
            raw = read_or_zeros(source, entries_at + number * index.ENTRY_SIZE, count * index.ENTRY_SIZE)
            hashes[number : number + count] = np.frombuffer(raw, index.ENTRY.dtype)["key_hash"]
    return hashes


def _redacted_extension(source: ByteSource) -> Chunks:
    """Units one after the other, their bitmaps masked; after an invalid one the next start is unknown."""
    declared, head_size = BOUNDS[consumequeue.EXTENSION_UNIT.name], consumequeue.EXTENSION_HEAD_SIZE
    at = 0
    while at + head_size <= source.size:
        raw = read_or_zeros(source, at, head_size)
        values = dict(zip(declared, _EXTENSION_HEAD.unpack(raw), strict=True))
        size = values["size"]
        is_unit = size == head_size + values["bitmap_length"] and at + size <= source.size
        if not is_unit or not all(is_plausible(value, declared[name]) for name, value in values.items()):
            break
        yield at, raw + read_or_zeros(source, at + head_size, size - head_size).translate(MASK)
        at += size
    for start, end in source.extents(at, source.size):
        for part in range(start, end, CHUNK):
            raw = read_or_zeros(source, part, min(CHUNK, end - part))
            if any(raw):
                kept = raw[:2] if part == at and raw[:2] == b"\xff\xff" else b""
                yield part, kept + raw[len(kept) :].translate(MASK)


def _redacted_head(source: ByteSource, declared: Format) -> Chunks:
    raw = read_or_zeros(source, 0, min(source.size, _SMALL_MAX))
    shown = bytearray(raw.translate(MASK))
    for field, bound in zip(declared.fields, BOUNDS[declared.name].values(), strict=True):
        assert field.position is not None
        assert field.size is not None
        place = slice(field.position, field.position + field.size)
        value = raw[place].ljust(field.size, b"\0")  # of a short file, whose mapping a broker extends
        if is_plausible(int.from_bytes(value, "big", signed=True), bound):
            shown[place] = raw[place]
    yield 0, bytes(shown)


def _cut(chunks: Chunks, ranges: Iterable[tuple[int, int]]) -> Chunks:
    """Parts of chunks that are in ranges."""
    parts = list(ranges)
    for at, data in chunks:
        for start, end in parts:
            first, last = max(start, at), min(end, at + len(data))
            if first < last:
                yield first, data[first - at : last - at]

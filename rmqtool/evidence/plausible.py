"""Tells units that only a broker writes from bytes of something else, and masks those: numbers have bounds.

A misplaced block of the disk may put any text where offsets and times should be. A time, an offset or a size whose
upper bytes are a text's is beyond all that a broker has, in ASCII, UTF-8 and UTF-16 alike; what stands beside it, a
checksum or a hash, may be of the text as well. Fewer than eight bytes in a row are left of what a unit passes for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rmqtool.formats import checkpoint, commitlog, consumequeue, index, timer
from rmqtool.formats.layout import Format

if TYPE_CHECKING:
    from numpy.typing import NDArray

Range = tuple[int, int]
Bound = tuple[Range, ...]
"""First and last value of each range that a field may have."""

MASK: Final = bytes(0 if byte == 0 else ord("x") | byte & 0x80 for byte in range(256))
"""Zeros and top bits stay, as both decide how a broker treats a number."""

WIDE_TEXT: Final = re.compile(rb"(?:\0[ -~]){4}|(?:[ -~]\0){4}")
"""Four letters in UTF-16."""
TIME: Final[Bound] = ((-1, (1 << 42) - 1),)
"""Milliseconds up to the year 2109."""
OFFSET: Final[Bound] = ((-1, (1 << 48) - 1),)
"""A place in a log, or a message in a queue: 256 TiB."""
SIZE: Final[Bound] = ((-1, (1 << 27) - 1),)
COUNT: Final[Bound] = ((-1, (1 << 25) - 1),)
SMALL: Final[Bound] = ((-1, (1 << 13) - 1),)
"""Numbers of queues, flags, and how often something was done."""
PORT: Final[Bound] = ((0, (1 << 16) - 1),)
ZERO: Final[Bound] = ((0, 0),)
FREE: Final[Bound] = ((-(1 << 31), (1 << 31) - 1),)
"""Checksums, hashes and addresses: any four bytes."""
_TAGS: Final[Bound] = (
    *FREE, *TIME, (consumequeue.EXTENSION_ADDRESS_BASE, consumequeue.EXTENSION_ADDRESS_BASE + (1 << 40)),
)  # fmt: skip
_SECONDS: Final[Bound] = ((-1, (1 << 29) - 1), (0x7FFFFFFF, 0x7FFFFFFF))
_CHECKPOINT: Final = {
    field.name: TIME if field.name.endswith("_ms") else OFFSET for field in checkpoint.CHECKPOINT.fields
}

BOUNDS: Final[Mapping[str, Mapping[str, Bound]]] = {
    commitlog.MESSAGE_V1.name: {
        "size": SIZE, "magic": FREE, "body_crc": FREE, "queue_id": SMALL, "flag": SMALL, "queue_offset": OFFSET,
        "physical_offset": OFFSET, "sys_flag": SMALL, "born_timestamp_ms": TIME, "born_host.address": FREE,
        "born_host.port": PORT, "store_timestamp_ms": TIME, "store_host.address": FREE, "store_host.port": PORT,
        "reconsume_times": SMALL, "prepared_transaction_offset": OFFSET, "body_length": SIZE,
    },
    consumequeue.UNIT.name: {
        "physical_offset": OFFSET, "record_size": (*SIZE, (0x7FFFFFFF, 0x7FFFFFFF)), "tags_code": _TAGS,
    },
    consumequeue.EXTENSION_UNIT.name: {
        "size": ((-1, 0x7FFF),), "tags_code": _TAGS, "store_timestamp_ms": TIME, "bitmap_length": ((-1, 0x7FFF),),
    },
    consumequeue.BATCH_UNIT.name: {
        "physical_offset": OFFSET, "record_size": SIZE, "tags_code": _TAGS, "store_timestamp_ms": TIME,
        "base_queue_offset": OFFSET, "batch_size": SMALL, "compacted_offset": SMALL, "reserved": SMALL,
    },
    index.HEADER.name: {
        "begin_timestamp_ms": TIME, "end_timestamp_ms": TIME, "begin_physical_offset": OFFSET,
        "end_physical_offset": OFFSET, "used_slot_count": COUNT, "next_entry_number": COUNT,
    },
    index.SLOT.name: {"newest_entry": ((-1, (1 << 21) - 1),)},
    index.ENTRY.name: {
        "key_hash": FREE, "physical_offset": OFFSET, "time_delta_seconds": _SECONDS, "previous_entry": COUNT,
    },
    checkpoint.CHECKPOINT.name: _CHECKPOINT,
    timer.SLOT.name: {
        "due_tick": TIME, "first_position": OFFSET, "last_position": OFFSET,
        "message_count": ((-(1 << 25), (1 << 25) - 1),), "magic": SMALL,
    },
    timer.UNIT.name: {
        "size": SIZE, "previous_position": OFFSET, "magic": (*SMALL, (timer.BLANK_MAGIC, timer.BLANK_MAGIC)),
        "write_timestamp_ms": TIME, "delay_ms": ((-1, (1 << 29) - 1),), "physical_offset": OFFSET, "record_size": SIZE,
        "topic_hash": FREE, "reserved": ZERO,
    },
    timer.CHECK.name: {
        "read_timestamp_ms": TIME, "flushed_position": OFFSET, "queue_offset": OFFSET, "master_queue_offset": OFFSET,
        "state_version": SMALL, "version_timestamp_ms": TIME, "version_counter": OFFSET,
    },
}  # fmt: skip
"""Allowed values of fields of fixed size in a bundle, by format; a slot up to two million cannot be text either."""


def is_plausible(value: int, bound: Bound) -> bool:
    """True if a field may have this value."""
    return any(first <= value <= last for first, last in bound)


def masked_units(declared: Format, raw: bytes) -> bytes:
    """Units of one format, of which those are masked that have a field out of bounds.

    Args:
        raw: beginning with a unit; of the last one there may be a part, and the rest counts as zeros.
    """
    assert declared.size is not None
    padded = raw.ljust(len(raw) + -len(raw) % declared.size, b"\0")
    units = np.frombuffer(padded, declared.dtype)
    return _with_mask(padded, units, ~plausible_units(declared, units))[: len(raw)]


def plausible_units(declared: Format, units: NDArray[Any]) -> NDArray[Any]:
    """Mask of the units that have all their fields within bounds."""
    good = np.ones(len(units), bool)
    for name, bound in BOUNDS[declared.name].items():
        column = units[name].astype(np.int64)
        fits = np.zeros(len(units), bool)
        for first, last in bound:
            fits |= (column >= first) & (column <= last)
        good &= fits
    good &= ~_have_wide_text(np.frombuffer(units.tobytes(), np.uint8).reshape(-1, units.dtype.itemsize))
    return good


def _have_wide_text(rows: NDArray[Any]) -> NDArray[Any]:
    """Mask of the rows with four letters in UTF-16, whose zeros make them look like small numbers."""
    are_wide = np.zeros(len(rows), bool)
    flat = rows.ravel()
    zeros, letters = flat == 0, (flat >= 0x20) & (flat < 0x7F)
    for first, second in ((zeros, letters), (letters, zeros)):
        pairs = first[:-1] & second[1:]
        starts = np.flatnonzero(pairs[:-6] & pairs[2:-4] & pairs[4:-2] & pairs[6:])
        are_wide[starts // rows.shape[1]] = True
        are_wide[(starts + 7) // rows.shape[1]] = True
    return are_wide


def masked_entries(raw: bytes, entry_count: int) -> bytes:
    """Entries of an index file; the one before in a chain, or after it where the chain is a loop, is in the file.

    Args:
        entry_count: for how many the file has room.
    """
    padded = raw.ljust(len(raw) + -len(raw) % index.ENTRY_SIZE, b"\0")
    entries = np.frombuffer(padded, index.ENTRY.dtype)
    good = plausible_units(index.ENTRY, entries)
    good &= entries["previous_entry"] < entry_count
    return _with_mask(padded, entries, ~good)[: len(raw)]


def masked_slots(raw: bytes, first_slot: int, hashes: NDArray[Any], slot_count: int) -> bytes:
    """Slots of an index file, of which those are masked that may be no number of an entry.

    Args:
        first_slot: number of the first one.
        hashes: of the file's entries, by their number.
        slot_count: of the file.
    """
    slots = np.frombuffer(raw, index.SLOT.dtype)
    numbers = slots["newest_entry"].astype(np.int64)
    good = plausible_units(index.SLOT, slots)
    large = np.flatnonzero(~good & (numbers > 0) & (numbers < len(hashes)))
    good[large] = hashes[numbers[large]] % slot_count == large + first_slot
    return _with_mask(raw, slots, ~good)


def _with_mask(raw: bytes, units: NDArray[Any], hides: NDArray[Any]) -> bytes:
    if not hides.any():
        return raw
    rows = np.frombuffer(units.tobytes(), np.uint8).reshape(-1, units.dtype.itemsize).copy()
    rows[hides] = np.frombuffer(MASK, np.uint8)[rows[hides]]
    return rows.tobytes()

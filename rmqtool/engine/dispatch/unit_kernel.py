"""The compiled comparison of a queue's units with those that records should have.

Import this module only through `scan.compiled.load_kernel`, which chooses where compiled code is kept. All compiled
functions that it calls stand in this one file, whose content is what a cache is checked by.
"""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

from pathlib import Path

import numba
from numpy import int32, int64, uint32, uint64

from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_MAX, UNIT, UNIT_SIZE

AT_OFFSET, AT_SIZE = uint64(UNIT.position("physical_offset")), uint64(UNIT.position("record_size"))
AT_TAGS = uint64(UNIT.position("tags_code"))
ADDRESS_MAX = int64(EXTENSION_ADDRESS_MAX)

# A file inside a zip cannot be looked at for changes, so what is compiled from there is not kept.
compiled = numba.njit(nogil=True, cache=Path(__file__).exists())
inlined = numba.njit(inline="always")


@inlined
def word_at(raw, at):
    """Four bytes as a number, high byte first."""
    high = (uint32(raw[at]) << uint32(8)) | uint32(raw[at + uint64(1)])
    return (high << uint32(16)) | (uint32(raw[at + uint64(2)]) << uint32(8)) | uint32(raw[at + uint64(3)])


@inlined
def long_at(raw, at):
    """A long, high byte first."""
    return int64((uint64(word_at(raw, at)) << uint64(32)) | uint64(word_at(raw, at + uint64(4))))


@compiled
def are_met(raw, first_place, begin, end, queue_offsets, physical_offsets, record_sizes, tags_codes):
    """Whether the units in `raw` which point into [begin, end) are those that are expected, each at its place.

    `first_place` is that of the first unit in `raw`. No unit whose tags code is an address is one that is expected.
    """
    at = 0
    for index in range(raw.size // UNIT_SIZE):
        unit = uint64(index * UNIT_SIZE)
        physical_offset = long_at(raw, unit + AT_OFFSET)
        if physical_offset < begin or physical_offset >= end:
            continue
        if at >= physical_offsets.size or physical_offset != physical_offsets[at]:
            return False
        tags_code = long_at(raw, unit + AT_TAGS)
        if tags_code != tags_codes[at] or tags_code <= ADDRESS_MAX:
            return False
        if first_place + index != queue_offsets[at] or int32(word_at(raw, unit + AT_SIZE)) != record_sizes[at]:
            return False
        at += 1
    return at == physical_offsets.size

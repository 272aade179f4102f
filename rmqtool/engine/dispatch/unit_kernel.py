"""The compiled comparison of a queue's units with those that records should have."""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

from numpy import int64, uint64

from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_MAX, UNIT, UNIT_SIZE
from rmqtool.scan.kernels.jit import BYTES, LONG, LONGS, int_at, kernel, long_at

AT_OFFSET, AT_SIZE = uint64(UNIT.position("physical_offset")), uint64(UNIT.position("record_size"))
AT_TAGS = uint64(UNIT.position("tags_code"))
ADDRESS_MAX = int64(EXTENSION_ADDRESS_MAX)


@kernel(BYTES, LONG, LONG, LONG, *[LONGS] * 4)
def are_met(raw, first_place, begin, end, queue_offsets, physical_offsets, record_sizes, tags_codes):
    """True if the units in `raw` which point into [begin, end) are exactly the expected ones, each at its place.

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
        if first_place + index != queue_offsets[at] or int_at(raw, unit + AT_SIZE) != record_sizes[at]:
            return False
        at += 1
    return at == physical_offsets.size

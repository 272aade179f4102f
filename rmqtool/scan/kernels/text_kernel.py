"""The compiled gathering of texts: ranges of a buffer one after the other, and the properties of many records."""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

from numpy import uint8, uint64

from rmqtool.scan.kernels.jit import BYTES, INTS, LONGS, equal_ranges, kernel

NAME_END, VALUE_END = uint8(1), uint8(2)


@kernel(BYTES, LONGS, LONGS, BYTES)
def copy_ranges(source, starts, lengths, target):
    """Copy ranges of `source` one after the other; a length below 1 copies nothing."""
    at = uint64(0)
    for number in range(starts.size):
        start = uint64(starts[number])
        for k in range(lengths[number]):
            target[at + uint64(k)] = source[start + uint64(k)]
        at += uint64(max(0, lengths[number]))


@kernel(BYTES, LONGS, LONGS, INTS, *[LONGS] * 4)
def property_ranges(source, starts, lengths, ends, names, name_lengths, values, value_lengths):
    """Places of the names and values that count in property blocks; of a repeated name the last value.

    `ends[i]` becomes the number of properties in the blocks up to `i`. The arrays of places must have room for one
    property in every 4 bytes of a block, and for one more.
    """
    count = 0
    for number in range(starts.size):
        first = count
        at, end = starts[number], starts[number] + lengths[number]
        while at < end:
            name = at
            while at < end and source[uint64(at)] != NAME_END and source[uint64(at)] != VALUE_END:
                at += 1
            if at >= end or source[uint64(at)] == VALUE_END:
                at += 1
                continue
            length = at - name
            at += 1
            value = at
            while at < end and source[uint64(at)] != VALUE_END:
                at += 1
            if length > 0 and at > value:
                place = first
                while place < count and not (
                    name_lengths[place] == length and equal_ranges(source, names[place], name, length)
                ):
                    place += 1
                names[place], name_lengths[place] = name, length
                values[place], value_lengths[place] = value, at - value
                count = max(count, place + 1)
            at += 1
        ends[number] = count

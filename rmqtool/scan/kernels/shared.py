"""What all compiled functions share: how numba compiles them, and numbers whose high byte comes first.

A change of this file or of a kernel's own is a change of the kernel; what else a kernel imports are constants.
"""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201, SIM110
from __future__ import annotations

import numba
from numpy import int16, int32, int64, uint16, uint32, uint64

compiled = numba.njit(nogil=True)
inlined = numba.njit(inline="always")


@inlined
def short_at(buffer, at):
    """A short, high byte first."""
    return int16((uint16(buffer[at]) << uint16(8)) | uint16(buffer[at + uint64(1)]))


@inlined
def word_at(buffer, at):
    """Four bytes as a number without a sign, high byte first."""
    return (
        (uint32(buffer[at]) << uint32(24))
        | (uint32(buffer[at + uint64(1)]) << uint32(16))
        | (uint32(buffer[at + uint64(2)]) << uint32(8))
        | uint32(buffer[at + uint64(3)])
    )


@inlined
def int_at(buffer, at):
    """An int, high byte first."""
    return int32(word_at(buffer, at))


@inlined
def long_at(buffer, at):
    """A long, high byte first."""
    return int64((uint64(word_at(buffer, at)) << uint64(32)) | uint64(word_at(buffer, at + uint64(4))))


@compiled
def equal_ranges(source, start, other, length):
    """Whether two ranges of one length hold the same bytes."""
    for k in range(length):
        if source[uint64(start + k)] != source[uint64(other + k)]:
            return False
    return True

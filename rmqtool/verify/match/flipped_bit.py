"""Finds the one flipped bit that explains a wrong CRC-32, without trying them all.

CRC-32 is linear: two messages of one length that differ in one bit have CRCs whose difference (the syndrome) depends on
nothing but how many bits lie after that bit: it is the register after that many steps. How many steps lead to a given
register is a discrete logarithm, found by baby steps and giant steps in the square root of the body's bits.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from typing import Final, NamedTuple

_POLYNOMIAL: Final = 0xEDB88320
"""The register right after a flipped bit that was the last one to enter: the highest bit of the last byte."""
_TOP: Final = 0x80000000
STORED_BITS: Final = 0x7FFFFFFF
"""A broker stores a CRC without its top bit, so two syndromes are possible."""
LENGTH_MAX: Final = (1 << 29) - 1
"""Bytes in which a bit is found by its syndrome alone; after that syndromes repeat."""

STRIDES_KEPT: Final = 8
"""Strides whose steps are kept; the longest, for bodies of 512 MiB, takes some 10 MB."""


class FlippedBit(NamedTuple):
    """Where the flip is: byte of the body and bit in it (0 the lowest), or a bit of the stored CRC (`byte` -1)."""

    byte: int
    bit: int


def flipped_bits(stored_crc: int, computed_crc: int, body_length: int) -> list[FlippedBit]:
    """Every single bit whose flip explains the difference of two CRCs of 31 bits; empty where it takes more."""
    syndrome = (stored_crc ^ computed_crc) & STORED_BITS
    flips = []
    if syndrome and not syndrome & (syndrome - 1):
        flips.append(FlippedBit(-1, syndrome.bit_length() - 1))
    bits = 8 * min(max(body_length, 0), LENGTH_MAX)
    for steps in _logarithms({syndrome, syndrome | _TOP} - {0}, bits):
        entered = bits - 1 - steps
        flips.append(FlippedBit(entered // 8, entered % 8))
    return sorted(flips)


def _logarithms(registers: set[int], limit: int) -> list[int]:
    """Numbers of steps below the limit after which the register of a flip is one of these."""
    if limit <= 0:
        return []
    # A power of two, so that bodies of about one length share what is worked out for the stride.
    stride = 1 << isqrt(limit - 1).bit_length()
    baby = _baby_steps(stride)
    first, second, third, fourth = _strides_back(stride)
    step_counts = []
    for start in registers:
        register = start
        for giant in range(-(-limit // stride)):
            step = baby.get(register, -1)
            if step >= 0 and giant * stride + step < limit:
                step_counts.append(giant * stride + step)
                break
            low = first[register & 0xFF] ^ second[register >> 8 & 0xFF]
            register = low ^ third[register >> 16 & 0xFF] ^ fourth[register >> 24]
    return step_counts


@lru_cache(maxsize=STRIDES_KEPT)
def _baby_steps(stride: int) -> dict[int, int]:
    """Registers that fewer steps than a stride lead to, with the number of steps."""
    steps: dict[int, int] = {}
    register = _POLYNOMIAL
    for step in range(stride):
        steps[register] = step
        register = (register >> 1) ^ _POLYNOMIAL if register & 1 else register >> 1
    return steps


@lru_cache(maxsize=STRIDES_KEPT)
def _strides_back(stride: int) -> list[list[int]]:
    """Tables for the four bytes of a register that take it `stride` steps back at once."""
    columns = []
    for bit in range(32):
        register = 1 << bit
        for _ in range(stride):
            register = (register ^ _POLYNOMIAL) << 1 | 1 if register & _TOP else register << 1
        columns.append(register)
    tables = []
    for byte in range(4):
        table = [0] * 256
        for value in range(1, 256):
            lowest = value & -value
            table[value] = table[value ^ lowest] ^ columns[8 * byte + lowest.bit_length() - 1]
        tables.append(table)
    return tables

"""A CRC-32 of our own, eight bytes a step, where no library has one that a kernel can call."""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201, ANN202
from __future__ import annotations

import numba
import numpy


def _tables():
    """Share of each byte in the checksum, by its distance from the end of eight."""
    tables = numpy.zeros((8, 256), numpy.uint32)
    for value in range(256):
        code = value
        for _ in range(8):
            code = code >> 1 ^ (0xEDB88320 if code & 1 else 0)
        tables[0, value] = code
    for row in range(1, 8):
        tables[row] = tables[0][tables[row - 1] & 0xFF] ^ tables[row - 1] >> 8
    return tables


TABLES = _tables()


@numba.cfunc("uint64(uint64, CPointer(uint8), uint64)")
def slicing_crc(previous, data, length):
    """CRC-32 of bytes, continued from those before them."""
    code = numpy.uint32(~numpy.uint32(previous))
    at = numpy.uint64(0)
    while at + numpy.uint64(8) <= length:
        low = code ^ (
            numpy.uint32(data[at])
            | numpy.uint32(data[at + numpy.uint64(1)]) << numpy.uint32(8)
            | numpy.uint32(data[at + numpy.uint64(2)]) << numpy.uint32(16)
            | numpy.uint32(data[at + numpy.uint64(3)]) << numpy.uint32(24)
        )
        code = (
            TABLES[7, low & numpy.uint32(0xFF)]
            ^ TABLES[6, low >> numpy.uint32(8) & numpy.uint32(0xFF)]
            ^ TABLES[5, low >> numpy.uint32(16) & numpy.uint32(0xFF)]
            ^ TABLES[4, low >> numpy.uint32(24)]
            ^ TABLES[3, data[at + numpy.uint64(4)]]
            ^ TABLES[2, data[at + numpy.uint64(5)]]
            ^ TABLES[1, data[at + numpy.uint64(6)]]
            ^ TABLES[0, data[at + numpy.uint64(7)]]
        )
        at += numpy.uint64(8)
    while at < length:
        code = TABLES[0, (code ^ numpy.uint32(data[at])) & numpy.uint32(0xFF)] ^ code >> numpy.uint32(8)
        at += numpy.uint64(1)
    return numpy.uint64(numpy.uint32(~code))

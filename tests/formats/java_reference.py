"""How a Java virtual machine decodes UTF-8, and how brokers cut properties out of the result, step by step.

Written after the behaviour of `String(byte[], UTF_8)` alone, independent of rmqtool; slow and plain, to compare with.
A text is a list of UTF-16 code units.
"""

from __future__ import annotations

REPLACEMENT = 0xFFFD
Units = list[int]


def decode(raw: bytes) -> Units:
    """The code units of `new String(raw, UTF_8)`."""
    units: Units = []
    position = 0
    while position < len(raw):
        decoded, length = _next(raw[position : position + 4])
        units += decoded
        position += length
    return units


def text(units: Units) -> str:
    """The Python text of code units."""
    return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be")


def units_of(found: str) -> Units:
    """The code units of a Python text."""
    encoded = found.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]


def hash_code(units: Units) -> int:
    """`String.hashCode`."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) % 2**32
    return value if value < 2**31 else value - 2**32


def properties(raw: bytes) -> dict[str, str]:
    """A property block as brokers from 4.9.1 on read it: by positions in the decoded text."""
    units = decode(raw)
    found: dict[str, str] = {}
    start = 0
    while start < len(units):
        end = _find(units, 2, start)
        end = len(units) if end < 0 else end
        if end - start >= 3:
            separator = _find(units, 1, start)
            if start < separator < end - 1:
                found[text(units[start:separator])] = text(units[separator + 1 : end])
        start = end + 1
    return found


def _find(units: Units, wanted: int, start: int) -> int:
    for position in range(start, len(units)):
        if units[position] == wanted:
            return position
    return -1


def _is_continuation(raw: bytes, position: int) -> bool:
    return position < len(raw) and raw[position] & 0xC0 == 0x80


def _next(raw: bytes) -> tuple[Units, int]:
    """Code units of the character at the start, and how many bytes it, or the malformed part, takes."""
    first = raw[0]
    if first < 0x80:
        return [first], 1
    if 0xC2 <= first <= 0xDF and _is_continuation(raw, 1):
        return [(first & 0x1F) << 6 | raw[1] & 0x3F], 2
    if 0xE0 <= first <= 0xEF and _is_continuation(raw, 1) and not (first == 0xE0 and raw[1] < 0xA0):
        if not _is_continuation(raw, 2):
            return [REPLACEMENT], 2
        unit = (first & 0x0F) << 12 | (raw[1] & 0x3F) << 6 | raw[2] & 0x3F
        return [REPLACEMENT if 0xD800 <= unit <= 0xDFFF else unit], 3
    if 0xF0 <= first <= 0xF4 and _is_continuation(raw, 1):
        if (first == 0xF0 and raw[1] < 0x90) or (first == 0xF4 and raw[1] > 0x8F):
            return [REPLACEMENT], 1
        if not _is_continuation(raw, 2):
            return [REPLACEMENT], 2
        if not _is_continuation(raw, 3):
            return [REPLACEMENT], 3
        code = (first & 0x07) << 18 | (raw[1] & 0x3F) << 12 | (raw[2] & 0x3F) << 6 | raw[3] & 0x3F
        return [0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code - 0x10000 & 0x3FF)], 4
    return [REPLACEMENT], 1

"""Random edits of bytes, as disks, tools and bugs make them; the same seed gives the same edits."""

from __future__ import annotations

import random
from typing import Final

NUMBERS: Final = (0, 1, 2, 7, 8, 19, 20, 46, 90, 91, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1 << 20, 4 << 20)
"""Lengths and counts at which rules change."""
MAGICS: Final = (0xDAA320A7, 0xDAA320AB, 0xCBD43194)
EXTREMES: Final = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE)


def edit_bytes(random_source: random.Random, raw: bytearray, begin: int, end: int) -> None:
    """Change some of the bytes in [begin, end); the length stays."""
    length = end - begin
    if length <= 0:
        return
    kind = random_source.random()
    at = begin + int(random_source.random() * length)
    if kind < 0.35:
        raw[at] ^= 1 << int(random_source.random() * 8)
    elif kind < 0.5:
        raw[at] = int(random_source.random() * 256)
    elif kind < 0.7:
        _put_number(random_source, raw, at, end)
    elif kind < 0.8:
        stop = min(end, at + 1 + int(random_source.random() ** 3 * length))
        raw[at:stop] = bytes(stop - at)
    elif kind < 0.9:
        count = min(end - at, 1 + int(random_source.random() * 32))
        source = begin + int(random_source.random() * (length - count + 1))
        raw[at : at + count] = raw[source : source + count]
    elif kind < 0.95:
        count = min(end - at, 1 + int(random_source.random() * 12))
        raw[at:end] = (random_source.randbytes(count) + raw[at:end])[: end - at]
    else:
        count = min(end - at, 1 + int(random_source.random() * 12))
        raw[at:end] = raw[at + count : end] + bytes(count)


def _put_number(random_source: random.Random, raw: bytearray, at: int, end: int) -> None:
    width = random_source.choice((1, 2, 4, 4, 4, 8))
    if at + width > end:
        return
    known = random_source.choice((*NUMBERS, *MAGICS, *EXTREMES))
    delta = random_source.choice((-1, 0, 0, 0, 1))
    raw[at : at + width] = ((known + delta) % (1 << 8 * width)).to_bytes(width, "big")

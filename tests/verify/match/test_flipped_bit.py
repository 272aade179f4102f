"""A flipped bit is found from the CRCs alone, and nothing is made up where more than one is wrong."""

from __future__ import annotations

import random
import zlib

import pytest

from rmqtool.verify.match import flipped_bit
from rmqtool.verify.match.flipped_bit import STORED_BITS, FlippedBit, flipped_bits


@pytest.mark.parametrize("length", [1, 2, 7, 100, 4096, 1 << 20])
def test_one_flipped_bit_is_found(length: int) -> None:
    source = random.Random(length)
    body = bytearray(source.randbytes(length))
    stored = zlib.crc32(body) & STORED_BITS
    bits = range(8 * length) if length < 10 else [0, 8 * length - 1, *(source.randrange(8 * length) for _ in range(5))]
    for place in bits:
        body[place // 8] ^= 1 << place % 8
        found = flipped_bits(stored, zlib.crc32(body) & STORED_BITS, length)
        assert FlippedBit(place // 8, place % 8) in found
        assert len(found) <= 3
        body[place // 8] ^= 1 << place % 8


def test_bodies_of_about_one_length_share_the_work() -> None:
    """A log may be full of bad bodies; the search in each must not begin with thousands of steps of its own."""
    flipped_bit._strides_back.cache_clear()
    for length in range(30_000, 30_100):
        flipped_bits(1, 2, length)
    assert flipped_bit._strides_back.cache_info().misses == 1


def test_a_flip_in_the_stored_crc_is_found() -> None:
    crc = zlib.crc32(b"some body") & STORED_BITS
    assert FlippedBit(-1, 17) in flipped_bits(crc ^ 1 << 17, crc, 9)


def test_two_flipped_bits_are_not_taken_for_one() -> None:
    body = bytearray(b"x" * 300)
    stored = zlib.crc32(body) & STORED_BITS
    body[3] ^= 1
    body[200] ^= 16
    assert flipped_bits(stored, zlib.crc32(body) & STORED_BITS, 300) == []

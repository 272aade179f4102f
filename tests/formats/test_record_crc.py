"""Checksums of bodies and of whole records."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.record_crc import (
    masked_crc,
    record_crc_digits,
    record_crc_matches,
    record_crc_property,
    stored_record_crc,
)
from tests.formats.examples import MESSAGE_V1

# The record of the example with 20 bytes more: its own size and the length of its properties count them.
WITHOUT = MESSAGE_V1.raw.replace(b"\0\0\0\x7d", b"\0\0\0\x91", 1).replace(b"\0\x14KEYS", b"\0\x28KEYS")
PROPERTY = bytes.fromhex("5f5f435243333223 01 35373734363537363731 02")


@pytest.mark.parametrize(("body", "expected"), [(b"hello", 0x3610A686), (b"a", 0x68B7BE43), (b"", 0)])
def test_body_crc(body: bytes, expected: int) -> None:
    assert masked_crc(body) == masked_crc(memoryview(body)) == expected


def test_the_top_bit_is_cleared() -> None:
    assert zlib.crc32(b"a") == 0xE8B7BE43


def test_the_property_of_the_example_record() -> None:
    assert len(WITHOUT) == 125
    assert masked_crc(WITHOUT) == 1767564775
    assert record_crc_property(WITHOUT) == PROPERTY
    assert stored_record_crc(WITHOUT + PROPERTY) == 1767564775
    assert record_crc_matches(WITHOUT + PROPERTY) is True


@pytest.mark.parametrize(
    ("value", "digits"), [(0, b"0000000000"), (1, b"1000000000"), (120, b"0210000000"), (2147483647, b"7463847412")]
)
def test_digits_come_least_significant_first(value: int, digits: bytes) -> None:
    assert record_crc_digits(value) == digits


@given(st.binary(max_size=100), st.integers(0, 99), st.integers(0, 7))
def test_a_flipped_bit_is_seen(record: bytes, at: int, bit: int) -> None:
    whole = bytearray(record + record_crc_property(record))
    assert record_crc_matches(bytes(whole)) is True
    if at < len(record):
        whole[at] ^= 1 << bit
        # CRC-32 finds every single-bit error; without its top bit a lone one in that place could pass.
        changed = zlib.crc32(bytes(whole[:-20])) ^ zlib.crc32(record)
        assert record_crc_matches(bytes(whole)) is (changed == 1 << 31)


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        PROPERTY[1:],
        PROPERTY[:-1] + b"\x01",
        PROPERTY.replace(b"__CRC32#", b"__CRC32_"),
        PROPERTY.replace(b"5774657671", b"577465767x"),
        PROPERTY + b"\x02",
    ],
)
def test_a_record_without_the_property(tail: bytes) -> None:
    assert stored_record_crc(WITHOUT[:-20] + tail) is None
    assert record_crc_matches(WITHOUT[:-20] + tail) is None

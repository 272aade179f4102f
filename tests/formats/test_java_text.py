"""Text as Java sees it; the expected values were printed by a Java virtual machine."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqtool.formats.java_text import decode_java_utf8, java_hash, java_length
from tests.formats import java_reference
from tests.formats.test_properties import tricky_bytes

DECODED = [
    ("eda080", [0xFFFD]),
    ("eda0", [0xFFFD]),
    ("eda041", [0xFFFD, 0x41]),
    ("edbfbf80", [0xFFFD, 0xFFFD]),
    ("eda080edb080", [0xFFFD, 0xFFFD]),
    ("e180", [0xFFFD]),
    ("e18041", [0xFFFD, 0x41]),
    ("e08080", [0xFFFD, 0xFFFD, 0xFFFD]),
    ("f0908041", [0xFFFD, 0x41]),
    ("f0908080", [0xD800, 0xDC00]),
    ("f4908080", [0xFFFD] * 4),
    ("f5808080", [0xFFFD] * 4),
    ("c080", [0xFFFD, 0xFFFD]),
    ("c3a9", [0xE9]),
    ("f09f9880", [0xD83D, 0xDE00]),
    ("fffe41", [0xFFFD, 0xFFFD, 0x41]),
]
HASHES = [
    ("", 0),
    ("a", 97),
    ("TagA", 2598919),
    ("TagB", 2598920),
    ("a||b", 3012833),
    ("polygenelubricants", -2147483648),
    ("TopicTest#key1", -1655984460),
    ("é€", 15587),
    ("😀", 1772899),
    ("\ud800", 55296),
]


@pytest.mark.parametrize(("raw", "units"), DECODED)
def test_decoding(raw: str, units: list[int]) -> None:
    assert java_reference.units_of(decode_java_utf8(bytes.fromhex(raw))) == units
    assert java_reference.decode(bytes.fromhex(raw)) == units


@settings(max_examples=500)
@given(st.one_of(st.binary(max_size=40), tricky_bytes, st.text(max_size=20).map(str.encode)))
@example(b"\xed\xa0")
@example(b"\xed\xa0A")
def test_any_bytes_are_decoded_as_java_does(raw: bytes) -> None:
    units = java_reference.decode(raw)
    found = decode_java_utf8(raw)
    assert java_reference.units_of(found) == units
    assert java_hash(found) == java_reference.hash_code(units)
    assert java_length(found) == len(units)


@pytest.mark.parametrize(("text", "expected"), HASHES)
def test_hashes(text: str, expected: int) -> None:
    assert java_hash(text) == expected
    assert java_reference.hash_code(java_reference.units_of(text)) == expected

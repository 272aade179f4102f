"""Index files: hashes of keys, places of slots and entries, and the header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats import index
from tests.formats.reference import key_texts


@pytest.mark.parametrize(
    ("text", "expected"), [("TopicTest#key1", 1655984460), ("polygenelubricants", 0), ("TagA", 2598919), ("", 0)]
)
def test_key_hash(text: str, expected: int) -> None:
    assert index.key_hash(text) == expected


def test_the_slot_of_a_key_in_a_file_of_default_size() -> None:
    slot = index.key_hash("TopicTest#key1") % index.DEFAULT_SLOT_COUNT
    assert slot == 984460
    assert index.slot_position(slot) == 40 + 4 * 984460
    assert index.entry_position(0, index.DEFAULT_SLOT_COUNT) == 20_000_040
    assert index.file_size(index.DEFAULT_SLOT_COUNT, index.DEFAULT_ENTRY_COUNT) == 420_000_040


def test_key_texts_in_their_order() -> None:
    properties = {"TAGS": "TagA", "KEYS": " k1  k2 ", "UNIQ_KEY": "u"}
    assert list(key_texts("T", properties, with_tags=True)) == ["T#u", "T#k1", "T#k2", "T#T#TagA"]
    assert list(key_texts("T", properties, with_tags=False)) == ["T#u", "T#k1", "T#k2"]
    assert list(key_texts("T", {}, with_tags=True)) == []
    assert list(key_texts("T", {"KEYS": "a\tb", "TAGS": ""}, with_tags=True)) == ["T#a\tb"]


@given(st.builds(index.IndexHeader, *[st.integers(-(2**63), 2**63 - 1)] * 4, *[st.integers(-(2**31), 2**31 - 1)] * 2))
def test_a_header_is_read_as_it_was_written(header: index.IndexHeader) -> None:
    raw = header.build()
    assert len(raw) == index.HEADER_SIZE
    assert index.IndexHeader.parse(raw + b"slots") == header


def test_what_a_short_file_lacks_of_a_header_is_zero() -> None:
    raw = index.IndexHeader(1, 2, 3, 4, 5, 6).build()
    assert index.IndexHeader.parse(raw[:36]) == index.IndexHeader(1, 2, 3, 4, 5, 0)
    assert index.IndexHeader.parse(b"") == index.IndexHeader(next_entry_number=0)

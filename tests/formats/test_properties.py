"""Property blocks: cut as bytes, they give what a broker gets out of the decoded text."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.properties import (
    decode_properties,
    decode_properties_strict_pairs,
    encode_properties,
    split_properties,
)
from tests.formats import java_reference

# Bytes at which UTF-8 decoders differ, and both separators.
TRICKY = bytes.fromhex("010102020141427f808f909fa0bfc0c2dfe0e1edeff0f1f4f5ff")
tricky_bytes = st.lists(st.sampled_from(list(TRICKY)), max_size=40).map(bytes)
blocks = st.one_of(
    tricky_bytes, st.binary(max_size=60), st.text(alphabet="ab\x01\x02é€😀", max_size=40).map(str.encode)
)
texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
maps = st.dictionaries(texts, texts, max_size=6)


@settings(max_examples=600)
@given(blocks)
@example(b"a\xed\xa0\x01b\x02")
@example(b"a\x01\xed\xa0\x02\x80\x01b")
@example(b"a\x01\xf0\x90\x80\x02b\x01\xe1\x80")
def test_cutting_bytes_first_equals_the_broker(raw: bytes) -> None:
    pairs = {decode_java_utf8(name): decode_java_utf8(value) for name, value in split_properties(raw)}
    assert decode_properties(raw) == pairs == java_reference.properties(raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", {}),
        (b"KEYS\x01key1\x02TAGS\x01TagA\x02", {"KEYS": "key1", "TAGS": "TagA"}),
        (b"KEYS\x01key1\x02TAGS\x01TagA", {"KEYS": "key1", "TAGS": "TagA"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\x02b\x011\x02", {"b": "1"}),
        (b"\x01a\x02b\x011\x02", {"b": "1"}),
        (b"a\x01\x01\x02", {"a": "\x01"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"\x02\x02a\x011\x02\x02", {"a": "1"}),
        (b"a\x02b\x02", {}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_decoding(raw: bytes, expected: dict[str, str]) -> None:
    assert decode_properties(raw) == expected
    assert java_reference.properties(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"KEYS\x01key1\x02TAGS\x01TagA\x02", {"KEYS": "key1", "TAGS": "TagA"}),
        (b"a\x01b\x01c\x02d\x01e", {"d": "e"}),
        (b"a\x01b\x01\x02", {"a": "b"}),
        (b"a\x01\x02", {}),
        (b"a\x02", {}),
        (b"\x01a\x02", {"": "a"}),
        (b"\x01\x01\x02", {}),
        (b"a\x011\x02a\x012", {"a": "2"}),
    ],
)
def test_decoding_as_old_brokers_do(raw: bytes, expected: dict[str, str]) -> None:
    assert decode_properties_strict_pairs(raw) == expected


@given(maps, st.booleans())
def test_what_is_encoded_is_decoded(properties: dict[str, str], trailing_separator: bool) -> None:
    raw = encode_properties(properties, trailing_separator=trailing_separator)
    assert decode_properties(raw) == decode_properties_strict_pairs(raw) == properties
    assert raw.endswith(b"\x02") == (trailing_separator and bool(properties))


def test_order_and_separators_of_the_encoding() -> None:
    properties = {"b": "2", "a": "1"}
    assert encode_properties(properties, trailing_separator=True) == b"b\x012\x02a\x011\x02"
    assert encode_properties(properties, trailing_separator=False) == b"b\x012\x02a\x011"
    assert encode_properties({}, trailing_separator=True) == b""


def test_half_a_surrogate_pair_is_written_as_java_writes_it() -> None:
    assert encode_properties({"a": "\ud800é"}, trailing_separator=False) == b"a\x01?\xc3\xa9"


@given(blocks)
def test_pairs_come_in_order_and_undecoded(raw: bytes) -> None:
    pairs = list(split_properties(raw))
    assert all(name and value and b"\x02" not in name + value and b"\x01" not in name for name, value in pairs)
    rejoined = b"\x02".join(name + b"\x01" + value for name, value in pairs)
    assert list(split_properties(rejoined)) == pairs

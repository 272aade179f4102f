"""What replaces a text tells its length, its hash and which texts are equal, and nothing more."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.formats.java_text import java_hash

SECRET = bytes(32)


@given(st.text(min_size=1, max_size=30))
def test_a_tag_keeps_its_hash_and_its_length(tag: str) -> None:
    raw = tag.encode("utf-8", "replace")
    replaced = Pseudonyms(SECRET).same_hash(raw)
    assert len(replaced) == len(raw)
    characters = raw.decode()
    is_solved = java_hash(replaced.decode()) == java_hash(characters) and len(replaced.decode()) == len(characters)
    assert is_solved or replaced.isalnum()  # letters stand where no other text has the hash


@given(st.binary(min_size=12, max_size=60))
def test_letters_depend_on_text_and_secret_only(text: bytes) -> None:
    first = Pseudonyms(SECRET).letters(text)
    assert first == Pseudonyms(SECRET).letters(text) != Pseudonyms(b"other" * 6).letters(text)
    assert len(first) == len(text)
    assert first.isalnum()
    assert Pseudonyms(SECRET).letters(text + b"x")[: len(text)] != first


@given(st.text(min_size=8, max_size=30))
def test_a_tag_of_eight_characters_keeps_its_hash(tag: str) -> None:
    raw = tag.encode()
    replaced = Pseudonyms(SECRET).same_hash(raw)
    assert replaced != raw
    assert java_hash(replaced.decode()) == java_hash(tag)


def test_a_text_of_two_characters_and_more_does_not_stay() -> None:
    pseudonyms = Pseudonyms(SECRET)
    texts = [b"ab", b"order-4711", "标签".encode(), b"\xff\xfe", b"TagA TagB"]
    assert all(pseudonyms.same_hash(text) != text for text in texts)
    assert pseudonyms.same_hash(b"a") == b"a"


def test_only_texts_that_were_replaced_are_known() -> None:
    pseudonyms = Pseudonyms(SECRET, remembers=True)
    assert pseudonyms.of_known(b"customer-1") == b"customer-1"
    hidden = pseudonyms.letters(b"customer-1")
    pseudonyms.letters(b"abc")
    assert pseudonyms.of_known(b"customer-1") == hidden != b"customer-1"
    assert pseudonyms.of_known(b"abc") == b"abc"


@given(st.binary(max_size=100))
def test_a_body_is_filled_with_what_compresses(content: bytes) -> None:
    filled = Pseudonyms(SECRET).filler(content)
    assert len(filled) == len(content)
    assert filled == (filled[:8] * 20)[: len(content)]


def test_any_number_of_texts_is_remembered_in_the_same_memory() -> None:
    pseudonyms = Pseudonyms(SECRET, remembers=True)
    tracemalloc.start()
    for number in range(50_000):
        pseudonyms.letters(b"customer-%d" % number)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000
    assert all(pseudonyms.of_known(b"customer-%d" % number) != b"customer-%d" % number for number in range(50_000))
    others = [b"other-%d" % number for number in range(10_000)]
    assert sum(pseudonyms.of_known(text) != text for text in others) < 10

"""A text with a given hash is found, of the characters and widths that are asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.evidence.hash_text import text_with_hash
from rmqtool.formats.java_text import java_hash

widths = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=8, max_size=40)


@given(st.integers(0, 2**32 - 1), widths, st.data())
def test_the_text_has_the_hash_and_the_widths(hash_value: int, widths: list[int], data: st.DataObject) -> None:
    choices = data.draw(st.binary(min_size=8 * len(widths) + 4, max_size=8 * len(widths) + 4))
    text = text_with_hash(hash_value, widths, choices)
    if text is not None:
        assert java_hash(text) & 0xFFFFFFFF == hash_value
        assert [len(character.encode()) for character in text] == widths


def test_long_texts_have_one_for_most_choices() -> None:
    solved = [text_with_hash(12345, [1] * 12, bytes([at]) * 100) for at in range(32)]
    assert sum(text is not None for text in solved) > 16


def test_a_short_text_has_none_for_most_hashes() -> None:
    assert text_with_hash(0xFFFFFFFF, [1], bytes(12)) is None
    assert text_with_hash(ord("a"), [1], bytes(12)) == "a"


def test_characters_are_those_that_are_asked_for() -> None:
    target = java_hash("abcdefghijkl") & 0xFFFFFFFF
    for at in range(64):
        text = text_with_hash(target, [1] * 12, bytes([at, 3 * at]) * 50, {1: ((ord("a"), ord("z")),)})
        assert text is None or (text.isalpha() and text.islower() and java_hash(text) & 0xFFFFFFFF == target)

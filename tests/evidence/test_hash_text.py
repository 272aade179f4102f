"""A text with a given hash is found, of the characters and widths that are asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.evidence.hash_text import own_ranges, text_with_hash, usual_ranges
from rmqtool.formats.java_text import java_hash

widths = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=8, max_size=40)


@given(st.integers(0, 2**32 - 1), widths, st.data())
def test_the_text_has_the_hash_and_the_widths(hash_value: int, widths: list[int], data: st.DataObject) -> None:
    choices = data.draw(st.binary(min_size=8 * len(widths) + 4, max_size=8 * len(widths) + 4))
    text = text_with_hash(hash_value, usual_ranges(widths), choices)
    if text is not None:
        assert java_hash(text) & 0xFFFFFFFF == hash_value
        assert [len(character.encode()) for character in text] == widths


def test_long_texts_have_one_for_most_choices() -> None:
    solved = [text_with_hash(12345, usual_ranges([1] * 12), bytes([at]) * 100) for at in range(32)]
    assert sum(text is not None for text in solved) > 16


def test_a_short_text_has_none_for_most_hashes() -> None:
    assert text_with_hash(0xFFFFFFFF, usual_ranges([1]), bytes(12)) is None
    assert text_with_hash(ord("a"), usual_ranges([1]), bytes(12)) == "a"


def test_characters_are_those_that_are_asked_for() -> None:
    target = java_hash("abcdefghijkl") & 0xFFFFFFFF
    for at in range(64):
        text = text_with_hash(target, [(ord("a"), ord("z"))] * 12, bytes([at, 3 * at]) * 50)
        assert text is None or (text.isalpha() and text.islower() and java_hash(text) & 0xFFFFFFFF == target)


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zs"], exclude_characters="\x7f"), min_size=1, max_size=20)
)
def test_a_text_is_one_of_its_own_ranges(text: str) -> None:
    ranges = own_ranges(text)
    assert ranges is not None
    found_again = text_with_hash(java_hash(text) & 0xFFFFFFFF, ranges, bytes(8 * len(text) + 4))
    if len(ranges) < 4:  # where every solution is one of a few
        assert found_again is not None
        assert java_hash(found_again) == java_hash(text)
        assert len(found_again.encode()) == len(text.encode())


def test_a_control_character_has_no_range() -> None:
    assert own_ranges("a\x01") is own_ranges("a b") is None

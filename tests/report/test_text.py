"""Text out of a store is harmless on a terminal, fits its column."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.report.text import columns_of, cropped, escaped, field_lines, json_escaped, padded


@given(st.text(alphabet=st.characters()))
def test_escaped_text_is_printable(text: str) -> None:
    assert escaped(text).isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 世 🚀", "plain ü 世 🚀"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\0", "a\\nb\\tc\\x00"),
        ("\u202e\u2066\u200b\ufeff", "\\u202e\\u2066\\u200b\\ufeff"),
        ("\x9b\u2028", "\\x9b\\u2028"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_what_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


@given(st.text(alphabet=st.characters()))
def test_escaped_json_means_the_same(text: str) -> None:
    line = json_escaped(json.dumps({"a": text}, ensure_ascii=False))
    assert line.isprintable()
    assert json.loads(line)["a"] == json.loads(json.dumps(text))


@given(st.text(), st.integers(0, 30))
def test_cropped_text_fits(text: str, width: int) -> None:
    shown = cropped(escaped(text), width)
    assert columns_of(shown) <= width
    assert columns_of(padded(shown, 30)) == 30


def test_wide_characters_take_two_columns() -> None:
    assert columns_of("世界") == 4
    assert cropped("世界世界", 5) == "世界…"
    assert padded("世", 4, right=True) == "  世"


def test_a_long_value_is_wrapped_below_itself_and_words_stay_whole() -> None:
    word = "7F00000100002A9F0000006600000015"
    assert list(field_lines("keys", f"order-1 {word} last", 6, 40)) == [
        "keys    order-1",
        f"        {word}",
        "        last",
    ]
    assert list(field_lines("id", word, 6, 30)) == [f"id      {word}"]
    assert list(field_lines("body", "two  spaces ", 6, 40)) == ["body    two  spaces"]
    assert list(field_lines("keys", "x " * 200, 6, None)) == [f"keys    {'x ' * 200}".rstrip()]
    assert list(field_lines("tags", "", 6, 40)) == ["tags"]

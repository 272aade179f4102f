"""Properties and their values as Java reads them; tests/broker/test_settings.py asks Java itself."""

from __future__ import annotations

import math

import pytest

from rmqtool.formats.java_properties import (
    MalformedEscapeError,
    java_trim,
    parse_java_boolean,
    parse_java_double,
    parse_java_integer,
    parse_properties,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"# no\n! nor this\n\n   # nor this\n", {}),
        (b"a=1\nb:2\nc 3\nd\t=\t4\n e = 5 \n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5 "}),
        (b"a==1\nb= = 2\nc : = 3", {"a": "=1", "b": "= 2", "c": "= 3"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"empty\nalso=", {"empty": "", "also": ""}),
        (b"a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        (b"a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        (b"a=x\\\n# no comment\nb=y", {"a": "x# no comment", "b": "y"}),
        (b"\\\n# a comment\nb=y", {"b": "y"}),
        (b"a=x\\\n\nb=y", {"a": "x", "b": "y"}),
        (b"# a comment is not continued \\\nb=y", {"b": "y"}),
        (b"a=x\\", {"a": "x"}),
        (b"a\\ b\\=c\\:d = v", {"a b=c:d": "v"}),
        (rb"a=\t\n\r\f\q\"C:\\dir", {"a": '\t\n\r\fq"C:\\dir'}),
        (rb"a=\u4e3b\ud83d\ude00", {"a": "主\U0001f600"}),
        (b"a=caf\xe9\xa0x", {"a": "café\xa0x"}),
        (b"a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"=value", {"": "value"}),
    ],
)
def test_properties_are_read_by_the_rules_of_java(text: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", [rb"a=\u12", rb"a=\uxyzt", rb"\u004=b", rb"a=\u 041"])
def test_a_malformed_escape_makes_the_whole_file_none(text: bytes) -> None:
    with pytest.raises(MalformedEscapeError):
        parse_properties(b"good=1\n" + text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("-0", 0), ("+7", 7), ("-2147483648", -(1 << 31)), ("2147483648", None), ("007", 7), ("", None),
        ("-", None), ("+", None), ("+-1", None), (" 1", None), ("1 ", None), ("1_0", None), ("0x10", None),
        ("1.0", None), ("\u0661\u0662", 12), ("\uff11", 1), ("\U0001d7d9", None), ("\u00b2", None),
    ],
)  # fmt: skip
def test_an_int_is_digits_of_any_script(text: str, number: int | None) -> None:
    assert parse_java_integer(text, 32) == number


def test_a_long_has_64_bits() -> None:
    assert parse_java_integer("9223372036854775807", 64) == (1 << 63) - 1
    assert parse_java_integer("9223372036854775808", 64) is None
    assert parse_java_integer("9" * 10_000, 64) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1.0), (" 1.5\t", 1.5), ("1.", 1.0), (".5", 0.5), ("1e3d", 1000.0), ("-1F", -1.0), ("0x1.8p1", 3.0),
        ("-Infinity", -math.inf), ("1e999", math.inf), ("infinity", None), (".", None), ("", None), ("0x1", None),
        ("1_0", None), ("\u0661", None),
    ],
)  # fmt: skip
def test_a_double_is_what_java_takes_for_one(text: str, number: float | None) -> None:
    assert parse_java_double(text) == number


def test_a_double_may_be_no_number() -> None:
    assert math.isnan(parse_java_double("NaN") or 0)


def test_a_truth_value_is_the_word_alone() -> None:
    assert [parse_java_boolean(text) for text in ("true", "TRUE", " true", "true ", "yes", "1", "")] == [True] * 2 + [
        False
    ] * 5


def test_trimming_takes_control_characters_and_no_other_blanks() -> None:
    assert java_trim("\0\t\x1f a\xa0\u3000 \r\n") == "a\xa0\u3000"

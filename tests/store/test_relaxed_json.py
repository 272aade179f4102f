"""The broker's JSON is read as it is written, ordinary JSON like the standard library reads it, and nothing crashes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.store.relaxed_json import DEPTH_MAX, JsonError, parse_relaxed_json

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"offsetTable":{"T@G":{0:12,1:9223372036854775807}}}', {"offsetTable": {"T@G": {0: 12, 1: 2**63 - 1}}}),
        ('{"offsetTable":{"T@G":{0:12,1:13\n\t\t}\n\t}\n}', {"offsetTable": {"T@G": {0: 12, 1: 13}}}),
        ('{0:1,"0":2,-1:3}', {0: 1, "0": 2, -1: 3}),
        ("{name:1,'single':'it\\'s',$ref:\"$.a\"}", {"name": 1, "single": "it's", "$ref": "$.a"}),
        ("{true:1,null:2}", {"true": 1, "null": 2}),
        ('{,"a":1,"b":[1,,2,],}', {"a": 1, "b": [1, 2]}),
        ("[1L,-2L]", [1, -2]),
        ('/* x */ {"a": // y\n 1}', {"a": 1}),
        (r'"\u4e3b\ud83d\ude00\x41\/\0\v"', "主\U0001f600A/\0\v"),
        ('"\udc80"', "\udc80"),  # a byte that is no UTF-8, kept as file names keep it
        ("[1.5,-2e3,.5,3.,1e5,true,false,null]", [1.5, -2000.0, 0.5, 3.0, 100000.0, True, False, None]),
        ('{"a":1,"a":2}', {"a": 2}),
        ("[]", []),
        ("{}", {}),
        ("7", 7),
    ],
)
def test_the_dialect(text: str, value: object) -> None:
    assert parse_relaxed_json(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "incomplete at character 0"),
        ("  ", "incomplete"),
        ('{"a":', "incomplete at character 5"),
        ('{"a":{0:1', "incomplete"),
        ("[1,2", "incomplete"),
        ('{"a" 1}', "unexpected '1' at character 5"),
        ('{"a":1,,"b":2}', "unexpected ',' at character 7"),
        ("{T@G:1}", "unexpected"),
        (r'"\G"', "unknown escape"),
        ("{1:}", "unexpected '}'"),
        ("{]", "unexpected ']'"),
        ("[}", "unexpected '}'"),
        ("{}{}", "unexpected '{' at character 2"),
        ("{[1]:2}", "unexpected"),
        ('"open', "unexpected"),
        ("/* open", "unexpected"),
        ("word", "unexpected 'word'"),
        ("12abc", "unexpected"),
        ("9" * 10_000, "unexpected"),
        ("[" * (DEPTH_MAX + 1), "nested deeper than 64 at character 64"),
        ('{"a":' * 1_000_000, "nested deeper"),
        ("\0", "unexpected"),
    ],
)
def test_what_is_no_json_says_where(text: str, message: str) -> None:
    with pytest.raises(JsonError) as error:
        parse_relaxed_json(text)
    assert message in str(error.value)
    assert len(str(error.value)) < 100


@pytest.mark.parametrize(
    "text", ["/*" * 100_000, "'" + "\\" * 200_001, " " * 500_000, "1" * 300_000, "[" + "a" * 300_000]
)
def test_long_nonsense_ends_soon(text: str) -> None:
    with pytest.raises(JsonError):
        parse_relaxed_json(text)


@settings(deadline=None)  # a busy machine is no failure
@given(JSON_VALUES)
def test_ordinary_json_is_read_as_the_standard_library_reads_it(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert parse_relaxed_json(text) == json.loads(text)


@settings(deadline=None)  # a busy machine is no failure
@given(st.text(alphabet="{}[]:,\"'\\/*0123456789.eE+-tfn au\n\ud83d\ude00") | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_relaxed_json(text)
    except JsonError as error:
        assert str(error)  # noqa: PT017 - either outcome is right, another exception is not

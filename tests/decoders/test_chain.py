"""Decoders: a body is decoded, or told with a bounded reason; nothing that one does reaches further."""

from __future__ import annotations

import datetime
import decimal
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.decoders import time_limit
from rmqtool.decoders.chain import REASON_MAX, DecoderChain, make_chain
from rmqtool.decoders.decoder import Decode
from rmqtool.errors import RmqtoolError, UnsupportedError, UsageError
from rmqtool.report.bodies import BodyChoice, DecodedBody, MessageFacts, decoded_body
from tests.decoders.plugin_packages import install

ORDERS = MessageFacts("orders", 0, 7, {"TAGS": "a"})
BROKEN = """
def ends(argument):
    raise SystemExit(argument)
def fails(argument):
    def decode(body, message):
        raise ZeroDivisionError("x" * 100_000)
    return decode
def odd(argument):
    return lambda body, message: object()
def leaves(argument):
    return lambda body, message: sys.exit(3)
def declines(argument):
    return lambda body, message: ...
def refuses(argument):
    raise ValueError("needs a number")
def crashes(argument):
    raise KeyError("x")
def nothing(argument):
    return None
def topic(argument):
    return lambda body, message: {"topic": message.topic, "argument": argument, "length": len(body)}
import sys
"""


def chain(*choices: str) -> DecoderChain:
    made = make_chain(choices)
    assert made is not None
    return made


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = ("fails", "odd", "leaves", "declines", "refuses", "crashes", "nothing", "topic")
    install(tmp_path, "acme", BROKEN, {**{name: name for name in names}, "json": "fails", "gone": "no_such"})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("choice", "body", "value"),
    [
        ("json", b'{"a": [1, "\xc3\xa4", null]}', {"a": [1, "ä", None]}),
        ("json=compact", b'{ "a": [1, 2] }', '{"a":[1,2]}'),
        ("json=pretty", b'{"a":1}', '{\n  "a": 1\n}'),
        ("text", "aä".encode(), "aä"),
        ("text=gbk", "订单".encode("gbk"), "订单"),
    ],
)
def test_bodies_are_decoded(choice: str, body: bytes, value: Any) -> None:
    assert chain(choice).decode(body, ORDERS) == DecodedBody(value, choice.partition("=")[0], None)


@pytest.mark.parametrize(
    ("choice", "body", "reason"),
    [
        ("json", b"", "Expecting value"),
        ("json", b"NaN", "NaN is not JSON"),
        ("json", b'{"a": 1, "a": 2}', "'a' stands twice"),
        ("json", b"[" * 100_000, "recursion"),
        ("json", b"\xff", "utf-8"),
        ("json", b"[" * 200 + b"]" * 200, "nested deeper"),
        ("json", b"[" + b"1," * 100_001 + b"1]", "more than 100000 values"),
        ("json", b"1" * 5000, "digit"),
        ("text", b"\xff", "can't decode byte"),
    ],
)
def test_what_is_none_of_its_kind_gives_a_short_reason(choice: str, body: bytes, reason: str) -> None:
    decoded = chain(choice).decode(body, ORDERS)
    assert decoded.value is None
    assert decoded.decoder == choice
    assert reason in str(decoded.error)
    assert len(str(decoded.error)) <= REASON_MAX + 3


@given(st.binary(max_size=200), st.sampled_from(["json", "text", "text=utf-16"]))
def test_random_bytes_never_raise(body: bytes, choice: str) -> None:
    decoded = chain(choice).decode(body, ORDERS)
    json.dumps(decoded.value, allow_nan=False)


def test_the_first_decoder_that_reads_a_body_counts() -> None:
    both = chain("json", "text=gbk")
    assert both.decode(b"1", ORDERS).decoder == "json"
    assert both.decode("订".encode("gbk"), ORDERS) == ("订", "text", None)
    neither = both.decode(b"\xff\xff\xff", ORDERS)
    assert neither.decoder is None
    assert "json: " in str(neither.error)
    assert "text: " in str(neither.error)
    assert both.failures == 1


def test_a_body_beyond_the_limit_or_with_a_wrong_compression_is_not_decoded() -> None:
    choice = BodyChoice(limit=10, decoder=chain("text"))
    assert decoded_body(b"0123456789", 10, None, ORDERS, choice)[4:] == ("0123456789", "text", None)
    cut, *_, error = decoded_body(b"0123456789a", 11, None, ORDERS, choice)
    assert (cut, error) == ("0123456789", "longer than the limit, so not decoded")
    assert "zlib" in decoded_body(b"0123456789", 10, "zlib", ORDERS, choice)[6]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (b"\0\xff", "AP8="),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.date(2026, 11, 25), "2026-11-25"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (float("inf"), "inf"),
        (1 << 64, "0x10000000000000000"),
        ({1: (True, None)}, {"1": [True, None]}),
    ],
)
def test_values_of_libraries_become_json(value: Any, plain: Any) -> None:
    decode: Decode = lambda _body, _message: value  # noqa: E731 - a decoder is a function
    assert DecoderChain([("x", decode)]).decode(b"", ORDERS).value == plain


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        ("jsn", "no decoder 'jsn'; did you mean json?"),
        ("json=tight", "'tight' is not one of"),
        ("text=klingon", "no character set 'klingon'"),
        ("text=zlib", "no character set|not a text encoding"),
        ("system=x", "takes no argument"),
        ("avro", "schema is missing"),
        ("avro=/no/such.avsc", "/no/such.avsc: No such file"),
        ("protobuf=x", "are missing"),
        ("protobuf=/no/such.desc:a.B", "/no/such.desc: No such file"),
    ],
)
def test_wrong_choices_are_refused_in_one_line(choice: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        make_chain([choice])


def test_a_missing_library_is_named_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.decoders.avro.find_spec", lambda _name: None)
    monkeypatch.setattr("rmqtool.decoders.built_in.find_spec", lambda _name: None)
    for choice in ("avro=x", "protobuf=x:y"):
        with pytest.raises(UnsupportedError, match=r"pip install '\.\[decoders\]'\)") as caught:
            make_chain([choice])
        assert caught.value.exit_code == 4


def test_a_plugin_decodes(plugins: Path) -> None:
    decoded = chain("topic=a=b").decode(b"123", ORDERS)
    assert decoded == ({"topic": "orders", "argument": "a=b", "length": 3}, "topic", None)
    assert chain("declines", "text").decode(b"1", ORDERS) == ("1", "text", None)
    assert chain("declines").decode(b"1", ORDERS) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "reason"), [("fails", "ZeroDivisionError"), ("odd", "holds a object"), ("leaves", "SystemExit")]
)
def test_a_plugin_that_fails_is_named_and_bounded(plugins: Path, name: str, reason: str) -> None:
    decoded = chain(name).decode(b"1", ORDERS)
    assert decoded.decoder == name
    assert reason in str(decoded.error)
    assert len(str(decoded.error)) <= REASON_MAX + 3


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("refuses", "--decode refuses: needs a number"),
        ("crashes", "decoder 'crashes' fails: KeyError"),
        ("nothing", "makes no function"),
        ("gone", "decoder 'gone' of acme 1.2 cannot be loaded: AttributeError"),
    ],
)
def test_a_plugin_that_does_not_start_is_named(plugins: Path, name: str, error: str) -> None:
    with pytest.raises(RmqtoolError, match=error):
        make_chain([name])


def test_a_plugin_replaces_no_built_in_decoder(plugins: Path) -> None:
    assert chain("json").decode(b"1", ORDERS) == (1, "json", None)


def test_two_packages_with_one_name_are_both_named(plugins: Path) -> None:
    install(plugins, "other", BROKEN, {"topic": "topic"})
    with pytest.raises(UsageError, match=r"acme 1\.2 and other 1\.2"):
        make_chain(["topic"])


SLOW = """
import time
def sleeps(argument):
    return lambda body, message: time.sleep(3600) if body == b"odd" else len(body)
def spins(argument):
    def decode(body, message):
        while body == b"odd":
            pass
        return len(body)
    return decode
def starts(argument):
    time.sleep(3600)
"""


@pytest.fixture
def slow_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "slow", SLOW, {name: name for name in ("sleeps", "spins", "starts")})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "slow", raising=False)


@pytest.mark.parametrize("name", ["sleeps", "spins"])
@pytest.mark.usefixtures("slow_plugins")
def test_a_plugin_that_hangs_is_left_after_some_bodies(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    decoders = chain(name)
    late, whole = DecodedBody(None, name, "no answer within 0.1 s"), DecodedBody(4, name, None)
    for body, limit_s, expected in 2 * ((b"four", 60, whole), (b"odd", 0.1, late)):
        monkeypatch.setattr(time_limit, "DECODE_S", limit_s)
        assert decoders.decode(body, ORDERS) == expected
    assert decoders.decode(b"odd", ORDERS) == late
    given_up = "not asked any more: no answer within 0.1 s to 3 bodies"
    assert decoders.decode(b"four", ORDERS) == DecodedBody(None, name, given_up)
    assert decoders.failures == 4


@pytest.mark.usefixtures("slow_plugins")
def test_a_plugin_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "MAKE_S", 0.1)
    with pytest.raises(UnsupportedError, match=r"decoder 'starts' does not start: no answer within 0\.1 s"):
        chain("starts")

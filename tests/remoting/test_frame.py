"""Frames: what is written is what brokers read, and nothing that comes in does harm."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.errors import FrameError
from rmqtool.remoting.frame import FRAME_MAX, Command, decode_frame, encode_frame, frame_length


def test_a_request_is_length_form_header_and_body() -> None:
    raw = encode_frame(Command(105, 7, {"topic": "订单"}, b"body"))
    length, header_length = struct.unpack(">ii", raw[:8])
    header = json.loads(raw[8 : 8 + header_length])
    assert length == len(raw) - 4
    assert raw[8 + header_length :] == b"body"
    assert (header["code"], header["opaque"], header["flag"]) == (105, 7, 0)
    assert header["extFields"] == {"topic": "订单"}
    assert header["serializeTypeCurrentRPC"] == "JSON"


def test_half_a_surrogate_pair_is_sent_as_java_sends_it() -> None:
    assert decode_frame(encode_frame(Command(1, 1, {"i": "a\udc80b"}))[4:]).fields == {"i": "a?b"}


def test_a_binary_header_is_read() -> None:
    fields = b"\x00\x01a\x00\x00\x00\x02xy" + b"\x00\x02bc\x00\x00\x00\x00"
    header = struct.pack(">hbhii", 17, 0, 1, 5, 1) + struct.pack(">i", 2) + b"no" + struct.pack(">i", len(fields))
    raw = struct.pack(">I", 1 << 24 | len(header + fields)) + header + fields + b"rest"
    assert decode_frame(raw) == Command(17, 5, {"a": "xy", "bc": ""}, b"rest", "no", is_response=True)


@pytest.mark.parametrize("form", [0, 1])
@given(header=st.binary(max_size=60), surplus=st.integers(-3, 3))
def test_any_header_is_a_command_or_a_clear_error(form: int, header: bytes, surplus: int) -> None:
    length = max(0, len(header) + surplus)
    try:
        command = decode_frame(struct.pack(">I", form << 24 | length) + header)
    except FrameError:
        return
    assert len(command.body) <= len(header)


@pytest.mark.parametrize(
    "header",
    [b"", b"[" * 100_000, b"{}", b'{"code":"1","opaque":1}', b'{"code":1,"opaque":1,"extFields":[]}', b"\xff"],
)
def test_a_header_that_is_none_is_a_clear_error(header: bytes) -> None:
    with pytest.raises(FrameError, match="header"):
        decode_frame(struct.pack(">I", len(header)) + header)


def test_an_unknown_form_of_header_is_a_clear_error() -> None:
    with pytest.raises(FrameError, match="form 9"):
        decode_frame(struct.pack(">I", 9 << 24))


@pytest.mark.parametrize("length", [-1, 0, 3, FRAME_MAX, 0x48545450])
def test_a_length_that_no_frame_has_is_refused_before_anything_is_read(length: int) -> None:
    with pytest.raises(FrameError, match="not RocketMQ's remoting protocol"):
        frame_length(struct.pack(">i", length))


def test_a_request_that_no_broker_takes_is_not_sent() -> None:
    with pytest.raises(FrameError, match="longer than brokers take"):
        encode_frame(Command(310, 1, {}, bytes(FRAME_MAX)))

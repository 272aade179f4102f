"""Connections: the right answer or a clear error in time, whatever the other side does."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from rmqtool.errors import ConnectionLostError, UsageError
from rmqtool.remoting.connection import Connection, parse_address
from tests.remoting_server import Request, answer, frame, serving


def test_answers_are_told_from_other_frames() -> None:
    def reply(request: Request, body: bytes) -> bytes:
        notice = frame({"code": 40, "opaque": request["opaque"], "flag": 2})
        late = answer(request | {"opaque": request["opaque"] - 1}, remark="late")
        return notice + late + answer(request, 3, body * 2, "hello", fields=request["extFields"])

    with serving(reply) as address, Connection(address) as connection:
        for _ in range(3):
            command = connection.call(9, {"a": True, "b": None, "c": 5}, b"ab")
            assert (command.code, command.body, command.remark) == (3, b"abab", "hello")
            assert command.fields["fields"] == "{'a': 'true', 'c': '5'}"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not RocketMQ's remoting protocol"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x09a", "header of 9"),
        (None, "closed"),
        (b"\x00\x00", "timed out"),
        (b"", "timed out"),
    ],
)
def test_what_is_no_answer_is_a_clear_error(reply: bytes | None, reason: str) -> None:
    with serving(lambda _request, _body: reply) as address, Connection(address, answer_seconds=0.5) as connection:
        with pytest.raises(ConnectionLostError, match=reason) as raised:
            connection.call(9)
        assert raised.value.was_sent
        with pytest.raises(ConnectionLostError):
            connection.call(9)


def test_a_server_that_never_ends_its_notices_does_not_hold_a_request_forever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def flood() -> None:
            peer, _ = listener.accept()
            with peer:
                try:
                    while True:
                        peer.sendall(frame({"code": 40, "opaque": 0, "flag": 2}) * 100)
                except OSError:
                    return

        flooding = threading.Thread(target=flood)
        flooding.start()
        before = time.monotonic()
        connection = Connection(f"127.0.0.1:{listener.getsockname()[1]}", answer_seconds=0.5)
        with pytest.raises(ConnectionLostError, match="timed out"):
            connection.call(9)
        flooding.join()
    assert time.monotonic() - before < 60


def test_nobody_there_is_told_from_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionLostError, match=f"127.0.0.1:{port}: cannot connect") as raised:
        Connection(f"127.0.0.1:{port}")
    assert not raised.value.was_sent


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker-1:10911", ("broker-1", 10911)),
        ("[::1]:10911", ("::1", 10911)),
        ("fe80::1:10911", ("fe80::1", 10911)),
        ("namesrv", ("namesrv", 9876)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text, 9876) == address


@pytest.mark.parametrize("text", ["", ":1", "a:0", "a:65536", "a b:1", "a:x", "http://a:1", "[::1"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        parse_address(text, 9876)


def test_a_host_name_that_is_none_is_a_clear_error() -> None:
    with pytest.raises(ConnectionLostError, match="cannot connect"):
        Connection("a" * 70 + ".:1")

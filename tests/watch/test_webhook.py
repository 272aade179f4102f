"""The webhook gets every row, is tried again, and a receiver that is slow, gone or wrong delays nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from rmqtool.errors import UsageError
from rmqtool.watch.webhook import WAITING_MAX, Webhook, webhook_url


class Receiver(HTTPServer):
    """Answers with the given codes, one after the other, then with 200; `hold` keeps it from answering."""

    def __init__(self, *codes: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.codes = list(codes)
        self.rows: list[dict[str, Any]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    def end(self) -> None:
        self.hold.set()
        self.shutdown()
        self.thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.rows.append(row)
        self.server.hold.wait(30)
        code = self.server.codes.pop(0) if self.server.codes else 200
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "file:///etc/passwd")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.end()


def test_rows_arrive_in_order(receiver: Receiver) -> None:
    hook = Webhook(receiver.url)
    for number in range(5):
        hook.send({"number": number})
    hook.close()
    assert [row["number"] for row in receiver.rows] == [0, 1, 2, 3, 4]
    assert (hook.sent, hook.dropped, hook.problem) == (5, 0, None)


def test_a_failure_of_the_receiver_is_tried_again(receiver: Receiver) -> None:
    receiver.codes = [500, 503]
    hook = Webhook(receiver.url, pause_seconds=0.01)
    hook.send({"a": 1})
    hook.close()
    assert receiver.rows == [{"a": 1}] * 3
    assert (hook.sent, hook.dropped) == (1, 0)


@pytest.mark.parametrize("code", [400, 302])
def test_what_is_refused_or_redirected_is_given_up(receiver: Receiver, code: int) -> None:
    receiver.codes = [code]
    hook = Webhook(receiver.url, pause_seconds=0.01)
    hook.send({"a": 1})
    hook.send({"a": 2})
    hook.close()
    assert receiver.rows == [{"a": 1}, {"a": 2}]
    assert (hook.sent, hook.dropped) == (1, 1)


def test_nobody_listens() -> None:
    gone = Receiver()
    gone.end()
    hook = Webhook(gone.url, pause_seconds=0.01)
    hook.send({"a": 1})
    hook.close()
    assert (hook.sent, hook.dropped) == (0, 1)
    assert "could not be reached" in (hook.problem or "")


def test_a_receiver_that_never_answers_delays_nothing(receiver: Receiver) -> None:
    receiver.hold.clear()
    hook = Webhook(receiver.url, timeout_seconds=600)
    for number in range(WAITING_MAX + 50):
        hook.send({"number": number})
    assert hook.dropped >= 49
    begun = time.monotonic()
    hook.close(wait_seconds=0.2)
    assert time.monotonic() - begun < 300  # and not the 600 s of the request
    assert hook.dropped > WAITING_MAX


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a/b", "example.com/x", "http://", "http://a b/", "http://[::1", "http://a:x/"]
)
def test_only_http_and_https(url: str) -> None:
    with pytest.raises(UsageError, match="--webhook"):
        webhook_url(url)


def test_urls_that_are_taken() -> None:
    assert webhook_url("https://alerts.example/x?y=1") == "https://alerts.example/x?y=1"

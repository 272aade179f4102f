"""Sends the rows of a watch to a URL, in a thread of its own: a receiver that is slow or gone delays nothing."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from rmqtool.errors import UsageError

WAITING_MAX: Final = 1000
"""Limit of rows that wait to be sent; further ones are dropped and counted."""
TIMEOUT_SECONDS: Final = 5.0
TRIES: Final = 4
PAUSE_SECONDS: Final = 1.0
"""Before the second try; doubled before each further one."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as a failure: the row goes to the configured address, or nowhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def webhook_url(text: str) -> str:
    """The URL that a person named.

    Raises:
        UsageError: it is none of http or https.
    """
    try:
        split = urlsplit(text)
        is_right = split.scheme.lower() in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        is_right = False
    if not is_right or any(character.isspace() or not character.isprintable() for character in text):
        raise UsageError(f"--webhook: {text!r} is not an http:// or https:// URL")
    return text


class Webhook:
    """Posts rows as JSON, one after the other.

    Attributes:
        sent, dropped: rows that were delivered, and those that were given up.
        problem: why the last try failed; None after one that did not.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS, pause_seconds: float = PAUSE_SECONDS
    ) -> None:
        self._url, self._timeout_seconds, self._pause_seconds = url, timeout_seconds, pause_seconds
        self._rows: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING_MAX)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
        self._ends = threading.Event()
        self._is_closed = False
        self.sent = self.dropped = 0
        self.problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def send(self, row: dict[str, Any]) -> None:
        """Have a row sent; returns at once."""
        try:
            self._rows.put_nowait(row)
        except queue.Full:
            self.dropped += 1

    def close(self, wait_seconds: float = 2 * TIMEOUT_SECONDS) -> None:
        """Wait for unsent rows, but not forever."""
        if self._is_closed:
            return
        self._is_closed = True
        deadline = time.monotonic() + wait_seconds
        while time.monotonic() < deadline:
            try:
                self._rows.put(None, timeout=0.1)
                break
            except queue.Full:
                continue
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._ends.set()
        if self._thread.is_alive():  # it may take its time with the row that it has
            self.dropped += 1 + max(0, self._rows.qsize() - 1)

    def _run(self) -> None:
        while (row := self._rows.get()) is not None and not self._ends.is_set():
            if self._post(row):
                self.sent += 1
            elif not self._ends.is_set():
                self.dropped += 1

    def _post(self, row: dict[str, Any]) -> bool:
        body = json.dumps(row).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "rmqtool"}
        for number in range(TRIES):
            if number and self._ends.wait(self._pause_seconds * 2 ** (number - 1)):
                return False
            request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 - checked
            try:
                with self._opener.open(request, timeout=self._timeout_seconds):
                    self.problem = None
                    return True
            except urllib.error.HTTPError as error:
                error.close()
                self.problem = f"the webhook answered {error.code}"
                if error.code < 500 and error.code not in (408, 429):
                    return False  # it will not be accepted the next time either
            except (OSError, HTTPException, ValueError) as error:
                self.problem = f"the webhook could not be reached: {getattr(error, 'reason', None) or error}"
        return False

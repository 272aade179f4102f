"""A blocking connection to a broker or a name server: one request, one answer, each within a time limit.

Broker: `NettyRemotingClient#invokeSync`. Requests that a server sends on its own are skipped.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from rmqtool.errors import ConnectionLostError, FrameError, UsageError
from rmqtool.remoting.frame import LENGTH_SIZE, Command, decode_frame, encode_frame, frame_length
from rmqtool.store.source import Closable

NAME_SERVER_PORT: Final = 9876
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 15.0
_READ_MAX: Final = 1 << 16
_NUMBERS: Final = 1 << 31
_ADDRESS: Final = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]\s/]+?))(?::(\d{1,5}))?")


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Host and port of `host:port`, `[ip6]:port`, or `ip6:port` as brokers write it in a route.

    Raises:
        UsageError: it is no address.
    """
    match = _ADDRESS.fullmatch(text.strip())
    port = default_port if match is None or match[3] is None else int(match[3])
    is_host = match is not None and (match[1] is not None or match[2].count(":") != 1)
    if match is None or not is_host or port is None or not 0 < port < 1 << 16:
        raise UsageError(f"{text!r} is not HOST:PORT")
    return match[1] or match[2], port


class Connection(Closable):
    """An open connection. After an error it is closed, and cannot be used again.

    Attributes:
        address: as it was given, for messages.
    """

    def __init__(
        self, address: str, *, default_port: int | None = None, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        """Connect.

        Args:
            answer_seconds: how long a request may take.

        Raises:
            ConnectionLostError: nobody accepts the connection within 5 s.
            UsageError: the address is none.
        """
        self.address, self._answer_seconds = address, answer_seconds
        self._number = 0
        self._received = bytearray()
        target = parse_address(address, default_port)
        try:
            self._socket = socket.create_connection(target, CONNECT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError) as error:  # a host name that is none fails in its encoding
            raise ConnectionLostError(f"{address}: cannot connect ({_reason(error)})", was_sent=False) from error

    def close(self) -> None:
        """Close it."""
        with suppress(OSError):
            self._socket.close()

    def call(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Command:
        """Send a request and wait for its answer, whatever its code is.

        Args:
            fields: values that are None are left out; booleans are written as Java writes them.

        Raises:
            FrameError: the request is too long; nothing was sent.
            ConnectionLostError: the connection breaks, nothing comes in time, or it is no answer.
        """
        self._number = (self._number + 1) % _NUMBERS
        given = {name: value for name, value in (fields or {}).items() if value is not None}
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
        request = encode_frame(Command(code, self._number, texts, body))
        deadline = time.monotonic() + self._answer_seconds
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(request)
            while True:
                answer = decode_frame(self._frame(deadline))
                if answer.is_response and answer.number == self._number:
                    return answer
        except (OSError, FrameError) as error:
            self.close()
            raise ConnectionLostError(f"{self.address}: no answer ({_reason(error)})", was_sent=True) from error
        except BaseException:
            self.close()  # the answer to this request must not be taken for that to another one
            raise

    def _frame(self, deadline: float) -> bytes:
        """Frame after its length; only bytes that have arrived take memory."""
        self._receive(LENGTH_SIZE, deadline)
        length = frame_length(bytes(self._received[:LENGTH_SIZE]))
        self._receive(LENGTH_SIZE + length, deadline)
        frame = bytes(self._received[LENGTH_SIZE : LENGTH_SIZE + length])
        del self._received[: LENGTH_SIZE + length]
        return frame

    def _receive(self, count: int, deadline: float) -> None:
        while len(self._received) < count:
            self._socket.settimeout(_left(deadline))
            part = self._socket.recv(_READ_MAX)
            if not part:
                raise ConnectionResetError("the other side closed the connection")
            self._received += part


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("it took too long")
    return left


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error)

"""A server on the loopback that speaks as much of the remoting protocol as a test says."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

Request = dict[str, Any]
Reply = Callable[[Request, bytes], bytes | None]
"""From the header and body of a request to the bytes that are sent back; None closes the connection."""


def frame(header: Request, body: bytes = b"") -> bytes:
    """A frame with a header as JSON, written out by hand."""
    text = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


def answer(request: Request, code: int = 0, body: bytes = b"", remark: str | None = None, **fields: object) -> bytes:
    """The frame of an answer."""
    texts = {name: str(value) for name, value in fields.items()}
    header = {"code": code, "language": "JAVA", "opaque": request["opaque"], "flag": 1, "extFields": texts}
    return frame(header | {"remark": remark, "serializeTypeCurrentRPC": "JSON", "version": 1}, body)


@contextmanager
def serving(reply: Reply, port: int = 0) -> Iterator[str]:
    """The address of a server; each connection is served in a thread of its own until the other side closes it."""
    listener = socket.create_server(("127.0.0.1", port))
    threads: list[threading.Thread] = []
    peers: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peers.append(peer)
                threads.append(threading.Thread(target=_serve, args=(peer, reply)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for peer in peers:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _serve(peer: socket.socket, reply: Reply) -> None:
    with peer, suppress(OSError):
        received = peer.makefile("rb")
        while prefix := received.read(8):
            length, header_length = struct.unpack(">ii", prefix)
            header = json.loads(received.read(header_length))
            response = reply(header, received.read(length - 4 - header_length))
            if response is None:
                return
            peer.sendall(response)

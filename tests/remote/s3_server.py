"""A real S3 server on the loopback (moto), and a proxy before it that can fail in the ways of a network."""

from __future__ import annotations

import http.client
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

BUCKET = "archive"
START_SECONDS = 30
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}


def require_server() -> None:
    """Skip where the server is not installed; in CI that is an error."""
    if importlib.util.find_spec("moto") is None:
        reason = "moto is not installed (pip install -e '.[dev]'), so no S3 server can be started"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


class Fault(Enum):
    """How a request fails."""

    DENIED = 403
    MISSING = 404
    BROKEN = 500
    CUT = "half of the answer, then the connection ends"
    SILENT = "no answer at all"


@dataclass
class Proxy:
    """Passes requests on to the server.

    Attributes:
        faults: how requests fail whose path and query hold a text.
        asked: method, path and range of each request.
    """

    server_port: int
    port: int = 0
    faults: dict[str, Fault] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str) -> str:
        """The URL of a place in the bucket, through this proxy."""
        return f"s3://{BUCKET}/{path}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    def reads(self) -> list[tuple[str, str]]:
        """Path and range of the requests for content."""
        return [(path, asked or "") for method, path, asked in self.asked if method == "GET" and "?" not in path]


@contextmanager
def s3_server() -> Iterator[int]:
    """Start the server; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            _wait_for(port, running)
            yield port
        finally:
            running.terminate()


@contextmanager
def proxy_to(server_port: int) -> Iterator[Proxy]:
    """A proxy before the server."""
    proxy = Proxy(server_port)

    class Handling(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _pass_on(self, proxy)

        def do_HEAD(self) -> None:
            _pass_on(self, proxy)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handling) as listening:
        listening.daemon_threads = True
        proxy.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.ended.set()
            listening.shutdown()
            thread.join()


def upload(port: int, path: Path, name: str) -> None:
    """Put a store into the bucket."""
    from pyarrow import fs

    server = fs.S3FileSystem(
        endpoint_override=f"127.0.0.1:{port}", scheme="http", region="us-east-1", access_key="key",
        secret_key="secret", allow_bucket_creation=True,  # noqa: S106 - as good as any other on the loopback
    )  # fmt: skip
    server.create_dir(BUCKET)
    for found in sorted(path.rglob("*")):
        if found.is_file():
            with server.open_output_stream(f"{BUCKET}/{name}/{found.relative_to(path)}") as stream:
                stream.write(found.read_bytes())


def _pass_on(client: BaseHTTPRequestHandler, proxy: Proxy) -> None:
    asked = client.headers.get("Range")
    proxy.asked.append((client.command, client.path, asked))
    fault = next((fault for text, fault in proxy.faults.items() if text in client.path), None)
    if fault is Fault.SILENT:
        proxy.ended.wait()
        client.close_connection = True
        return
    if fault is not None and fault is not Fault.CUT:
        content = f"<Error><Code>{fault.name}</Code><Message>{fault.name}</Message></Error>".encode()
        _answer(client, int(fault.value), {"Content-Type": "application/xml"}, content, len(content))
        return
    behind = http.client.HTTPConnection("127.0.0.1", proxy.server_port, timeout=START_SECONDS)
    try:
        behind.request(client.command, client.path, headers=dict(client.headers))
        answer = behind.getresponse()
        content = answer.read()
        length = int(answer.headers.get("Content-Length") or len(content))
        kept = content[: len(content) // 2] if fault is Fault.CUT and asked else content
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN}
        _answer(client, answer.status, headers, kept, length)
        client.close_connection = client.close_connection or kept is not content
    finally:
        behind.close()


_OWN = {"content-length", "transfer-encoding", "connection", "date", "server"}


def _answer(client: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes, length: int) -> None:
    client.send_response(status)
    for name, value in headers.items():
        client.send_header(name, value)
    client.send_header("Content-Length", str(length))
    client.end_headers()
    if client.command != "HEAD":
        client.wfile.write(content)


def _wait_for(port: int, running: subprocess.Popen[bytes]) -> None:
    for _ in range(START_SECONDS * 20):
        assert running.poll() is None, "the S3 server ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the S3 server did not listen within {START_SECONDS} s")

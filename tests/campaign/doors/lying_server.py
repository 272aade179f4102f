"""An S3 server on the loopback that lies: listings that change, cut answers, errors, redirects, no ranges.

A bucket's name is the seed of its lies, so that an input is repeated by its name alone.
"""

from __future__ import annotations

import random
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from typing import Any, Final
from xml.sax.saxutils import escape

STATUSES: Final = (500, 503, 403, 404, 400, 416, 301, 302, 307, 308, 200, 204, 429)
SIZES: Final = (
    "0",
    "-1",
    "1",
    "4096",
    "4097",
    str(1 << 31),
    str(1 << 62),
    str(1 << 63),
    "9" * 40,
    "",
    "x",
    "1e9",
    " 7",
)
KEYS: Final = ("../../x", "/etc/passwd", "a//b", "", ".", "commitlog/", "commitlog/" + "9" * 20,
               "commitlog/x/y/z",
               "consumequeue/\x7f/0/0", "config/topics.json/x", "commitlog", "\u202e", "a" * 1000)  # fmt: skip
REQUESTS_MAX: Final = 400
"""More than any command needs for a store of this size."""
_LIES: Final = (
    "status",
    "cut",
    "close",
    "whole",
    "shift",
    "short",
    "long",
    "size",
    "keys",
    "gone",
    "xml",
    "pages",
    "head",
)


class Bucket:
    """The lies of one bucket, and what it was asked."""

    def __init__(self, name: str, files: Mapping[str, bytes]) -> None:
        self.chosen = random.Random(name)
        self.files = files
        self.lies = self.chosen.sample(_LIES, self.chosen.choice((1, 1, 2, 3)))
        self.rate = self.chosen.choice((0.1, 0.5, 1.0))
        self.requests = 0
        self.lock = threading.Lock()

    def lie(self, *names: str) -> str:
        """One of these lies, or none."""
        known = [name for name in names if name in self.lies]
        return self.chosen.choice(known) if known and self.chosen.random() < self.rate else ""


@contextmanager
def lying_server(files: Mapping[str, bytes]) -> Iterator[int]:
    """Run it in a process of its own; its port."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(files, sender), daemon=True)
    process.start()
    try:
        yield receiver.recv()
    finally:
        process.kill()
        process.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that ends in the middle is none of ours."""


def _serve(files: Mapping[str, bytes], sender: Any) -> None:
    buckets: dict[str, Bucket] = {}

    class Handling(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            split = urllib.parse.urlsplit(self.path)
            name, _, key = urllib.parse.unquote(split.path).lstrip("/").partition("/")
            bucket = buckets.setdefault(name, Bucket(name, files))
            with bucket.lock, suppress(OSError, ValueError):
                bucket.requests += 1
                if bucket.requests > 5000:  # a client that asks for ever is ended by its bounds, not by us
                    self.close_connection = True
                    return
                query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
                _answer(self, bucket, key, query)

        do_HEAD = do_GET  # noqa: N815 - the name that the library calls

        def log_message(self, *_: Any) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handling) as server:
        sender.send(server.server_port)
        server.serve_forever()


def _answer(client: BaseHTTPRequestHandler, bucket: Bucket, key: str, query: dict[str, str]) -> None:
    if bucket.lie("close"):
        client.close_connection = True
        return
    if bucket.lie("status"):
        status = bucket.chosen.choice(STATUSES)
        place = bucket.chosen.choice((client.path, "http://127.0.0.1:1/", "file:///etc/passwd", "//", "/other/x"))
        content = (
            b"" if status == 204 else f"<Error><Code>Lie{status}</Code><Message>\x1b[31mx</Message></Error>".encode()
        )
        _send(client, status, content, {"Location": place})
        return
    if not key:
        _send(client, 200, _listing(bucket, query), {"Content-Type": "application/xml"}, bucket)
        return
    path = key.removeprefix("store/")
    content = bucket.files.get(path)
    if content is None or bucket.lie("gone"):
        _send(client, 404, b"<Error><Code>NoSuchKey</Code></Error>", {})
        return
    _content(client, bucket, content)


def _content(client: BaseHTTPRequestHandler, bucket: Bucket, content: bytes) -> None:
    asked = client.headers.get("Range", "")
    headers = {"ETag": '"e"', "Last-Modified": "Tue, 14 Nov 2023 22:13:20 GMT", "Accept-Ranges": "bytes"}
    if client.command == "HEAD" or not asked.startswith("bytes=") or bucket.lie("whole"):
        claimed = bucket.chosen.choice(SIZES) if bucket.lie("head") else None
        _send(client, 200, content, headers, bucket, claimed)
        return
    first, _, last = asked[6:].partition("-")
    begin, end = int(first or 0), min(len(content), int(last or len(content)) + 1)
    lie = bucket.lie("shift", "short", "long")
    part = content[begin:end]
    if lie == "shift":
        part = (content + content)[begin + 7 : end + 7]
    elif lie == "short":
        part = part[: len(part) // 2]
    elif lie == "long":
        part += bytes(bucket.chosen.choice((1, 5000, 3 << 20)))
    headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
    _send(client, 206, part, headers, bucket)


def _listing(bucket: Bucket, query: dict[str, str]) -> bytes:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    names = [f"store/{path}" for path in bucket.files]
    if bucket.lie("gone"):
        names = [name for name in names if bucket.chosen.random() < 0.7]
    keys: dict[str, str] = {}
    folders: set[str] = set()
    for name in names:
        if not name.startswith(prefix):
            continue
        inner, slash, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if slash:
            folders.add(prefix + inner + delimiter)
        else:
            keys[name] = str(len(bucket.files[name.removeprefix("store/")]))
    if bucket.lie("size"):
        for name in bucket.chosen.sample(sorted(keys), min(3, len(keys))):
            keys[name] = bucket.chosen.choice(SIZES)
    if bucket.lie("keys"):
        for _ in range(bucket.chosen.choice((1, 3, 2000))):
            keys[prefix + bucket.chosen.choice(KEYS) + str(bucket.chosen.randrange(2000))] = "5"
        keys[bucket.chosen.choice(KEYS)] = "5"
        folders.add(bucket.chosen.choice(KEYS))
    pages = ""
    if bucket.lie("pages") and bucket.requests < REQUESTS_MAX:
        token = bucket.chosen.choice(("same", str(bucket.requests), "", "x" * 10_000))
        pages = f"<NextContinuationToken>{token}</NextContinuationToken>"
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>b</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(keys)}</KeyCount><MaxKeys>1000</MaxKeys>"
        f"<IsTruncated>{'true' if pages else 'false'}</IsTruncated>{pages}"
        + "".join(
            f"<Contents><Key>{_xml(name)}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified><ETag>e</ETag>"
            f"<Size>{size}</Size></Contents>"
            for name, size in keys.items()
        )
        + "".join(f"<CommonPrefixes><Prefix>{_xml(name)}</Prefix></CommonPrefixes>" for name in sorted(folders))
        + "</ListBucketResult>"
    )
    raw = text.encode("utf-8", "replace")
    if bucket.lie("xml"):
        bomb = b'<!DOCTYPE l [<!ENTITY a "' + b"a" * 10_000 + b'"><!ENTITY b "' + b"&a;" * 10_000 + b'">]><l>&b;</l>'
        raw = bucket.chosen.choice(
            (b"", raw[: len(raw) // 2], b"<" * 100_000, b"<a>" * 50_000, b"{}", bomb, b"\xff" * 99)
        )
    return raw


def _xml(text: str) -> str:
    return escape("".join(character for character in text if character >= " "))


def _send(
    client: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str], bucket: Bucket | None = None,
    claimed: str | None = None,
) -> None:  # fmt: skip
    client.send_response(status)
    for name, value in headers.items():
        client.send_header(name, value)
    client.send_header("Content-Length", str(len(content)) if claimed is None else claimed)
    client.end_headers()
    is_cut = bucket is not None and bool(bucket.lie("cut"))
    if client.command != "HEAD":
        client.wfile.write(content[: len(content) // 2] if is_cut else content)
    client.close_connection = client.close_connection or is_cut or claimed is not None

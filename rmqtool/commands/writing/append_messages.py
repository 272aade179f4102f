"""The messages that `append` puts: made from options, or read line by line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqtool.commands.options.run import pairs
from rmqtool.engine.append.appender import clock_ms
from rmqtool.engine.append.message import DEFAULT_BORN_HOST, DEFAULT_STORE_HOST, Message, MessageBatch
from rmqtool.engine.append.message_lines import LINE_MAX, message_of_line
from rmqtool.errors import UnreadableError, UsageError
from rmqtool.formats import properties as names
from rmqtool.formats import system_flag
from rmqtool.formats.batch import BatchPart
from rmqtool.formats.message_id import host_bytes
from rmqtool.formats.properties import encode_properties
from rmqtool.store.source import reason

BODY_FILE_MAX: Final = 64 << 20
READ_AT_ONCE: Final = 1 << 20
_TRANSACTIONS: Final = {name: value for value, name in system_flag.TRANSACTION_NAMES.items()}


@dataclass(frozen=True, kw_only=True)
class MessageRequest:
    """Messages as the options describe them."""

    topic: str
    queue_id: int
    body: str | None
    body_file: Path | None
    tags: str | None
    keys: str | None
    properties: tuple[str, ...]
    delay_level: int | None
    transaction: str
    born_host: str | None
    store_host: str | None
    count: int
    is_batch: bool


def messages_wanted(request: MessageRequest) -> Iterator[Message | MessageBatch]:
    """The messages, each with its own unique key, or one batch; UsageError for options that do not fit or parse."""
    properties = dict(pairs(request.properties, "--property"))
    options = {names.TAGS: request.tags, names.KEYS: request.keys}
    properties.update({name: value for name, value in options.items() if value is not None})
    if request.delay_level is not None:
        properties[names.DELAY_LEVEL] = str(request.delay_level)
    shared = Message(
        topic=request.topic,
        body=_body(request),
        queue_id=request.queue_id,
        properties=properties,
        sys_flag=_TRANSACTIONS[request.transaction],
        born_timestamp_ms=clock_ms(),
        born_host=host_of(request.born_host, "--born-host", DEFAULT_BORN_HOST),
        store_host=host_of(request.store_host, "--store-host"),
    )
    if request.is_batch:
        text = encode_properties(shared.properties, trailing_separator=True)
        shared.properties = {}
        yield MessageBatch(shared=shared, parts=[BatchPart(0, shared.body, text)] * request.count)
        return
    for _ in range(request.count):
        yield shared


def messages_from(path: Path) -> Iterator[Message]:
    """The messages of a file of JSON lines; `-` is standard input.

    Raises:
        UnreadableError: it cannot be read.
        UsageError: a line is no message.
    """
    name = "standard input" if str(path) == "-" else str(path)
    number = 0
    with ExitStack() as stack:
        try:
            lines = sys.stdin.buffer if str(path) == "-" else stack.enter_context(path.open("rb", READ_AT_ONCE))
            while line := lines.readline(LINE_MAX + 1):
                number += 1
                if (message := message_of_line(line)) is not None:
                    yield message
        except UsageError as error:
            raise UsageError(f"{name}, line {number}: {error}") from error
        except OSError as error:
            raise UnreadableError(f"{name}: {reason(error)}") from error


def _body(request: MessageRequest) -> bytes:
    if request.body is not None and request.body_file is not None:
        raise UsageError("use either --body or --body-file")
    if request.body_file is None:
        return (request.body or "").encode("utf-8", "surrogateescape")
    try:
        with request.body_file.open("rb") as file:
            content = file.read(BODY_FILE_MAX + 1)
    except OSError as error:
        raise UnreadableError(f"{request.body_file}: {reason(error)}") from error
    if len(content) > BODY_FILE_MAX:
        raise UsageError(f"{request.body_file}: no broker takes a body of more than {BODY_FILE_MAX} bytes")
    return content


def host_of(text: str | None, option: str, default: bytes = DEFAULT_STORE_HOST) -> bytes:
    """The host field of an option's `ip:port`; UsageError where it is none."""
    if text is None:
        return default
    try:
        return host_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error

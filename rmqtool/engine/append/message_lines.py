"""Messages out of rows with the names of a `dump` row, so that a dump can be put again."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from rmqtool.engine.append.message import DEFAULT_BORN_HOST, DEFAULT_STORE_HOST, Message
from rmqtool.errors import UsageError
from rmqtool.formats.message_id import host_bytes
from rmqtool.formats.properties import KEYS, TAGS
from rmqtool.quantities import JAVA_INT_MAX, JAVA_LONG_MAX

LINE_MAX: Final = 128 << 20
_MESSAGES: Final = frozenset({"message", "stale"})
_NO_MESSAGES: Final = frozenset({"blank", "bad"})
"""Rows of a log's dump that are skipped."""
_TRANSACTIONS: Final = {"none": 0, "prepared": 4, "commit": 8, "rollback": 12}

Int = Annotated[int, msgspec.Meta(ge=-JAVA_INT_MAX - 1, le=JAVA_INT_MAX)]
Long = Annotated[int, msgspec.Meta(ge=-JAVA_LONG_MAX - 1, le=JAVA_LONG_MAX)]
Place = Annotated[int, msgspec.Meta(ge=0, le=JAVA_LONG_MAX)]


_NO_BODY: Final = msgspec.Raw(b"null")


class _Row(msgspec.Struct):
    """Fields of a row that are read; all but the topic are optional."""

    type: str = "message"
    topic: str | None = None
    body: msgspec.Raw = _NO_BODY
    """As JSON; another field defines its meaning."""
    body_encoding: str = "text"
    body_truncated: bool = False
    body_length: int = 0
    queue_id: Int = 0
    properties: dict[str, str] | None = None
    properties_raw: str | None = None
    tags: str | None = None
    keys: str | list[str] | None = None
    flag: Int = 0
    sys_flag: Int | None = None
    transaction: str = "none"
    born_timestamp_ms: Long = 0
    born_host: str | None = None
    store_timestamp_ms: Long | None = None
    store_host: str | None = None
    reconsume_times: Int = 0
    prepared_transaction_offset: Long = 0
    physical_offset: Place | None = None
    queue_offset: Place | None = None


_ROW: Final = msgspec.json.Decoder(_Row)


def message_of_line(line: bytes) -> Message | None:
    """The message of one line of JSON; None for a row that is not a message, and for an empty line.

    A row with `properties_raw` was dumped whole, and is stored as it is. One without may leave out everything but the
    topic; what a broker does with a message that is sent is then done with it.

    Raises:
        UsageError: it is no such row.
    """
    if len(line) > LINE_MAX:
        raise UsageError(f"longer than {LINE_MAX} bytes")
    try:
        row = _ROW.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if line.isspace():
            return None
        row = _odd_row(line, error)
    if row.type != "message" and row.type not in _MESSAGES:
        if row.type in _NO_MESSAGES:
            return None
        raise UsageError(f"a row of type {row.type!r} is not a message")
    if row.topic is None:
        raise UsageError("no topic")
    properties, text, dumped_at = row.properties or {}, row.properties_raw, None
    if text is None and row.tags and TAGS not in properties:
        properties[TAGS] = row.tags
    if text is None and row.keys and KEYS not in properties:
        properties[KEYS] = row.keys if isinstance(row.keys, str) else " ".join(row.keys)
    if text is not None and row.physical_offset is not None and row.queue_offset is not None:
        dumped_at = row.physical_offset, row.queue_offset
    body = _body(row)
    if row.sys_flag is None and row.transaction not in _TRANSACTIONS:
        raise UsageError(f"transaction is {row.transaction!r}, not one of {', '.join(_TRANSACTIONS)}")
    return Message(
        topic=row.topic,
        body=body,
        queue_id=row.queue_id,
        properties=properties,
        properties_text=text.encode("utf-8", "surrogateescape") if text is not None else None,
        flag=row.flag,
        sys_flag=row.sys_flag if row.sys_flag is not None else _TRANSACTIONS[row.transaction],
        born_timestamp_ms=row.born_timestamp_ms,
        born_host=_host("born_host", row.born_host) if row.born_host is not None else DEFAULT_BORN_HOST,
        store_timestamp_ms=row.store_timestamp_ms,
        store_host=_host("store_host", row.store_host) if row.store_host is not None else DEFAULT_STORE_HOST,
        reconsume_times=row.reconsume_times,
        prepared_transaction_offset=row.prepared_transaction_offset,
        dumped_at=dumped_at,
        is_final=text is not None,
    )


def _odd_row(line: bytes, error: Exception) -> _Row:
    """The row of a line that the library rejects."""
    try:
        if isinstance(error, msgspec.ValidationError):
            raise error
        # Bytes that are not UTF-8, or half a surrogate pair: Python's reader, though slower, takes both.
        row: Any = json.loads(line.decode("utf-8", "replace"))
        if isinstance(row, dict) and "body" in row:
            row["body"] = msgspec.Raw(json.dumps(row["body"]).encode("ascii"))
        return msgspec.convert(row, _Row)
    except msgspec.ValidationError as invalid:
        # The field's name first, which the library puts after the reason as a path.
        reason, _, path = str(invalid).partition(" - at ")
        reason = reason[:1].lower() + reason[1:]
        raise UsageError(f"{path.strip('`').removeprefix('$.')}: {reason}" if path else reason) from invalid
    except (ValueError, RecursionError) as invalid:
        raise UsageError(f"not JSON ({invalid})") from invalid


def _body(row: _Row) -> bytes:
    encoding = row.body_encoding
    if row.body == _NO_BODY:
        if row.body_length:
            raise UsageError("the body is not in the row (dump with --raw --body base64)")
        return b""
    if row.body_truncated:
        raise UsageError("the body was truncated by the dump (dump with a larger --body-limit)")
    if encoding not in _BODY_DECODERS:
        raise UsageError(f"bodies shown as {encoding!r} cannot be appended (dump with --body base64)")
    try:
        return _BODY_DECODERS[encoding](row.body)
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"the body is not {encoding}") from error


def _text(body: msgspec.Raw) -> str:
    text = json.loads(bytes(body).decode("utf-8", "replace"))
    if not isinstance(text, str):
        raise UsageError("the body is not text")
    return text


_BODY_DECODERS: Final[dict[str, Callable[[msgspec.Raw], bytes]]] = {
    "base64": msgspec.json.Decoder(bytes).decode,
    "hex": lambda body: bytes.fromhex(_text(body)),
    "text": lambda body: _text(body).encode("utf-8", "surrogatepass"),
}


@lru_cache(maxsize=1024)
def _host(name: str, text: str) -> bytes:
    try:
        return host_bytes(text)
    except ValueError as error:
        raise UsageError(f"{name} is {text!r}, which is not ip:port") from error

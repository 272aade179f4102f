"""Messages out of rows with the names of a `dump` row, so that a dump can be put again."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from rmqtool.engine.message import DEFAULT_BORN_HOST, DEFAULT_STORE_HOST, Message
from rmqtool.errors import UsageError
from rmqtool.formats.message_id import host_bytes

NOT_MESSAGES: Final = frozenset({"blank", "bad"})
_INT: Final = (-(1 << 31), (1 << 31) - 1)
_LONG: Final = (-(1 << 63), (1 << 63) - 1)
_TRANSACTIONS: Final = {"none": 0, "prepared": 4, "commit": 8, "rollback": 12}


def message_of_line(line: str, where: str) -> Message | None:
    """The message of one line of JSON; None for a row that is no message.

    Raises:
        UsageError: it is no such row; the text begins with `where`.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise UsageError(f"{where}: not a JSON object")
    try:
        return message_of_row(row)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def message_of_row(row: Mapping[str, Any]) -> Message | None:
    """The message of a row; None for one that is no message.

    A row with `properties_raw` was dumped whole, and is stored as it is. One without may leave out everything but the
    topic; what a broker does with a message that is sent is then done with it.

    Raises:
        UsageError: a field is missing or of a wrong kind.
    """
    if row.get("type") in NOT_MESSAGES:
        return None
    topic = row.get("topic")
    if not isinstance(topic, str):
        raise UsageError("no topic")
    raw = row.get("properties_raw")
    if raw is not None and not isinstance(raw, str):
        raise UsageError("properties_raw is not a text")
    return Message(
        topic=topic,
        body=_body(row),
        queue_id=_integer(row, "queue_id", *_INT),
        properties=_properties(row),
        properties_text=raw.encode("utf-8", "surrogateescape") if raw is not None else None,
        flag=_integer(row, "flag", *_INT),
        sys_flag=_sys_flag(row),
        born_timestamp_ms=_integer(row, "born_timestamp_ms", *_LONG),
        born_host=_host(row, "born_host", DEFAULT_BORN_HOST),
        store_timestamp_ms=_integer(row, "store_timestamp_ms", *_LONG) if "store_timestamp_ms" in row else None,
        store_host=_host(row, "store_host", DEFAULT_STORE_HOST),
        reconsume_times=_integer(row, "reconsume_times", *_INT),
        prepared_transaction_offset=_integer(row, "prepared_transaction_offset", *_LONG),
        dumped_at=_dumped_at(row) if raw is not None else None,
        is_final=raw is not None,
    )


def _body(row: Mapping[str, Any]) -> bytes:
    body = row.get("body")
    if body is None:
        if row.get("body_length"):
            raise UsageError("the body is not in the row (dump with --raw --body base64)")
        return b""
    if row.get("body_truncated"):
        raise UsageError("the body was cut when it was dumped (dump with a larger --body-limit)")
    if not isinstance(body, str):
        raise UsageError("the body is not a text")
    encoding = row.get("body_encoding", "text")
    try:
        if encoding == "base64":
            return base64.b64decode(body, validate=True)
        if encoding == "hex":
            return bytes.fromhex(body)
    except (ValueError, binascii.Error) as error:
        raise UsageError(f"the body is not {encoding}") from error
    if encoding != "text":
        raise UsageError(f"bodies shown as {encoding!r} cannot be put again (dump with --body base64)")
    return body.encode("utf-8", "surrogatepass")


def _properties(row: Mapping[str, Any]) -> dict[str, str]:
    found = row.get("properties") or {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UsageError("properties are not names with texts")
    return dict(found)


def _dumped_at(row: Mapping[str, Any]) -> tuple[int, int] | None:
    if "physical_offset" not in row or "queue_offset" not in row:
        return None
    return _integer(row, "physical_offset", 0, _LONG[1]), _integer(row, "queue_offset", 0, _LONG[1])


def _sys_flag(row: Mapping[str, Any]) -> int:
    if "sys_flag" in row:
        return _integer(row, "sys_flag", *_INT)
    transaction = row.get("transaction", "none")
    if transaction not in _TRANSACTIONS:
        raise UsageError(f"transaction is {transaction!r}, not one of {', '.join(_TRANSACTIONS)}")
    return _TRANSACTIONS[transaction]


def _integer(row: Mapping[str, Any], name: str, least: int, most: int) -> int:
    value = row.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{name} is {value!r}, which is no number from {least} to {most}")
    return value


def _host(row: Mapping[str, Any], name: str, default: bytes) -> bytes:
    value = row.get(name)
    if value is None:
        return default
    try:
        return host_bytes(value)
    except (ValueError, AttributeError, TypeError) as error:
        raise UsageError(f"{name} is {value!r}, which is no ip:port") from error

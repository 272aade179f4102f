"""The rows that commands give out, with the names, types and order that scripts rely on; messages are made here only.

A row is a dictionary of what JSON can say. The contract is docs/schema/dump.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.report.bodies import BodyChoice, StoredBody, body_fields

DumpRow = dict[str, Any]

MESSAGE_FIELDS: Final = (
    "type",
    "physical_offset",
    "size",
    "magic",
    "body_crc",
    "body_crc_ok",
    "queue_id",
    "flag",
    "queue_offset",
    "sys_flag",
    "transaction",
    "compression",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_length",
    "topic",
    "properties",
    "tags",
    "keys",
    "unique_key",
    "message_id",
    "finding",
)
"""Fields of a message row, in order."""
BODY_FIELDS: Final = ("body", "body_encoding", "body_truncated", "body_error")
"""Fields of a message row where bodies are asked for."""


class DecodedRecord(StoredBody, Protocol):
    """What a row needs of a decoded record (`engine.reading.record.Record` has it)."""

    @property
    def size(self) -> int: ...
    @property
    def magic(self) -> str: ...
    @property
    def body_crc(self) -> int: ...
    @property
    def body_crc_ok(self) -> bool: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def transaction(self) -> str: ...
    @property
    def born_timestamp_ms(self) -> int: ...
    @property
    def born_host(self) -> str: ...
    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def store_host(self) -> str: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def properties(self) -> Mapping[str, str]: ...
    @property
    def properties_raw(self) -> bytes: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def unique_key(self) -> str | None: ...
    @property
    def message_id(self) -> str: ...


def message_row(
    record: DecodedRecord,
    body: BodyChoice | None = None,
    *,
    row_type: str = "message",
    finding: str | None = None,
    physical_offset: int | None = None,
    body_crc_ok: bool | None = None,
) -> DumpRow:
    """The row of one message.

    Args:
        row_type: "message", or "stale" for a record behind the log's end.
        finding: id of what is wrong with it.
        physical_offset: where it lies, if that is not what it says of itself.
        body_crc_ok: known already; else the body is read for it.

    Raises:
        UnreadableError: the disk does not give the body that is to be checked.
    """
    choice = body or BodyChoice()
    row: DumpRow = {
        "type": row_type,
        "physical_offset": record.physical_offset if physical_offset is None else physical_offset,
        "size": record.size,
        "magic": record.magic,
        "body_crc": record.body_crc,
        "body_crc_ok": record.body_crc_ok if body_crc_ok is None else body_crc_ok,
        "queue_id": record.queue_id,
        "flag": record.flag,
        "queue_offset": record.queue_offset,
        "sys_flag": record.sys_flag,
        "transaction": record.transaction,
        "compression": record.compression,
        "born_timestamp_ms": record.born_timestamp_ms,
        "born_host": record.born_host,
        "store_timestamp_ms": record.store_timestamp_ms,
        "store_host": record.store_host,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_length": record.body_length,
        "topic": record.topic,
        "properties": dict(record.properties),
        "tags": record.tags,
        "keys": list(record.keys),
        "unique_key": record.unique_key,
        "message_id": record.message_id,
        "finding": finding,
    }
    row |= body_fields(record, choice)
    if choice.raw:
        row["properties_raw"] = decode_java_utf8(record.properties_raw)
    return row


def blank_row(physical_offset: int, size: int) -> DumpRow:
    """The row of a blank that ends a file."""
    return {"type": "blank", "physical_offset": physical_offset, "size": size, "finding": None}


def bad_row(physical_offset: int, size: int, finding: str) -> DumpRow:
    """The row of a range of the log that is no record."""
    return {"type": "bad", "physical_offset": physical_offset, "size": size, "finding": finding}

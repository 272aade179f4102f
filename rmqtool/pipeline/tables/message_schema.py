"""The columns of the table `messages`: their types, and which profile has them.

Names and meanings are those of a `dump` row; in front stand the columns that say where a row comes from. `store_time`
and `born_time` are the milliseconds beside them as times.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from rmqtool.errors import UsageError
from rmqtool.pipeline.tables.texts import LIST_TYPE, MAP_TYPE
from rmqtool.pipeline.tables.times import TIME_TYPE
from rmqtool.report.names import unknown_name

HEADERS: Final = (
    pa.field("store", pa.string(), nullable=False),
    pa.field("file", pa.string(), nullable=False),
    pa.field("file_position", pa.int64()),
    pa.field("verdict", pa.string(), nullable=False),
    pa.field("type", pa.string(), nullable=False),
    pa.field("topic", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("queue_offset", pa.int64()),
    pa.field("physical_offset", pa.int64(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("store_timestamp_ms", pa.int64()),
    pa.field("store_time", TIME_TYPE),
    pa.field("magic", pa.string()),
    pa.field("body_crc", pa.int32()),
    pa.field("body_crc_ok", pa.bool_()),
    pa.field("flag", pa.int32()),
    pa.field("sys_flag", pa.int32()),
    pa.field("transaction", pa.string()),
    pa.field("compression", pa.string()),
    pa.field("born_timestamp_ms", pa.int64()),
    pa.field("born_time", TIME_TYPE),
    pa.field("born_host", pa.string()),
    pa.field("store_host", pa.string()),
    pa.field("reconsume_times", pa.int32()),
    pa.field("prepared_transaction_offset", pa.int64()),
    pa.field("body_length", pa.int32()),
    pa.field("message_id", pa.string()),
    pa.field("finding", pa.string()),
)
"""What the fixed fields of a record say."""
PROPERTIES: Final = (
    pa.field("tags", pa.string()),
    pa.field("keys", LIST_TYPE),
    pa.field("unique_key", pa.string()),
    pa.field("properties", MAP_TYPE),
)
FULL: Final = (
    pa.field("properties_raw", pa.binary()),
    pa.field("body", pa.binary()),
)
"""The stored bytes: a compressed body stays compressed."""
BY_NAME: Final = (pa.field("body_decoded", pa.binary()),)
"""Columns that no profile has, because they cost more than all others: they are read only if they are named."""
PROFILES: Final = {
    "headers": HEADERS,
    "properties": HEADERS + PROPERTIES,
    "full": HEADERS + PROPERTIES + FULL,
}


def message_schema(profile: str, columns: tuple[str, ...] = ()) -> pa.Schema:
    """The schema of a profile, or of chosen columns of all of them.

    Raises:
        UsageError: there is no such profile or column.
    """
    if profile not in PROFILES:
        raise UsageError(f"profile {profile!r}: there are {', '.join(PROFILES)}")
    return chosen(pa.schema(PROFILES["full"] + BY_NAME if columns else PROFILES[profile]), columns)


def chosen(schema: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    """The named columns of a schema, in the order of the names; all where none is named.

    Raises:
        UsageError: one of them is none.
    """
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise UsageError(unknown_name("column", unknown[0], schema.names))
    return pa.schema([schema.field(name) for name in columns]) if columns else schema

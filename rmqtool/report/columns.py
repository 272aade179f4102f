"""Columns of the table for each kind of row, their widths, and those that a narrow terminal omits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rmqtool.report.fields import BODY_ROW, MESSAGE_ROW, PROPERTY_BLOCK, Type
from rmqtool.report.rows import DumpRow
from rmqtool.report.text import cropped, escaped, padded
from rmqtool.times import time_text, time_width

_DESCRIBED: Final = {field.name: field for field in (*MESSAGE_ROW, *BODY_ROW, PROPERTY_BLOCK)}
_TEXTS: Final = frozenset({Type.TEXT, Type.TEXTS, Type.MAP, Type.BYTES})
_OTHER_WIDTHS: Final = {"tags_code": 20, "file": 20}
"""As `RowField.width`, of fields that messages do not have."""


@dataclass(frozen=True)
class Column:
    """A column of a table, headed by its field. Where a terminal is narrow, the highest rank is left out first, 0
    never; text is cropped to its width, numbers never. A time, of width 0, has `time_width`. What is left goes to those
    that stretch.
    """

    field: str
    width: int = 0
    right: bool = False
    rank: int = 0
    stretches: bool = False


def line_of(row: DumpRow, columns: Sequence[Column], gap: int, *, crops: bool = True) -> str:
    """The line of a row: its columns side by side; text is cropped where a terminal is narrow, a number never is."""
    cells = []
    for column in columns:
        name, width = column.field, column.width
        is_stale = name == "topic" and row["type"] == "stale"
        text = f"stale: {escaped(row['topic'])}" if is_stale else cell_text(name, row.get(name))
        text = cropped(text, width) if crops and not column.right else text
        cells.append(padded(text, width, right=column.right))
    return (" " * gap).join(cells).rstrip()


def cell_text(field: str, value: Any) -> str:
    """A field's value for people: times as ISO 8601, lists and objects as JSON, everything escaped."""
    if value is None or (field == "transaction" and value == "none"):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return time_text(value) if field.endswith("_timestamp_ms") else str(value)
    if field == "keys":
        value = " ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else escaped(text)


MESSAGE_COLUMNS: Final = (
    Column("physical_offset", 15, right=True),
    Column("size", 7, right=True, rank=2),
    Column("topic", 12, stretches=True),
    Column("queue_id", 8, right=True),
    Column("queue_offset", 12, right=True),
    Column("store_timestamp_ms", rank=1),
    Column("tags", 10, rank=3, stretches=True),
    Column("keys", 16, rank=4, stretches=True),
    Column("transaction", 11, rank=5),
    Column("compression", 11, rank=6),
    Column("unique_key", 32, rank=7),
    Column("born_host", 21, rank=8),
    Column("message_id", 32, rank=9),
    Column("store", 20, rank=10, stretches=True),
    Column("file", 20, rank=11, stretches=True),
)
CONFIG_COLUMNS: Final = (
    Column("table", 22, rank=3),
    Column("topic", 12, stretches=True),
    Column("group", 12, stretches=True),
    Column("delay_level", 11, right=True, rank=1),
    Column("queue_id", 8, right=True),
    Column("queue_offset", 12, right=True),
    Column("settings", 20, stretches=True, rank=2),
    Column("file", 24, rank=4, stretches=True),
)
TABLES: Final = {
    "pending": (
        Column("due_timestamp_ms"),
        Column("topic", 12, stretches=True),
        Column("queue_id", 8, right=True),
        Column("waits_in", 8),
        Column("delay_level", 11, right=True, rank=3),
        Column("physical_offset", 15, right=True, rank=2),
        Column("unique_key", 32, rank=3),
        Column("deletes", 7, rank=4),
        Column("rolls", 5, rank=4),
    ),
    "transaction": (
        Column("state", 9),
        Column("topic", 12, stretches=True),
        Column("half_queue_offset", 17, right=True),
        Column("check_count", 11, right=True),
        Column("store_timestamp_ms", rank=1),
        Column("producer_group", 14, rank=2, stretches=True),
        Column("unique_key", 32, rank=3),
        Column("physical_offset", 15, right=True, rank=4),
    ),
    "pop": (
        Column("state", 12),
        Column("topic", 12, stretches=True),
        Column("queue_id", 8, right=True, rank=1),
        Column("queue_offset", 12, right=True, rank=1),
        Column("revive_timestamp_ms"),
        Column("consumer_group", 14, rank=2, stretches=True),
        Column("consumer_offset", 15, right=True, rank=4),
        Column("unique_key", 32, rank=3),
        Column("physical_offset", 15, right=True, rank=5),
    ),
    **dict.fromkeys(
        ("config-topic", "config-group", "config-offset", "config-level", "config-ordered"), CONFIG_COLUMNS
    ),
    "timer-slot": (
        Column("number", 7, right=True, rank=1),
        Column("due_tick", 13, right=True),
        Column("first_position", 14, right=True),
        Column("last_position", 14, right=True),
        Column("message_count", 13, right=True),
    ),
    "timer-unit": (
        Column("position", 12, right=True),
        Column("due_timestamp_ms"),
        Column("physical_offset", 15, right=True),
        Column("record_size", 11, right=True, rank=2),
        Column("previous_position", 17, right=True, rank=1),
        Column("rolls", 5, rank=3),
        Column("deletes", 7, rank=3),
    ),
    "message": MESSAGE_COLUMNS,
    "stale": MESSAGE_COLUMNS,
    "unit": (
        Column("topic", 9, stretches=True),
        Column("queue_id", 8, right=True),
        Column("queue_offset", 12, right=True),
        Column("physical_offset", 15, right=True),
        Column("record_size", 11, right=True),
        Column("tags_code", 20, right=True, rank=1),
        Column("filler", 6, rank=2),
        Column("extension_position", 18, right=True, rank=3),
        Column("store_timestamp_ms", rank=1),
        Column("file", 20, rank=4, stretches=True),
    ),
    "queue-end": (
        Column("topic", 9, stretches=True),
        Column("queue_id", 8, right=True),
        Column("end", 3),
        Column("queue_offset", 12, right=True),
        Column("physical_offset", 15, right=True),
        Column("file", 20, rank=1, stretches=True),
    ),
    "extension-unit": (
        Column("topic", 12, stretches=True),
        Column("queue_id", 8, right=True),
        Column("stream_position", 15, right=True),
        Column("size", 5, right=True),
        Column("tags_code", 13, right=True),
        Column("store_timestamp_ms", rank=1),
        Column("filter_bitmap", 16, rank=2, stretches=True),
    ),
    "batch-unit": (
        Column("topic", 12, stretches=True),
        Column("queue_id", 8, right=True),
        Column("base_queue_offset", 17, right=True),
        Column("batch_size", 10, right=True),
        Column("physical_offset", 15, right=True, rank=1),
        Column("record_size", 11, right=True, rank=2),
        Column("store_timestamp_ms", rank=3),
        Column("tags_code", 12, right=True, rank=4),
    ),
    "slot": (Column("slot", 10, right=True), Column("newest_entry", 12, right=True)),
    "put": (
        Column("status", 16),
        Column("physical_offset", 15, right=True),
        Column("queue_offset", 12, right=True),
        Column("size", 7, right=True, rank=2),
        Column("message_id", 32, rank=1),
        Column("reason", 12, rank=3, stretches=True),
    ),
    "entry": (
        Column("number", 8, right=True),
        Column("slot", 7, right=True),
        Column("key_hash", 11, right=True),
        Column("physical_offset", 15, right=True),
        Column("time_delta_seconds", 18, right=True, rank=1),
        Column("previous_entry", 14, right=True),
    ),
    "figures": (
        Column("topic", 12, stretches=True),
        Column("queue_id", 8, right=True),
        Column("tags", 12, stretches=True),
        Column("hour_timestamp_ms"),
        Column("producer", 15),
        Column("size_least", 10, right=True),
        Column("messages", 10, right=True),
        Column("bytes", 14, right=True),
        Column("body_bytes", 14, right=True, rank=4),
        Column("first_store_timestamp_ms", rank=2),
        Column("last_store_timestamp_ms", rank=3),
        Column("min_queue_offset", 16, right=True, rank=1),
        Column("max_queue_offset", 16, right=True, rank=1),
    ),
    "store": (
        Column("verdict", 17),
        Column("errors", 7, right=True),
        Column("warnings", 8, right=True),
        Column("notes", 5, right=True, rank=2),
        Column("records", 12, right=True, rank=1),
        Column("exit_code", 9, right=True, rank=1),
        Column("store", 24, stretches=True),
    ),
}
"""Columns by a row's type; others are shown field under field, a bad range or blank as a line."""


def chosen_columns(fields: Sequence[str]) -> tuple[Column, ...]:
    """Columns for fields that a person asked for."""
    columns = []
    for name in fields:
        described = _DESCRIBED.get(name)
        width = described.width if described is not None else _OTHER_WIDTHS.get(name)
        is_text = name in ("file", "filter_bitmap") or (described is not None and described.type in _TEXTS)
        if name.endswith("_timestamp_ms"):
            columns.append(Column(name))
        elif is_text:
            columns.append(Column(name, width or 12, stretches=width is None))
        else:
            columns.append(Column(name, width or 10, right=True))
    return tuple(columns)


def fitted(columns: Sequence[Column], width: int | None, gap: int) -> tuple[Column, ...]:
    """The columns that find room in a terminal, if there is one, with what is left given to those that stretch."""
    # With room for its heading, and for a time of the run's zone.
    columns = [replace(column, width=max(column.width or time_width(), len(column.field))) for column in columns]
    if width is None:
        return tuple(columns)

    def spare_width() -> int:
        return width - sum(column.width for column in columns) - gap * (len(columns) - 1)

    while spare_width() < 0 and (highest := max(column.rank for column in columns)) > 0:
        columns = [column for column in columns if column.rank != highest]
    stretching = [column for column in columns if column.stretches]
    spare = max(0, spare_width())
    shares = {column: spare // len(stretching) for column in stretching}
    for column in stretching[: spare % len(stretching) if stretching else 0]:
        shares[column] += 1
    return tuple(replace(column, width=column.width + shares.get(column, 0)) for column in columns)

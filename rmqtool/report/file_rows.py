"""Fields of the rows of everything that is no message: units of the queues, index, checkpoint, abort, configuration."""

from __future__ import annotations

from typing import Final

from rmqtool.formats import dledger, timer
from rmqtool.formats.checkpoint import CHECKPOINT
from rmqtool.formats.consumequeue import (
    BATCH_UNIT,
    EXTENSION_UNIT,
    FILLER_UNIT,
    UNIT,
    extension_position,
    is_extension_address,
)
from rmqtool.formats.index import ENTRY, HEADER
from rmqtool.formats.layout import Format
from rmqtool.report.rows import DumpRow

_PLACE: Final = ("type", "topic", "queue_id")


def _names(declared: Format) -> tuple[str, ...]:
    return tuple(field.name for field in declared.fields)


_BAD: Final = ("file", "file_position", "size", "finding")
"""Fields of a bad range outside the log."""
FIELDS: Final = {
    "consumequeue": (
        *(*_PLACE, "queue_offset", *_names(UNIT), "filler", "extension_position", *_BAD),
        *("store_timestamp_ms", "end", "message"),
    ),
    "consumequeue_ext": (*_PLACE, "stream_position", *_names(EXTENSION_UNIT), "file", "file_position", "finding"),
    "batchconsumequeue": (*_PLACE, *_names(BATCH_UNIT), *_BAD),
    "index": (
        *("type", "file", *_names(HEADER), "slot_count", "number", "slot", "newest_entry"),
        *_names(ENTRY),
        *("file_position", "size", "finding"),
    ),
    "checkpoint": ("type", "file", "file_size", *_names(CHECKPOINT), "finding"),
    "abort": ("type", "file", "process_id"),
    "config": ("type", "file", "content"),
    "pending": (
        *("type", "waits_in", "due_timestamp_ms", "topic", "queue_id", "unique_key", "delay_level", "rolls", "deletes"),
        *("physical_offset", "size", "store_timestamp_ms"),
    ),
    "transactions": (
        *("type", "state", "topic", "queue_id", "unique_key", "producer_group", "check_count", "half_queue_offset"),
        *("operation_queue_offset", "born_timestamp_ms", "physical_offset", "size", "store_timestamp_ms"),
    ),
    "pop": (
        *("type", "state", "topic", "queue_id", "queue_offset", "unique_key", "consumer_group", "consumer_offset"),
        *("pop_timestamp_ms", "revive_timestamp_ms", "revive_queue_id", "revive_queue_offset", "physical_offset"),
        "check_point_physical_offset",
    ),
    "dledger": (
        *("type", "file", *_names(dledger.ENTRY), "topic", "queue_id", "queue_offset", "physical_offset"),
        *("store_timestamp_ms", "unique_key", "body_crc_ok", "file_position", "finding"),
    ),
    "tiered": (
        *("type", "file", "file_position", "size", "topic", "queue_id", "queue_offset", "physical_offset"),
        *("store_timestamp_ms", "record_size", "tags_code", "finding"),
    ),
    "timerwheel": ("type", "file", "number", *_names(timer.SLOT), "file_position", "size", "finding"),
    "timerlog": (
        *("type", "file", "position", "due_timestamp_ms", "rolls", "deletes"),
        *_names(timer.UNIT),
        *("file_position", "finding"),
    ),
    "rocksdbstore": (
        *("type", "file", "topic", "kind", "key", "unique_key", "transaction_id", "hour_ms", "due_timestamp_ms"),
        *("physical_offset", "record_size", "store_timestamp_ms", "check_count", "table", "name", "value"),
        *("file_position", "size", "finding"),
    ),
    "timercheck": ("type", "file", "file_size", *_names(timer.CHECK), "finding"),
}
"""Fields of the rows of a kind of files."""


def unit_row(topic: str | None, queue_id: int | None, queue_offset: int, values: tuple[int, int, int]) -> DumpRow:
    """A consume queue unit; `values` in the order of the declared fields."""
    physical_offset, record_size, tags_code = values
    return {
        "type": "unit",
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "physical_offset": physical_offset,
        "record_size": record_size,
        "tags_code": tags_code,
        "filler": values == FILLER_UNIT,
        "extension_position": extension_position(tags_code) if is_extension_address(tags_code) else None,
    }


def bad_file_row(
    file: str, file_position: int, size: int, finding: str, topic: str | None = None, queue_id: int | None = None
) -> DumpRow:
    """A range of a file other than the log that is none of its units."""
    row: DumpRow = {"type": "bad", "file": file, "file_position": file_position, "size": size, "finding": finding}
    return row if topic is None else row | {"topic": topic, "queue_id": queue_id}

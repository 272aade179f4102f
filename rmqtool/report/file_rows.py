"""Rows of everything that is no message: units of the three queue kinds, index, checkpoint, abort, configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
from rmqtool.formats.rocksdb.store import IndexRow, Mark, Row, TimerRow, TransactionRow
from rmqtool.report.rows import DumpRow

_SIDE_TYPES: Final = {
    IndexRow: "index-row",
    TimerRow: "timer-row",
    TransactionRow: "transaction-row",
    Mark: "mark",
}
_PLACE: Final = ("type", "topic", "queue_id")


def _names(declared: Format) -> tuple[str, ...]:
    return tuple(field.name for field in declared.fields)


_BAD: Final = ("file", "file_position", "size", "finding")
"""What a bad range says of itself outside of the log."""
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


def database_unit_row(directory: str, topic: str, queue_id: int, values: tuple[int, int, int, int, int]) -> DumpRow:
    """A consume queue unit in RocksDB; `values` are its queue offset and the declared fields."""
    queue_offset, physical_offset, record_size, tags_code, store_timestamp_ms = values
    row = unit_row(topic, queue_id, queue_offset, (physical_offset, record_size, tags_code))
    own = {"extension_position": None, "store_timestamp_ms": store_timestamp_ms, "file": directory}
    return row | own  # extensions are of queues in files only


def queue_end_row(
    directory: str, topic: str, queue_id: int, end: str, queue_offset: int, physical_offset: int
) -> DumpRow:
    """A key of the offset family in RocksDB: a queue's first unit (`min`) or last one (`max`)."""
    return {
        "type": "queue-end",
        "topic": topic,
        "queue_id": queue_id,
        "end": end,
        "queue_offset": queue_offset,
        "physical_offset": physical_offset,
        "file": directory,
    }


def dispatched_row(directory: str, physical_offset: int) -> DumpRow:
    """The end of the dispatched log that a database stores: the key CHECKPOINT_TOPIC."""
    return {"type": "queue-checkpoint", "physical_offset": physical_offset, "file": directory}


def odd_row(directory: str, message: str) -> DumpRow:
    """Rows of a database that mean nothing to a broker."""
    return {"type": "odd-row", "file": directory, "message": message, "finding": "rocksdb.odd-row"}


def extension_row(topic: str | None, queue_id: int | None, stream_position: int, unit: Mapping[str, Any]) -> DumpRow:
    """An extension unit, as its declaration parsed it; the bitmap is hex."""
    row: DumpRow = {"type": "extension-unit", "topic": topic, "queue_id": queue_id, "stream_position": stream_position}
    row |= {name: unit[name] for name in _names(EXTENSION_UNIT)}
    row["filter_bitmap"] = bytes(unit["filter_bitmap"]).hex()
    return row


def batch_row(topic: str | None, queue_id: int | None, values: tuple[int, ...]) -> DumpRow:
    """A batch consume queue unit; `values` in the order of the declared fields."""
    return {
        "type": "batch-unit",
        "topic": topic,
        "queue_id": queue_id,
        **dict(zip(_names(BATCH_UNIT), values, strict=True)),
    }


def header_row(file: str, header: Mapping[str, Any], slot_count: int | None) -> DumpRow:
    """An index file's header; `slot_count` is inferred, None where nothing tells."""
    return {"type": "header", "file": file, **{name: header[name] for name in _names(HEADER)}, "slot_count": slot_count}


def slot_row(slot: int, newest_entry: int) -> DumpRow:
    """A hash slot in use."""
    return {"type": "slot", "slot": slot, "newest_entry": newest_entry}


def entry_row(number: int, slot_count: int, values: tuple[int, int, int, int]) -> DumpRow:
    """An index entry; `values` in the order of the declared fields."""
    key_hash, physical_offset, time_delta_seconds, previous_entry = values
    return {
        "type": "entry",
        "number": number,
        "slot": key_hash % slot_count,
        "key_hash": key_hash,
        "physical_offset": physical_offset,
        "time_delta_seconds": time_delta_seconds,
        "previous_entry": previous_entry,
    }


def checkpoint_row(file: str, file_size: int, fields: Mapping[str, int], finding: str | None) -> DumpRow:
    """The checkpoint's six fields."""
    return {"type": "checkpoint", "file": file, "file_size": file_size, **fields, "finding": finding}


def timer_check_row(file: str, file_size: int, fields: Mapping[str, int], finding: str | None) -> DumpRow:
    """The timer's checkpoint."""
    return {"type": "timercheck", "file": file, "file_size": file_size, **fields, "finding": finding}


def timer_slot_row(file: str, slot: Mapping[str, int]) -> DumpRow:
    """A slot of the timer wheel; its number and its declared fields."""
    return {"type": "timer-slot", "file": file, **slot}


def timer_unit_row(file: str, unit: Mapping[str, int], due_timestamp_ms: int, *, rolls: bool, deletes: bool) -> DumpRow:
    """A unit of the timer log: its position in the log and its declared fields."""
    times = {"due_timestamp_ms": due_timestamp_ms, "rolls": rolls, "deletes": deletes}
    return {"type": "timer-unit", "file": file, **times, **unit}


def timer_blank_row(file: str, position: int, size: int) -> DumpRow:
    """The blank that ends a file of the timer log."""
    return {"type": "timer-blank", "file": file, "position": position, "size": size}


def abort_row(file: str, process_id: int | None) -> DumpRow:
    """The abort file; brokers up to 4.9 leave it empty."""
    return {"type": "abort", "file": file, "process_id": process_id}


def config_row(file: str, content: Any) -> DumpRow:
    """A configuration file with its JSON."""
    return {"type": "config", "file": file, "content": content}


def side_row(directory: str, table: str, row: Row) -> DumpRow:
    """A row of `rocksdbstore/`; texts as far as they are UTF-8."""
    values = row._asdict()
    values.pop("text", None)
    texts = {name: value.decode("utf-8", "replace") for name, value in values.items() if isinstance(value, bytes)}
    return {"type": _SIDE_TYPES[type(row)], "file": directory, "table": table} | values | texts


def bad_file_row(
    file: str, file_position: int, size: int, finding: str, topic: str | None = None, queue_id: int | None = None
) -> DumpRow:
    """A range of a file other than the log that is none of its units."""
    row: DumpRow = {"type": "bad", "file": file, "file_position": file_position, "size": size, "finding": finding}
    return row if topic is None else row | {"topic": topic, "queue_id": queue_id}

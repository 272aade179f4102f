"""Files of a DLedger log, entry by entry, with the message in each, and the units of its index.

Broker: `DLedgerMmapFileStore`, `DLedgerEntryCoder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from rmqtool.engine.reading.record import Record, SingleRecord, decode_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import RecordLocation
from rmqtool.formats import dledger
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.source import ByteSource, read_range

ENTRY_FIELDS: Final = tuple(field.name for field in dledger.ENTRY.fields)
UNIT_FIELDS: Final = tuple(field.name for field in dledger.INDEX_UNIT.fields)
_ENTRY: Final = Struct(dledger.ENTRY.struct_code)
_UNIT: Final = Struct(dledger.INDEX_UNIT.struct_code)
_BLOCK_SIZE: Final = 8192 * dledger.INDEX_UNIT_SIZE


class LogEntry(NamedTuple):
    """An entry with an impossible place or a bad message is not `is_right`; its length can be trusted."""

    file_position: int
    values: dict[str, int]
    record: Record | None
    is_right: bool


class BadRange(NamedTuple):
    """Bytes up to the last one of a file that is not zero, which are no entry."""

    file_position: int
    length: int


def read_entries(source: ByteSource, start: int, rules: BrokerRules) -> Iterator[LogEntry | BadRange]:
    """The entries of a file whose first byte has the given place in the log, up to what is none.

    Raises:
        UnreadableError: the disk does not give the bytes.
    """
    end = last_data_end(source, 0, source.size)
    at = 0
    while at < end:
        raw = read_range(source, at, dledger.ENTRY_SIZE)
        if int.from_bytes(raw[:4], "big", signed=True) == dledger.END_OF_FILE and len(raw) >= dledger.END_SIZE_MIN:
            return
        values = dict(zip(ENTRY_FIELDS, _ENTRY.unpack(raw.ljust(dledger.ENTRY_SIZE, b"\0")), strict=True))
        is_whole = values["size"] == dledger.ENTRY_SIZE + values["body_length"] <= source.size - at
        if values["magic"] not in dledger.KINDS or values["body_length"] < 0 or not is_whole:
            yield BadRange(at, end - at)
            return
        yield _entry(source, start, at, values, rules)
        at += values["size"]


def read_units(source: ByteSource) -> Iterator[tuple[int, dict[str, int]]]:
    """The units of a file of the index with their file positions, up to the last byte that is not zero.

    Raises:
        UnreadableError: the disk does not give the bytes.
    """
    end, size = last_data_end(source, 0, source.size), dledger.INDEX_UNIT_SIZE
    for at in range(0, end, _BLOCK_SIZE):
        block = read_range(source, at, min(_BLOCK_SIZE, -(-(end - at) // size) * size))
        for number, values in enumerate(_UNIT.iter_unpack(block[: len(block) // size * size])):
            yield at + number * size, dict(zip(UNIT_FIELDS, values, strict=True))


def _entry(source: ByteSource, start: int, at: int, values: dict[str, int], rules: BrokerRules) -> LogEntry:
    place, length = at + dledger.ENTRY_SIZE, values["body_length"]
    is_placed = values["position"] == start + at
    if values["magic"] != dledger.MESSAGE:
        return LogEntry(at, values, None, is_placed)
    location = RecordLocation(start + place, source.name, place, length)
    record = decode_record(SingleRecord(rules, partial(_read, source, place, length)), location)
    is_right = (
        record is not None
        and is_placed
        and record.size == length
        and record.physical_offset == start + place
        and record.body_crc_ok
    )
    return LogEntry(at, values, record, is_right)


def _read(source: ByteSource, start: int, length_max: int, position: int, length: int) -> bytes:
    return read_range(source, start + position, max(0, min(length, length_max - position)))

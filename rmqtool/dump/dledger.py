"""Rows of a DLedger log for `dump`: each entry with the message in it, and the units of its index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import Final

from rmqtool.dump.request import Request
from rmqtool.dump.target import Target
from rmqtool.engine.reading.record import Record, SingleRecord, decode_record
from rmqtool.engine.rules.versions import rules_for
from rmqtool.engine.segments.log import RecordLocation
from rmqtool.errors import UnreadableError
from rmqtool.formats import dledger
from rmqtool.report.file_rows import bad_file_row
from rmqtool.report.rows import DumpRow
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.file_kinds import is_segment_name
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import Entry

_ENTRY: Final = Struct(dledger.ENTRY.struct_code)
_UNIT: Final = Struct(dledger.INDEX_UNIT.struct_code)
_ENTRY_FIELDS: Final = tuple(field.name for field in dledger.ENTRY.fields)
_UNIT_FIELDS: Final = tuple(field.name for field in dledger.INDEX_UNIT.fields)
BLOCK_SIZE: Final = 8192 * dledger.INDEX_UNIT_SIZE
_INDEX: Final = "index"


@dataclass
class DLedgerDump:
    """The rows of data or index files.

    Attributes:
        problems: files that could not be read, as sentences.
        bad_ranges: how many have been met.
    """

    target: Target
    ask: Request
    problems: list[str] = field(default_factory=list)
    bad_ranges: int = 0

    def readable_bytes(self) -> int:
        """Bytes of the files."""
        return sum(entry.size for entry in self.target.entries)

    def rows(self) -> Iterator[DumpRow]:
        """All rows, file after file."""
        for entry in self.target.entries:
            if not is_segment_name(entry.name):
                continue  # `currterm` and `checkpoint`, which are texts
            read = self._index if entry.path.split("/")[-2:-1] == [_INDEX] else self._data
            try:
                with closing(self.target.view.open(entry.path)) as source:
                    yield from read(entry, source)
            except UnreadableError as error:
                self.problems.append(str(error))

    def _data(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        start = int(entry.name) if is_segment_name(entry.name) else 0
        end = last_data_end(source, 0, source.size)
        at = 0
        while at < end:
            raw = read_range(source, at, dledger.ENTRY_SIZE)
            if int.from_bytes(raw[:4], "big", signed=True) == dledger.END_OF_FILE and len(raw) >= dledger.END_SIZE_MIN:
                return
            values = dict(zip(_ENTRY_FIELDS, _ENTRY.unpack(raw.ljust(dledger.ENTRY_SIZE, b"\0")), strict=True))
            is_whole = values["size"] == dledger.ENTRY_SIZE + values["body_length"] <= source.size - at
            if values["magic"] not in dledger.KINDS or values["body_length"] < 0 or not is_whole:
                self.bad_ranges += 1
                yield bad_file_row(entry.path, at, end - at, "dledger.bad-entry")
                return
            message = self._message(source, start + at, at, values)
            yield {"type": "dledger-entry", "file": entry.path, **values, **message}
            at += values["size"]

    def _message(self, source: ByteSource, position: int, at: int, values: dict[str, int]) -> DumpRow:
        """What the record in an entry says; null where it is none, or lies elsewhere than it says."""
        record: Record | None = None
        if values["magic"] == dledger.MESSAGE:
            place = RecordLocation(
                position + dledger.ENTRY_SIZE, source.name, at + dledger.ENTRY_SIZE, values["body_length"]
            )
            read = partial(_read, source, at + dledger.ENTRY_SIZE, values["body_length"])
            record = decode_record(SingleRecord(rules_for(self.ask.broker_version), read), place)
        names = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp_ms", "unique_key")
        row: DumpRow = {name: getattr(record, name) if record is not None else None for name in names}
        row["body_crc_ok"] = record.body_crc_ok if record is not None else None
        is_placed = record is not None and record.physical_offset == position + dledger.ENTRY_SIZE
        is_right = values["position"] == position and (is_placed or values["magic"] != dledger.MESSAGE)
        is_right = is_right and row["body_crc_ok"] is not False
        self.bad_ranges += not is_right
        return {**row, "finding": None if is_right else "dledger.bad-entry"}

    def _index(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        end = last_data_end(source, 0, source.size)
        size = dledger.INDEX_UNIT_SIZE
        for at in range(0, end, BLOCK_SIZE):
            block = read_range(source, at, min(BLOCK_SIZE, -(-(end - at) // size) * size))
            for values in _UNIT.iter_unpack(block[: len(block) // size * size]):
                yield {"type": "dledger-unit", "file": entry.path, **dict(zip(_UNIT_FIELDS, values, strict=True))}


def _read(source: ByteSource, start: int, length_max: int, position: int, length: int) -> bytes:
    return read_range(source, start + position, max(0, min(length, length_max - position)))

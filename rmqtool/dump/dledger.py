"""Rows of `dump` for the files of a DLedger log: its entries, and the units of its index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from rmqtool.dump.request import RowSource
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError
from rmqtool.report.rows import DumpRow
from rmqtool.sides.dledger import BadRange, read_entries, read_units
from rmqtool.store.file_kinds import is_segment_name
from rmqtool.store.source import ByteSource
from rmqtool.store.view import Entry

_INDEX: Final = "index"
_BAD: Final = "dledger.bad-entry"
_OF_RECORD: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp_ms", "unique_key")


class DLedgerDump(RowSource):
    """The rows of data or index files."""

    def rows(self) -> Iterator[DumpRow]:
        for entry in self.target.entries:
            if not is_segment_name(entry.name):
                continue  # `currterm` and `checkpoint`, which are texts
            try:
                with closing(self.target.view.open(entry.path)) as source:
                    if entry.path.split("/")[-2:-1] == [_INDEX]:
                        for _, values in read_units(source):
                            yield {"type": "dledger-unit", "file": entry.path, **values}
                    else:
                        yield from self._data(entry, source)
            except UnreadableError as error:
                self.problems.append(str(error))

    def _data(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        for one in read_entries(source, int(entry.name), rules_for(self.ask.broker_version)):
            if isinstance(one, BadRange):
                yield self.bad_range(entry.path, one.file_position, one.length, _BAD)
                return
            self.bad_ranges += not one.is_right
            row = {name: getattr(one.record, name) if one.record is not None else None for name in _OF_RECORD}
            row["body_crc_ok"] = one.record.body_crc_ok if one.record is not None else None
            yield {
                "type": "dledger-entry", "file": entry.path, **one.values, **row,
                "finding": None if one.is_right else _BAD,
            }  # fmt: skip

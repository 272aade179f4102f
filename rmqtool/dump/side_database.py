"""Rows of `rocksdbstore/` for `dump`: index, timers and transactions as their tables have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmqtool.dump.target import Target
from rmqtool.report.file_rows import bad_file_row, side_row
from rmqtool.report.rows import DumpRow
from rmqtool.store.side_database import DIRECTORY, SideDatabase


@dataclass
class SideDatabaseDump:
    """The rows of the database.

    Attributes:
        problems: what could not be read, as sentences.
        bad_ranges: rows that mean nothing to a broker.
    """

    target: Target
    problems: list[str] = field(default_factory=list)
    bad_ranges: int = 0

    def readable_bytes(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.target.entries)

    def rows(self) -> Iterator[DumpRow]:
        """All rows, table after table."""
        database = SideDatabase(self.target.view, self.target.entries)
        for family, row in database.rows():
            yield side_row(DIRECTORY, family, row)
        self.bad_ranges = database.odd_row_count
        if database.odd_row_count:
            self.problems.append(f"{DIRECTORY}: {database.odd_row_count} odd rows, the first: {database.odd_row}")
            yield bad_file_row(DIRECTORY, 0, 0, "rocksdbstore.odd-row")
        if database.failure is not None:
            self.problems.append(f"{DIRECTORY}: index, timers and transactions are in RocksDB: {database.reason}")

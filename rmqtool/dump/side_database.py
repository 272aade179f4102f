"""Rows of `rocksdbstore/` for `dump`: index, timers and transactions as their tables have them."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.dump.request import RowSource
from rmqtool.report.file_rows import bad_file_row, side_row
from rmqtool.report.rows import DumpRow
from rmqtool.store.databases.side_database import DIRECTORY, SideDatabase


class SideDatabaseDump(RowSource):
    """The rows of the database."""

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

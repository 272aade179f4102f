"""The tables of `rocksdbstore/`: index, timers and transactions, row by row as the database has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from rmqtool.formats.rocksdb.store import INDEX_FAMILY, TIMER_FAMILY, TRANSACTION_FAMILY, Mark, Row, TimerRow, parse_row
from rmqtool.store.databases.rocksdb import RocksFailure, RocksFamily, RocksReading
from rmqtool.store.view import Entry, StoreView

DIRECTORY: Final = "rocksdbstore"
TABLES: Final = (INDEX_FAMILY, TIMER_FAMILY, TRANSACTION_FAMILY)


@dataclass
class SideDatabase:
    """A database that is read by `rows`, after which `failure` says why not to its end.

    Attributes:
        odd_row_count: rows that mean nothing to a broker; `odd_row` is the first of them, as a sentence.
    """

    view: StoreView
    entries: Sequence[Entry]
    odd_row_count: int = 0
    odd_row: str = ""
    failure: RocksFailure | None = None
    reason: str = ""

    def rows(self, tables: Sequence[str] = TABLES) -> Iterator[tuple[str, Row]]:
        """All rows with the names of their tables, each table in the order of its keys."""
        reading = RocksReading(self.view, self.entries)
        with closing(reading.batches([RocksFamily(name) for name in tables])) as batches:
            for batch in batches:
                row = parse_row(batch.family, batch.prefix, batch.values)
                if row is not None:
                    yield batch.family, row
                    continue
                self.odd_row_count += 1
                self.odd_row = self.odd_row or f"{batch.family}: key {batch.prefix[:40].hex()}"
        self.failure, self.reason = reading.failure, reading.reason

    def timer_marks(self) -> dict[str, int]:
        """How far the timers are, by the names of the keys; none where a broker keeps no timer here."""
        return {row.name: row.value for _, row in self.rows((TIMER_FAMILY,)) if isinstance(row, Mark)}

    def timers_from(self, due_ms: int) -> Iterator[TimerRow]:
        """The timers that are due at a time or later; those before were delivered."""
        for _, row in self.rows((TIMER_FAMILY,)):
            if isinstance(row, TimerRow) and row.due_timestamp_ms >= due_ms:
                yield row

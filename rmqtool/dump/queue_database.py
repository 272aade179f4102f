"""Rows of consume queues in RocksDB for `dump`: the units of every queue, then the ends that the database stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct

from rmqtool.dump.queues import BLOCK_UNITS, QueueDump
from rmqtool.dump.request import RowSource
from rmqtool.formats.layout import Format
from rmqtool.formats.queue_name import QueueName
from rmqtool.formats.rocksdb.queue import DISPATCHED, OFFSET, UNIT
from rmqtool.report.file_rows import database_unit_row, dispatched_row, odd_row, queue_end_row
from rmqtool.report.rows import DumpRow
from rmqtool.store.databases.queue_database import QueueDatabase, StoredEnds, databases_in, read_queue_database
from rmqtool.store.file_kinds import FileKind, kind_of
from rmqtool.store.view import Entry


@dataclass
class QueueDatabaseDump(RowSource):
    """The rows of queues of which some or all are in RocksDB: those in files come last."""

    def __post_init__(self) -> None:
        of_databases = [entry for entry in self.target.entries if _is_of_database(entry)]
        of_files = tuple(entry for entry in self.target.entries if not _is_of_database(entry))
        self._files = QueueDump(replace(self.target, entries=of_files), self.ask, self.problems)
        self._databases = databases_in(of_databases)

    def rows(self) -> Iterator[DumpRow]:
        """All rows that are asked for, of databases and then of files."""
        for entries in self._databases:
            database = read_queue_database(self.target.view, entries)
            if database.failure is not None:
                self.problems.append(f"{database.directory}: the consume queues are in RocksDB: {database.reason}")
            yield from self._rows_of(database)
        try:
            yield from self._files.rows()
        finally:
            self.bad_ranges += self._files.bad_ranges

    def _rows_of(self, database: QueueDatabase) -> Iterator[DumpRow]:
        ask = self.ask
        names = sorted(name for name in database.names if ask.takes_queue(*name))
        if ask.reverse:
            names.reverse()
        for name in names:
            yield from self._units(database, name)
        for name in names:
            yield from self._ends(database, name)
        if ask.topics or ask.queue_id is not None or ask.from_offset is not None or ask.to_offset is not None:
            return  # the rest belongs to no queue
        if database.dispatched is not None:
            row = dispatched_row(database.directory, database.dispatched)
            yield row | self._bytes(DISPATCHED, database.dispatched)
        self.bad_ranges += database.odd_row_count
        for message in database.odd_rows:
            yield odd_row(database.directory, message)

    def _units(self, database: QueueDatabase, name: QueueName) -> Iterator[DumpRow]:
        queue = database.units.get(name)
        if queue is None:
            return
        ask = self.ask
        first = 0 if ask.from_offset is None else database.number_of(name, ask.from_offset)
        end = queue.unit_count if ask.to_offset is None else database.number_of(name, ask.to_offset)
        starts = range(first, end, BLOCK_UNITS)
        for start in reversed(starts) if ask.reverse else starts:
            block = database.rows(name, start, min(BLOCK_UNITS, end - start)).tolist()
            for values in reversed(block) if ask.reverse else block:
                yield database_unit_row(database.directory, *name, values) | self._bytes(UNIT, *values[1:])

    def _ends(self, database: QueueDatabase, name: QueueName) -> Iterator[DumpRow]:
        ask, ends = self.ask, database.ends.get(name, StoredEnds())
        stored = [("min", ends.minimum), ("max", ends.maximum)]
        for which, end in reversed(stored) if ask.reverse else stored:
            if end is None or (ask.from_offset is not None and end.queue_offset < ask.from_offset):
                continue
            if ask.to_offset is None or end.queue_offset < ask.to_offset:
                row = queue_end_row(database.directory, *name, which, end.queue_offset, end.physical_offset)
                yield row | self._bytes(OFFSET, *end)

    def _bytes(self, declared: Format, *values: int) -> DumpRow:
        """The value of a row, if its bytes are asked for."""
        return self.hex_of(Struct(declared.struct_code).pack(*values), declared, 0)


def _is_of_database(entry: Entry) -> bool:
    return kind_of(entry.path) is FileKind.CONSUMEQUEUE_ROCKSDB

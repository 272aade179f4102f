"""Rows of consume queues in RocksDB for `dump`: the units of every queue, then the ends that the database stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from struct import Struct

from rmqtool.dump.queues import QueueDump
from rmqtool.dump.request import RowSource
from rmqtool.engine.queues.unit_runs import BLOCK_UNITS
from rmqtool.formats.layout import Format
from rmqtool.formats.rocksdb.queue import DISPATCHED, OFFSET, UNIT
from rmqtool.report.file_rows import unit_row
from rmqtool.report.rows import DumpRow
from rmqtool.store.databases.queue_database import QueueDatabase, StoredEnds, databases_in, read_queue_database
from rmqtool.store.file_kinds import FileKind, kind_of


class QueueDatabaseDump(RowSource):
    """The rows of queues of which some or all are in RocksDB: those in files come last."""

    def rows(self) -> Iterator[DumpRow]:
        """All rows that are asked for, of databases and then of files."""
        of_database = {entry: kind_of(entry.path) is FileKind.CONSUMEQUEUE_ROCKSDB for entry in self.target.entries}
        for entries in databases_in([entry for entry in self.target.entries if of_database[entry]]):
            database = read_queue_database(self.target.view, entries)
            if database.failure is not None:
                self.problems.append(f"{database.directory}: the consume queues are in RocksDB: {database.reason}")
            yield from self._rows_of(database)
        of_files = tuple(entry for entry in self.target.entries if not of_database[entry])
        files = QueueDump(replace(self.target, entries=of_files), self.ask, self.problems)
        try:
            yield from files.rows()
        finally:
            self.bad_ranges += files.bad_ranges

    def _rows_of(self, database: QueueDatabase) -> Iterator[DumpRow]:
        ask, file = self.ask, database.directory
        names = sorted(name for name in database.names if ask.takes_queue(*name))
        if ask.reverse:
            names.reverse()
        for name in names:
            queue = database.units.get(name)
            if queue is None:
                continue
            first = 0 if ask.from_offset is None else database.number_of(name, ask.from_offset)
            end = queue.unit_count if ask.to_offset is None else database.number_of(name, ask.to_offset)
            starts = range(first, end, BLOCK_UNITS)
            for start in reversed(starts) if ask.reverse else starts:
                block = database.rows(name, start, min(BLOCK_UNITS, end - start)).tolist()
                for values in reversed(block) if ask.reverse else block:
                    # Extensions are of queues in files only.
                    own = {"extension_position": None, "store_timestamp_ms": values[4], "file": file}
                    yield unit_row(*name, values[0], values[1:4]) | own | self._bytes(UNIT, *values[1:])
        for name in names:
            ends = database.ends.get(name, StoredEnds())
            stored = [("min", ends.minimum), ("max", ends.maximum)]
            for which, stored_end in reversed(stored) if ask.reverse else stored:
                if stored_end is None or (ask.from_offset is not None and stored_end.queue_offset < ask.from_offset):
                    continue
                if ask.to_offset is None or stored_end.queue_offset < ask.to_offset:
                    yield {
                        "type": "queue-end", "topic": name[0], "queue_id": name[1], "end": which,
                        "queue_offset": stored_end.queue_offset, "physical_offset": stored_end.physical_offset,
                        "file": file, **self._bytes(OFFSET, *stored_end),
                    }  # fmt: skip
        if ask.topics or ask.queue_id is not None or ask.from_offset is not None or ask.to_offset is not None:
            return  # the rest belongs to no queue
        if database.dispatched is not None:
            row = {"type": "queue-checkpoint", "physical_offset": database.dispatched, "file": file}
            yield row | self._bytes(DISPATCHED, database.dispatched)
        self.bad_ranges += database.odd_row_count
        for message in database.odd_rows:
            yield {"type": "odd-row", "file": file, "message": message, "finding": "rocksdb.odd-row"}

    def _bytes(self, declared: Format, *values: int) -> DumpRow:
        """The value of a row, if its bytes are asked for."""
        return self.hex_of(Struct(declared.struct_code).pack(*values), declared, 0)

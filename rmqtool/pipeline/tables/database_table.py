"""Rows of the table `consumequeue` that are in RocksDB: units, the stored ends of queues and of the dispatched log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtool.formats.consumequeue import FILLER_UNIT
from rmqtool.formats.queue_name import QueueName
from rmqtool.formats.rocksdb.queue import DISPATCHED, OFFSET, UNIT, UNIT_SIZE
from rmqtool.pipeline.tables.queue_table import BLOCK_UNITS, SCHEMA
from rmqtool.pipeline.tables.rows import batch_of, native
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.databases.queue_database import QueueDatabase, StoredEnds, databases_in, read_queue_database
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.remote import view_of_files
from rmqtool.store.view import Entry, StoreView


@dataclass(frozen=True)
class DatabaseSplit:
    """One database, which one task reads: its files hold the rows of all queues."""

    view: StoreView
    store: str
    entries: tuple[Entry, ...]

    def batches(self, row_filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
        """The record batches, with all columns."""
        database = read_queue_database(self.view, self.entries)
        where = {"store": self.store, "file": database.directory}
        if database.failure is not None:
            kind = "not-loadable" if database.failure is RocksFailure.DOES_NOT_OPEN else "unreadable"
            yield batch_of(SCHEMA, 1, where | {"type": "bad", "size": 0, "finding": f"rocksdb.{kind}"})
        names = sorted(
            (topic, queue_id)
            for topic, queue_id in database.names
            if all(row_filter.may_name(topic) and row_filter.may_number(queue_id) for row_filter in row_filters)
        )
        for name in names:
            queue = where | {"topic": name[0], "queue_id": name[1]}
            yield from _units(database, name, queue)
            yield from _ends(database.ends.get(name, StoredEnds()), queue)
        if any(row_filter.topics is not None or row_filter.queue_ids is not None for row_filter in row_filters):
            return  # the rest belongs to no queue
        if database.dispatched is not None:
            row = {"type": "queue-checkpoint", "physical_offset": database.dispatched, "size": DISPATCHED.size}
            yield batch_of(SCHEMA, 1, where | row)
        if database.odd_row_count:
            row = {"type": "odd-row", "size": 0, "finding": "rocksdb.odd-row"}
            yield batch_of(SCHEMA, len(database.odd_rows), where | row)


def database_splits(store: Store) -> list[DatabaseSplit]:
    """The databases of a store: one, but for a store that both layouts of a broker wrote."""
    databases = databases_in(store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB, ()))
    return [DatabaseSplit(view_of_files(store.view, files), store.view.label, files) for files in databases]


def _units(database: QueueDatabase, name: QueueName, queue: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    held = database.units.get(name)
    for first in range(0, held.unit_count if held is not None else 0, BLOCK_UNITS):
        units = database.rows(name, first, BLOCK_UNITS)
        columns = {column: native(units, column) for column in ("queue_offset", *(UNIT.dtype.names or ()))}
        parts = zip(("physical_offset", "record_size", "tags_code"), FILLER_UNIT, strict=True)
        filler = np.logical_and.reduce([columns[column] == value for column, value in parts])
        yield batch_of(SCHEMA, len(units), queue | columns | {"type": "unit", "filler": filler, "size": UNIT_SIZE})


def _ends(ends: StoredEnds, queue: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    for which, end in (("min", ends.minimum), ("max", ends.maximum)):
        if end is not None:
            row = {"type": "queue-end", "end": which, "size": OFFSET.size, **end._asdict()}
            yield batch_of(SCHEMA, 1, queue | row)

"""The table `consumequeue`: the units of queues in files and in RocksDB, as `dump` has them, whole blocks at a time.

What a column has of a unit, its source in `report.fields` says; here are the columns out of which it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from rmqtool.engine.queues.unit_runs import BadUnits, UnitRuns
from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_BASE, EXTENSION_ADDRESS_MAX, UNIT_SIZE, unit_format
from rmqtool.formats.rocksdb import queue as database_rows
from rmqtool.pipeline.tables.rows import PART_BYTES, batch_of, grouped_by_size, native_columns
from rmqtool.report.fields import QUEUE_TABLE
from rmqtool.scan.log import may_hold_data
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.databases.queue_database import StoredEnds, databases_in, read_queue_database
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.remote import view_of_files
from rmqtool.store.view import Entry, StoreView

BLOCK_UNITS: Final = 1 << 16


@dataclass(frozen=True)
class QueueSplit:
    """One file of a queue.

    Attributes:
        view: of the queue's files.
        later: paths of the queue's later files; what follows the last one that holds data is preallocated.
    """

    view: StoreView
    store: str
    topic: str
    queue_id: int
    segment: Segment
    is_batch: bool
    later: tuple[str, ...]

    @property
    def size(self) -> int:
        return self.segment.size


def queue_splits(store: Store, row_filters: Sequence[RowFilter]) -> list[tuple[QueueSplit, ...]]:
    """The files of wanted queues, small ones together."""
    files = []
    for queues, is_batch in ((store.queues, False), (store.batch_queues, True)):
        for queue in queues.values():
            if all(one.may_name(queue.topic) and one.may_number(queue.queue_id) for one in row_filters):
                view = view_of_files(store.view, [segment.entry for segment in queue.segments])
                paths = tuple(segment.path for segment in queue.segments)
                files += [
                    QueueSplit(view, store.view.label, queue.topic, queue.queue_id, segment, is_batch, paths[at + 1 :])
                    for at, segment in enumerate(queue.segments)
                ]
    return grouped_by_size(files, PART_BYTES)


def read_queue_files(files: Sequence[QueueSplit]) -> Iterator[pa.RecordBatch]:
    """The record batches of some files, with all columns."""
    for file in files:
        where = {"store": file.store, "file": file.segment.path, "topic": file.topic, "queue_id": file.queue_id}
        try:
            source = file.view.open(file.segment.path)
        except UnreadableError:
            bad = {"file_position": 0, "size": file.size, "finding": "consumequeue.unreadable-range"}
            yield batch_of(QUEUE_TABLE, "bad", 1, where | bad)
            continue
        declared = unit_format(is_batch=file.is_batch)
        with closing(source):
            ends_data = partial(_ends_data, file)
            runs = UnitRuns(source, declared.dtype.itemsize, file.size, ends_data, block_units=BLOCK_UNITS)
            for run in runs.walk():
                if isinstance(run, BadUnits):
                    bad = {"file_position": run.start, "size": run.end - run.start, "finding": run.finding}
                    yield batch_of(QUEUE_TABLE, "bad", 1, where | bad)
                    continue
                units = np.frombuffer(run.raw, declared.dtype)
                positions = run.position + np.arange(len(units)) * declared.dtype.itemsize
                columns = {**where, **native_columns(units), "file_position": positions}
                columns |= {"size": declared.dtype.itemsize, "finding": None}
                if file.is_batch:
                    columns["queue_offset"] = columns["base_queue_offset"]
                else:
                    codes = columns["tags_code"]
                    columns["queue_offset"] = (file.segment.start + positions) // UNIT_SIZE
                    columns["extension_position"] = pa.array(
                        codes - EXTENSION_ADDRESS_BASE, mask=codes > EXTENSION_ADDRESS_MAX
                    )
                    columns["store_timestamp_ms"] = None
                yield batch_of(QUEUE_TABLE, "batch-unit" if file.is_batch else "unit", len(units), columns)


def _ends_data(file: QueueSplit) -> bool:
    """True if no later file of the queue holds data; one that cannot be read may, and is reported later."""
    return not any(may_hold_data(file.view.open, path) for path in reversed(file.later))


@dataclass(frozen=True)
class DatabaseSplit:
    """One database, which one task reads: its files hold the rows of all queues."""

    view: StoreView
    store: str
    entries: tuple[Entry, ...]


def database_splits(store: Store) -> list[DatabaseSplit]:
    """The databases of a store: one, but for a store that both layouts of a broker wrote."""
    databases = databases_in(store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB, ()))
    return [DatabaseSplit(view_of_files(store.view, files), store.view.label, files) for files in databases]


def read_database(split: DatabaseSplit, row_filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
    """The record batches of a database: units, the stored ends of queues and of the dispatched log."""
    database = read_queue_database(split.view, split.entries)
    no_queue = {"store": split.store, "file": database.directory, "topic": None, "queue_id": None}
    no_queue |= {"file_position": None, "finding": None}
    if database.failure is not None:
        kind = "not-loadable" if database.failure is RocksFailure.DOES_NOT_OPEN else "unreadable"
        yield batch_of(QUEUE_TABLE, "bad", 1, no_queue | {"size": 0, "finding": f"rocksdb.{kind}"})
    names = sorted(
        (topic, queue_id)
        for topic, queue_id in database.names
        if all(row_filter.may_name(topic) and row_filter.may_number(queue_id) for row_filter in row_filters)
    )
    for name in names:
        queue = no_queue | {"topic": name[0], "queue_id": name[1]}
        # Extensions are of queues in files only.
        of_units = queue | {"extension_position": None, "size": database_rows.UNIT_SIZE}
        units = database.units.get(name)
        for first in range(0, units.unit_count if units is not None else 0, BLOCK_UNITS):
            rows = database.rows(name, first, BLOCK_UNITS)
            yield batch_of(QUEUE_TABLE, "unit", len(rows), of_units | native_columns(rows))
        ends = database.ends.get(name, StoredEnds())
        for which, end in (("min", ends.minimum), ("max", ends.maximum)):
            if end is not None:
                row = {"end": which, "size": database_rows.OFFSET.size, **end._asdict()}
                yield batch_of(QUEUE_TABLE, "queue-end", 1, queue | row)
    if any(row_filter.topics is not None or row_filter.queue_ids is not None for row_filter in row_filters):
        return  # the rest belongs to no queue
    if database.dispatched is not None:
        row = {"physical_offset": database.dispatched, "size": database_rows.DISPATCHED.size}
        yield batch_of(QUEUE_TABLE, "queue-checkpoint", 1, no_queue | row)
    if database.odd_row_count:
        row = {"size": 0, "finding": "rocksdb.odd-row"}
        yield batch_of(QUEUE_TABLE, "odd-row", len(database.odd_rows), no_queue | row)

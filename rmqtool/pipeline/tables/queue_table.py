"""The table `consumequeue`: units of consume queues and batch queues, as `dump` has them, whole blocks at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from rmqtool.engine.queues.unit_runs import BadUnits, UnitRuns
from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import (
    EXTENSION_ADDRESS_BASE,
    EXTENSION_ADDRESS_MAX,
    FILLER_UNIT,
    UNIT,
    UNIT_SIZE,
    unit_format,
)
from rmqtool.pipeline.tables.rows import PART_BYTES, batch_of, grouped_by_size, native
from rmqtool.report.fields import QUEUE_TABLE
from rmqtool.scan.log import may_hold_data
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.directory import Segment, Store
from rmqtool.store.remote import view_of_files
from rmqtool.store.view import StoreView

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
                columns: dict[str, Any] = {
                    "file_position": positions,
                    "physical_offset": native(units, "physical_offset"),
                    "record_size": native(units, "record_size"),
                    "tags_code": native(units, "tags_code"),
                    "size": declared.dtype.itemsize,
                    "finding": None,
                }
                if file.is_batch:
                    columns["queue_offset"] = native(units, "base_queue_offset")
                    for name in ("store_timestamp_ms", "batch_size", "compacted_offset"):
                        columns[name] = native(units, name)
                else:
                    codes = columns["tags_code"]
                    columns["queue_offset"] = (file.segment.start + positions) // UNIT_SIZE
                    columns["filler"] = units == np.array([FILLER_UNIT], UNIT.dtype)
                    columns["extension_position"] = pa.array(
                        codes - EXTENSION_ADDRESS_BASE, mask=codes > EXTENSION_ADDRESS_MAX
                    )
                    columns["store_timestamp_ms"] = None
                yield batch_of(QUEUE_TABLE, "batch-unit" if file.is_batch else "unit", len(units), where | columns)


def _ends_data(file: QueueSplit) -> bool:
    """True if no later file of the queue holds data; one that cannot be read may, and is reported later."""
    return not any(may_hold_data(file.view.open, path) for path in reversed(file.later))

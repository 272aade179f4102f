"""The table `consumequeue`: units of consume queues and batch queues, as `dump` has them, whole blocks at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
from rmqtool.pipeline.tables.times import TIME_TYPE
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.directory import QueueFiles, Segment, Store
from rmqtool.store.remote import view_of_files
from rmqtool.store.source import ByteSource, read_salvaging
from rmqtool.store.view import StoreView

SCHEMA: Final = pa.schema(
    [
        pa.field("store", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("file_position", pa.int64()),
        pa.field("type", pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("end", pa.string()),
        pa.field("queue_offset", pa.int64()),
        pa.field("physical_offset", pa.int64()),
        pa.field("record_size", pa.int32()),
        pa.field("tags_code", pa.int64()),
        pa.field("filler", pa.bool_()),
        pa.field("extension_position", pa.int64()),
        pa.field("store_timestamp_ms", pa.int64()),
        pa.field("store_time", TIME_TYPE),
        pa.field("batch_size", pa.int16()),
        pa.field("compacted_offset", pa.int32()),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("finding", pa.string()),
    ]
)
"""Batch units alone have `batch_size` and `compacted_offset`; rows of a database have no position in a file."""
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
    files = [
        split
        for queues, is_batch in ((store.queues, False), (store.batch_queues, True))
        for queue in queues.values()
        if all(row_filter.may_name(queue.topic) and row_filter.may_number(queue.queue_id) for row_filter in row_filters)
        for split in _files(store.view, queue, is_batch=is_batch)
    ]
    return grouped_by_size(files, PART_BYTES)


def read_queue_files(files: Sequence[QueueSplit]) -> Iterator[pa.RecordBatch]:
    """The record batches of some files, with all columns."""
    for file in files:
        yield from _Units(file).batches()


def _files(view: StoreView, queue: QueueFiles, *, is_batch: bool) -> list[QueueSplit]:
    own_view = view_of_files(view, [segment.entry for segment in queue.segments])
    paths = tuple(segment.path for segment in queue.segments)
    return [
        QueueSplit(own_view, view.label, queue.topic, queue.queue_id, segment, is_batch, paths[at + 1 :])
        for at, segment in enumerate(queue.segments)
    ]


def _has_data(view: StoreView, path: str) -> bool:
    with suppress(UnreadableError), closing(view.open(path)) as source:
        return last_data_end(source, 0, source.size) > 0
    return True  # to be told when its turn comes


class _Units:
    """The rows of one file."""

    def __init__(self, file: QueueSplit) -> None:
        self._file = file
        declared = unit_format(is_batch=file.is_batch)
        self._dtype, self._unit_size = declared.dtype, declared.dtype.itemsize
        self._unreadable: list[tuple[int, int]] = []
        self._zeros_from: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            source = self._file.view.open(self._file.segment.path)
        except UnreadableError:
            yield self._bad(0, self._file.size, "unreadable-range")
            return
        try:
            yield from self._read(source)
        finally:
            source.close()

    def _read(self, source: ByteSource) -> Iterator[pa.RecordBatch]:
        size = self._unit_size
        data_end = last_data_end(source, 0, source.size)
        whole_end = source.size // size * size
        end = min(whole_end, -(-data_end // size) * size)
        if end < whole_end and any(_has_data(self._file.view, path) for path in reversed(self._file.later)):
            end = whole_end  # zeros before data are a gap
        for begin in range(0, end, BLOCK_UNITS * size):
            buffer = bytearray(min(BLOCK_UNITS * size, end - begin))
            self._unreadable += read_salvaging(source, begin, memoryview(buffer))
            raw = np.frombuffer(buffer, np.uint8).reshape(-1, size)
            there = np.asarray(raw.any(axis=1))
            bounds = [0, *(np.flatnonzero(there[1:] != there[:-1]) + 1).tolist(), len(there)]
            for first, stop in pairwise(bounds):
                position = begin + first * size
                if not there[first]:
                    self._zeros_from = position if self._zeros_from is None else self._zeros_from
                    continue
                yield from self._gap(position)
                yield self._units(np.frombuffer(buffer, self._dtype)[first:stop], position)
        yield from self._gap(end)
        if data_end > whole_end:
            yield self._bad(whole_end, data_end, "wrong-file-size")

    def _gap(self, end: int) -> Iterator[pa.RecordBatch]:
        """Zeros where units should be, if the units before ended earlier."""
        start, self._zeros_from = self._zeros_from, None
        if start is None:
            return
        if any(low < end and high > start for low, high in self._unreadable):
            name = "unreadable-range"
        else:
            name = "zero-file" if start == 0 and end >= self._file.size else "gap"
        yield self._bad(start, end, name)

    def _units(self, units: NDArray[Any], position: int) -> pa.RecordBatch:
        positions = position + np.arange(len(units)) * self._unit_size
        columns: dict[str, Any] = {
            "file_position": positions,
            "physical_offset": native(units, "physical_offset"),
            "record_size": native(units, "record_size"),
            "tags_code": native(units, "tags_code"),
        }
        if self._file.is_batch:
            columns["queue_offset"] = native(units, "base_queue_offset")
            for name in ("store_timestamp_ms", "batch_size", "compacted_offset"):
                columns[name] = native(units, name)
        else:
            columns["queue_offset"] = (self._file.segment.start + positions) // UNIT_SIZE
            columns["filler"] = units == np.array([FILLER_UNIT], UNIT.dtype)
            codes = columns["tags_code"]
            columns["extension_position"] = pa.array(codes - EXTENSION_ADDRESS_BASE, mask=codes > EXTENSION_ADDRESS_MAX)
        columns["type"] = "batch-unit" if self._file.is_batch else "unit"
        columns["size"] = self._unit_size
        return batch_of(SCHEMA, len(units), self._where() | columns)

    def _bad(self, start: int, end: int, name: str) -> pa.RecordBatch:
        fields = {"type": "bad", "file_position": start, "size": end - start, "finding": f"consumequeue.{name}"}
        return batch_of(SCHEMA, 1, self._where() | fields)

    def _where(self) -> dict[str, Any]:
        file = self._file
        return {"store": file.store, "file": file.segment.path, "topic": file.topic, "queue_id": file.queue_id}

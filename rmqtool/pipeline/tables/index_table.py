"""The table `index`: the entries of index files, as `dump` has them, whole blocks at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from rmqtool.errors import UnreadableError
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, HEADER_SIZE, IndexHeader, entry_position
from rmqtool.pipeline.tables.rows import PART_BYTES, batch_of, grouped_by_size, native_columns
from rmqtool.report.fields import INDEX_TABLE
from rmqtool.store.directory import Store
from rmqtool.store.remote import view_of_files
from rmqtool.store.source import ByteSource, read_range, read_salvaging
from rmqtool.store.view import Entry, StoreView

BLOCK_ENTRIES: Final = 1 << 16


@dataclass(frozen=True)
class IndexSplit:
    """One index file; `slot_count` is None where nothing tells it."""

    view: StoreView
    store: str
    entry: Entry
    slot_count: int | None

    @property
    def size(self) -> int:
        return self.entry.size


def index_splits(store: Store) -> list[tuple[IndexSplit, ...]]:
    """The index files, small ones together."""
    files = [
        IndexSplit(view_of_files(store.view, [entry]), store.view.label, entry, store.index_slot_count)
        for entry in store.index_files
    ]
    return grouped_by_size(files, PART_BYTES)


def read_index_files(files: Sequence[IndexSplit]) -> Iterator[pa.RecordBatch]:
    """The record batches of some files, with all columns."""
    for file in files:
        try:
            source = file.view.open(file.entry.path)
        except UnreadableError:
            yield _bad(file, 0, file.size, "store.unreadable")
            continue
        with closing(source):
            yield from _entries(file, source)


def _entries(file: IndexSplit, source: ByteSource) -> Iterator[pa.RecordBatch]:
    try:
        raw = read_range(source, 0, HEADER_SIZE)
    except UnreadableError:
        yield _bad(file, 0, HEADER_SIZE, "store.unreadable")
        return
    if len(raw) < HEADER_SIZE:
        yield _bad(file, 0, file.size, "index.bad-header")
        return
    header = IndexHeader.parse(raw)
    if file.slot_count is None:
        if header.next_entry_number != 1:
            yield _bad(file, 0, file.size, "index.bad-header")
        return
    start = entry_position(1, file.slot_count)
    room = max(0, source.size - start) // ENTRY_SIZE
    count = max(0, min(header.next_entry_number - 1, room))
    for first in range(0, count, BLOCK_ENTRIES):
        buffer = bytearray(min(BLOCK_ENTRIES, count - first) * ENTRY_SIZE)
        position = start + first * ENTRY_SIZE
        unreadable = read_salvaging(source, position, memoryview(buffer))
        entries = np.frombuffer(buffer, ENTRY.dtype)
        own = native_columns(entries)
        numbers = np.arange(first + 1, first + 1 + len(entries), dtype=np.int32)
        columns = {
            **own,
            "store": file.store,
            "file": file.entry.path,
            "file_position": start + (numbers.astype(np.int64) - 1) * ENTRY_SIZE,
            "number": numbers,
            "slot": own["key_hash"] % np.int32(file.slot_count),
            "store_timestamp_ms": header.begin_timestamp_ms + own["time_delta_seconds"].astype(np.int64) * 1000,
            "size": ENTRY_SIZE,
            "finding": None,
        }
        yield batch_of(INDEX_TABLE, "entry", len(entries), columns)
        for low, high in unreadable:
            yield _bad(file, low, high - low, "store.unreadable")
    if not 0 <= header.next_entry_number - 1 <= room:
        yield _bad(file, 0, HEADER_SIZE, "index.bad-header")


def _bad(file: IndexSplit, position: int, size: int, finding: str) -> pa.RecordBatch:
    columns = {"store": file.store, "file": file.entry.path, "file_position": position, "size": size}
    return batch_of(INDEX_TABLE, "bad", 1, {**columns, "finding": finding})

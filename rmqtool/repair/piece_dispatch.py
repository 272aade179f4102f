"""What one file of the log puts into queues and index, written down, so that a runner may work it out elsewhere.

What is written into a store depends on nothing but the entries in the order of the log, so the files that are built do
not show who dispatched. Queues are told apart into buckets, each of which is read again by whoever writes its queues;
entries of the index lie one behind the other, so that those of one index file can be read alone.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from rmqtool.engine.derived_writer import HELD_ROWS_MAX, DerivedEntries, Dispatching
from rmqtool.engine.dispatch import QueueEntries, joined_entries
from rmqtool.engine.index_keys import IndexEntries
from rmqtool.errors import WriteError
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.repair.log_reading import Bad, LogReading, ReadRows
from rmqtool.scan.log import LogPlan, ScanOptions
from rmqtool.scan.piece import Piece
from rmqtool.store.source import reason

BUCKETS: Final = 32
_INDEX_ROW: Final = np.dtype([("key_hash", "<i4"), ("physical_offset", "<i8"), ("store_timestamp_ms", "<i8")])


def bucket_of(topic: str, queue_id: int) -> int:
    """The bucket of a queue, the same on every machine."""
    return zlib.crc32(f"{topic}/{queue_id}".encode("utf-8", "surrogatepass")) % BUCKETS


@dataclass(frozen=True)
class PieceDone:
    """Where the entries of a piece were written.

    Attributes:
        folder: holds them.
        read: all that was read of the piece, without its entries; None where that is nothing.
        bad: what ended it early.
        buckets: those with entries for queues.
        index_count: entries for the index.
        ends_without: whether a record without such an entry follows the last one, or is all there is.
    """

    folder: Path
    read: ReadRows | None
    bad: Bad | None
    buckets: frozenset[int]
    index_count: int
    ends_without: bool

    def queue_entries(self, bucket: int) -> Iterator[list[QueueEntries]]:
        """Entries of a bucket's queues, in the order of the log."""
        if bucket not in self.buckets:
            return
        with _bucket_place(self.folder, bucket).open("rb") as file:
            while file.peek(1):
                yield pickle.load(file)  # noqa: S301 - written by this run

    def index_entries(self, first: int, count: int) -> IndexEntries:
        """Some of the entries for the index."""
        start = first * _INDEX_ROW.itemsize
        found = np.fromfile(_index_place(self.folder), _INDEX_ROW, count, offset=start)
        hashes, offsets, times_ms = (np.ascontiguousarray(found[name]) for name in _INDEX_ROW.names or ())
        return IndexEntries(hashes, offsets, times_ms, ends_without=False)


@dataclass(frozen=True)
class PieceDispatch:
    """Dispatches any piece of a log into a folder of its own.

    Attributes:
        data_bytes: of the whole log.
        log_end: physical offset from which on records do not count.
        folder: where the folders lie, which whoever reads them sees too.
    """

    dispatching: Dispatching
    options: ScanOptions
    data_bytes: int
    log_end: int | None
    folder: Path

    def __call__(self, piece: Piece) -> PieceDone:
        """Dispatch a piece.

        Raises:
            WriteError: the folder does not take the files.
        """
        reading = LogReading(LogPlan((piece,), self.data_bytes), self.options, self.log_end, self.dispatching)
        folder = self.folder / f"{piece.physical_offset:020d}"
        read: ReadRows | None = None
        try:
            with _PieceFiles(folder) as files:
                for rows in reading.rows():
                    assert rows.entries is not None
                    files.take(rows.entries)
                    read = _joined(read, rows)
        except OSError as error:
            raise WriteError(f"{folder}: {reason(error)}") from error
        return PieceDone(folder, read, reading.bad, frozenset(files.buckets), files.index_count, files.ends_without)


class _PieceFiles:
    """The files of one piece, while they are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[tuple[bytes, int, bool], list[QueueEntries]] = {}
        self._held_rows = 0
        self.buckets: set[int] = set()
        self.index_count = 0
        self.ends_without = False

    def take(self, entries: DerivedEntries) -> None:
        """Write entries down; those of queues once there are many."""
        for found in entries.queues:
            self._held.setdefault((found.topic, found.queue_id, found.is_batch), []).append(found)
        self._held_rows += entries.row_count
        if self._held_rows >= HELD_ROWS_MAX:
            self._write_queues()
        if entries.index is not None:
            self._write_index(entries.index)

    def _write_queues(self) -> None:
        by_bucket: dict[int, list[QueueEntries]] = {}
        for (topic, queue_id, _), parts in self._held.items():
            bucket = bucket_of(decode_java_utf8(topic), queue_id)
            by_bucket.setdefault(bucket, []).append(joined_entries(parts))
        for bucket, found in by_bucket.items():
            # What a task left here that died is written over.
            with _bucket_place(self._folder, bucket).open("ab" if bucket in self.buckets else "wb") as file:
                pickle.dump(found, file)
            self.buckets.add(bucket)
        self._held, self._held_rows = {}, 0

    def _write_index(self, entries: IndexEntries) -> None:
        count = entries.key_hashes.size
        self.ends_without = entries.ends_without or (self.ends_without and not count)
        rows = np.empty(count, _INDEX_ROW)
        rows["key_hash"] = entries.key_hashes
        rows["physical_offset"] = entries.physical_offsets
        rows["store_timestamp_ms"] = entries.store_timestamps_ms
        with _index_place(self._folder).open("ab" if self.index_count else "wb") as file:
            file.write(rows.data)
        self.index_count += count

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write_queues()


def _bucket_place(folder: Path, bucket: int) -> Path:
    return folder / f"queues-{bucket}"


def _index_place(folder: Path) -> Path:
    return folder / "index"


def _joined(before: ReadRows | None, after: ReadRows) -> ReadRows:
    """What was read in two parts, without entries."""
    if before is None:
        return replace(after, entries=None)
    before.tombstones.extend(after.tombstones)
    return ReadRows(
        after.last_begin,
        after.log_end,
        before.size + after.size,
        before.record_count + after.record_count,
        after.last_record or before.last_record,
        before.first_ms if before.record_count else after.first_ms,
        max(before.newest_ms, after.newest_ms),
        before.tombstones,
    )

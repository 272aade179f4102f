"""What one file of the log puts into queues and index, written down, so that a runner may work it out elsewhere.

What is written into a store depends on nothing but the entries in the order of the log, so the files that are built do
not show who dispatched. Queues are told apart into buckets, each of which is read again by whoever writes its queues;
entries of the index lie one after the other, so that those of one index file can be read alone.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from rmqtool.engine.dispatch.derived_writer import HELD_ROWS_MAX, DerivedEntries
from rmqtool.engine.dispatch.index_entries import IndexEntries
from rmqtool.engine.dispatch.queue_entries import QueueEntries, joined_entries
from rmqtool.errors import UnreadableError
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import TypedQueueKey
from rmqtool.repair.derived.builder import BuildContext
from rmqtool.repair.derived.log_pass import Bad, LogReading, ReadRows
from rmqtool.scan.log import LogPlan, ScanOptions
from rmqtool.scan.split import Split
from rmqtool.store.sink import reported
from rmqtool.store.source import reason

BUCKETS: Final = 32
_INDEX_ROW: Final = np.dtype([("key_hash", "<i4"), ("physical_offset", "<i8"), ("store_timestamp_ms", "<i8")])


class _QueueRows(msgspec.Struct, array_like=True):
    """`QueueEntries` as they are written down; a pickle could do anything when it is read."""

    topic: bytes
    queue_id: int
    is_batch: bool
    columns: tuple[bytes, ...]


_QUEUES: Final = msgspec.msgpack.Decoder(list[_QueueRows])
_COLUMNS: Final = ("<i8", "<i8", "<i4", "<i8", "<i8", "<i4", "?")
"""Types of the columns of `QueueEntries`, in order."""
_LENGTH_BYTES: Final = 8


def bucket_of(topic: str, queue_id: int) -> int:
    """The bucket of a queue, the same on every machine."""
    return zlib.crc32(f"{topic}/{queue_id}".encode("utf-8", "surrogatepass")) % BUCKETS


def attempt_directory(parent: Path, name: str) -> Path:
    """A new folder for one attempt at some work: another one, given up for dead, may still write into its own.

    Raises:
        WriteError: it cannot be made.
    """
    with reported(parent):
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))


@dataclass(frozen=True)
class DispatchResult:
    """Where the entries of a split were written.

    Attributes:
        folder: holds them.
        byte_count: of its files.
        read: all that was read of the split, without its entries; None where that is nothing.
        bad: what ended it early.
        buckets: how many lists of entries for queues each bucket has.
        index_count: entries for the index.
        ends_without: whether a record without such an entry follows the last one, or is all there is.
    """

    folder: Path
    byte_count: int
    read: ReadRows | None
    bad: Bad | None
    buckets: dict[int, int]
    index_count: int
    ends_without: bool

    def queue_entries(self, bucket: int) -> Iterator[list[QueueEntries]]:
        """Entries of a bucket's queues, in the order of the log.

        Raises:
            UnreadableError: they are not what was written.
        """
        count = self.buckets.get(bucket, 0)
        if not count:
            return
        place = _bucket_place(self.folder, bucket)
        try:
            with place.open("rb") as file:
                for _ in range(count):
                    length = int.from_bytes(file.read(_LENGTH_BYTES), "big")
                    yield [_entries(rows) for rows in _QUEUES.decode(file.read(length))]
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{place}: not what was written ({error})") from error

    def index_entries(self, first: int, count: int) -> IndexEntries:
        """Some of the entries for the index.

        Raises:
            UnreadableError: they are not what was written.
        """
        place = _index_place(self.folder)
        try:
            rows = np.fromfile(place, _INDEX_ROW, count, offset=first * _INDEX_ROW.itemsize)
        except OSError as error:
            raise UnreadableError(f"{place}: {reason(error)}") from error
        if rows.size != count:
            raise UnreadableError(f"{place}: shorter than it was written")
        hashes, offsets, times_ms = (np.ascontiguousarray(rows[name]) for name in _INDEX_ROW.names or ())
        return IndexEntries(hashes, offsets, times_ms, ends_without=False)


@dataclass(frozen=True)
class DispatchTask:
    """Dispatches any split of a log into a folder of its own.

    Attributes:
        data_bytes: of the whole log.
        folder: where the folders lie, which whoever reads them sees too.
    """

    setup: BuildContext
    options: ScanOptions
    data_bytes: int
    folder: Path

    def __call__(self, split: Split) -> DispatchResult:
        """Dispatch a split.

        Raises:
            WriteError: the folder does not take the files.
        """
        request, dispatching = self.setup.request, self.setup.dispatching
        reading = LogReading(LogPlan((split,), self.data_bytes), self.options, request.log_end, dispatching)
        folder = attempt_directory(self.folder, f"{split.physical_offset:020d}")
        files, read = _PieceFiles(folder, self.setup.queue_filter), None
        with reported(folder):
            for rows in reading.rows():
                assert rows.entries is not None
                files.take(rows.entries)
                read = _joined(read, rows)
            files.write_queues()
        return DispatchResult(
            folder,
            files.byte_count,
            read,
            reading.bad,
            dict(files.buckets),
            files.index_count,
            files.ends_without,
        )


class _PieceFiles:
    """The files of one split, while they are written."""

    def __init__(self, folder: Path, wants: Callable[[str, int], bool] | None) -> None:
        self._folder = folder
        self._wants = wants
        self._held: dict[TypedQueueKey, list[QueueEntries]] = {}
        self._held_rows = 0
        self.byte_count = 0
        self.buckets = Counter[int]()
        self.index_count = 0
        self.ends_without = False

    def take(self, entries: DerivedEntries) -> None:
        """Write entries down; those of queues once there are many."""
        for group in entries.queues:
            self._held.setdefault((group.topic, group.queue_id, group.is_batch), []).append(group)
        self._held_rows += entries.row_count
        if self._held_rows >= HELD_ROWS_MAX:
            self.write_queues()
        if entries.index is not None:
            self._write_index(entries.index)

    def write_queues(self) -> None:
        """Write the entries of queues that are held."""
        by_bucket: dict[int, list[QueueEntries]] = {}
        for (name, queue_id, _), parts in self._held.items():
            topic = decode_java_utf8(name)
            if self._wants is not None and self._wants(topic, queue_id):
                by_bucket.setdefault(bucket_of(topic, queue_id), []).append(joined_entries(parts))
        for bucket, queues in by_bucket.items():
            text = msgspec.msgpack.encode([_queue_rows(entries) for entries in queues])
            self._append(_bucket_place(self._folder, bucket), len(text).to_bytes(_LENGTH_BYTES, "big") + text)
            self.buckets[bucket] += 1
        self._held, self._held_rows = {}, 0

    def _write_index(self, entries: IndexEntries) -> None:
        count = entries.key_hashes.size
        self.ends_without = entries.ends_without or (self.ends_without and not count)
        rows = np.empty(count, _INDEX_ROW)
        rows["key_hash"] = entries.key_hashes
        rows["physical_offset"] = entries.physical_offsets
        rows["store_timestamp_ms"] = entries.store_timestamps_ms
        self._append(_index_place(self._folder), rows.tobytes())
        self.index_count += count

    def _append(self, place: Path, data: bytes) -> None:
        with place.open("ab") as file:
            file.write(data)
        self.byte_count += len(data)


def _bucket_place(folder: Path, bucket: int) -> Path:
    return folder / f"queues-{bucket}"


def _index_place(folder: Path) -> Path:
    return folder / "index"


def _queue_rows(entries: QueueEntries) -> _QueueRows:
    typed = zip(entries[3:], _COLUMNS, strict=True)
    columns = tuple(np.asarray(column, kind).tobytes() for column, kind in typed)
    return _QueueRows(entries.topic, int(entries.queue_id), bool(entries.is_batch), columns)


def _entries(rows: _QueueRows) -> QueueEntries:
    typed = zip(rows.columns, _COLUMNS, strict=True)
    return QueueEntries(
        rows.topic, rows.queue_id, rows.is_batch, *(np.frombuffer(bytearray(col), kind) for col, kind in typed)
    )


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
        before.first_ms if before.first_ms is not None else after.first_ms,
        max(before.newest_ms, after.newest_ms),
        before.tombstones,
    )

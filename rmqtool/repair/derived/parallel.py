"""Writes queues and index with a runner: splits of the log are dispatched, and share by share is written from that.

What a file of the log puts into queues and index is written down, so that a runner may work it out elsewhere; what
comes into a store depends on nothing but the entries in the order of the log. Queues are told apart into buckets, each
of which is read again by whoever writes its queues; entries of the index lie one after the other, so that those of one
index file can be read alone.

A share is some queues, or one file of the index. Which entries an index file takes is known from how many there are in
front of it, so no share waits for another one, and each file is written by one task from its start to its end.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rmqtool.engine.dispatch import index_writer
from rmqtool.engine.dispatch.derived_writer import HELD_ROWS_MAX, DerivedEntries
from rmqtool.engine.dispatch.index_entries import IndexEntries
from rmqtool.engine.dispatch.index_writer import DIRECTORY, IndexWriter, OpenIndexFile, possible_times
from rmqtool.engine.dispatch.queue_entries import QueueEntries, joined_entries
from rmqtool.errors import UnreadableError
from rmqtool.formats.index import IndexHeader, file_size
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import TypedQueueKey
from rmqtool.repair.derived.builder import BuildContext, QueueIndexBuilder
from rmqtool.repair.derived.gap_queue_writer import RecordOffsets
from rmqtool.repair.derived.log_pass import Bad, LogReading, ReadRows
from rmqtool.repair.derived.result import BuiltQueues
from rmqtool.scan.log import RecordTable, ScanOptions
from rmqtool.scan.runner import OnProgress, Runner
from rmqtool.scan.split import Split
from rmqtool.store.sink import DirectorySink, reported
from rmqtool.store.source import reason

BUCKETS: Final = 32
_INDEX_ROW: Final = np.dtype([("key_hash", "<i4"), ("physical_offset", "<i8"), ("store_timestamp_ms", "<i8")])


class _QueueRows(msgspec.Struct, array_like=True):
    """`QueueEntries` in a temporary file; not a pickle, which could run code when it is read."""

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
        """Entries of a bucket's queues, in the order of the log."""
        count = self.buckets.get(bucket, 0)
        if not count:
            return
        place = self.folder / f"queues-{bucket}"
        try:
            with place.open("rb") as file:
                for _ in range(count):
                    length = int.from_bytes(file.read(_LENGTH_BYTES), "big")
                    yield [_entries(rows) for rows in _QUEUES.decode(file.read(length))]
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{place}: not what was written ({error})") from error

    def index_entries(self, first: int, count: int) -> IndexEntries:
        """Some of the entries for the index."""
        place = self.folder / "index"
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
        folder: where the folders lie, which whoever reads them sees too.
    """

    setup: BuildContext
    scan: ScanOptions
    folder: Path

    def __call__(self, split: Split) -> DispatchResult:
        request, dispatching = self.setup.request, self.setup.dispatching
        reading = LogReading(RecordTable((split,), self.scan), request.log_end, dispatching)
        folder = attempt_directory(self.folder, f"{split.physical_offset:020d}")
        files, read = _PieceFiles(folder, self.setup.queue_filter), None
        with reported(folder):
            for rows in reading.rows():
                assert rows.entries is not None
                files.take(rows.entries)
                read = _joined(read, rows)
            files.write_queues()
        buckets = dict(files.buckets)
        return DispatchResult(
            folder, files.byte_count, read, reading.bad, buckets, files.index_count, files.ends_without
        )


class _PieceFiles:
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
        if entries.index is None:
            return
        count = entries.index.key_hashes.size
        self.ends_without = entries.index.ends_without or (self.ends_without and not count)
        rows = np.empty(count, _INDEX_ROW)
        rows["key_hash"] = entries.index.key_hashes
        rows["physical_offset"] = entries.index.physical_offsets
        rows["store_timestamp_ms"] = entries.index.store_timestamps_ms
        self._append(self._folder / "index", rows.tobytes())
        self.index_count += count

    def write_queues(self) -> None:
        by_bucket: dict[int, list[QueueEntries]] = {}
        for (name, queue_id, _), parts in self._held.items():
            topic = decode_java_utf8(name)
            if self._wants is not None and self._wants(topic, queue_id):
                by_bucket.setdefault(bucket_of(topic, queue_id), []).append(joined_entries(parts))
        for bucket, queues in by_bucket.items():
            rows = []
            for entries in queues:
                typed = zip(entries[3:], _COLUMNS, strict=True)
                columns = tuple(np.asarray(column, kind).tobytes() for column, kind in typed)
                rows.append(_QueueRows(entries.topic, int(entries.queue_id), bool(entries.is_batch), columns))
            text = msgspec.msgpack.encode(rows)
            self._append(self._folder / f"queues-{bucket}", len(text).to_bytes(_LENGTH_BYTES, "big") + text)
            self.buckets[bucket] += 1
        self._held, self._held_rows = {}, 0

    def _append(self, place: Path, data: bytes) -> None:
        with place.open("ab") as file:
            file.write(data)
        self.byte_count += len(data)


def _entries(rows: _QueueRows) -> QueueEntries:
    typed = zip(rows.columns, _COLUMNS, strict=True)
    return QueueEntries(
        rows.topic, rows.queue_id, rows.is_batch, *(np.frombuffer(bytearray(col), kind) for col, kind in typed)
    )


def _joined(before: ReadRows | None, after: ReadRows) -> ReadRows:
    """Rows of two parts as one, without entries."""
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


BLOCK_ENTRIES: Final = 1 << 18


class IndexTask(NamedTuple):
    """One file of the index: the entries from a number on, up to another; numbers count all entries, from 0."""

    number: int
    first: int
    stop: int


Share = int | IndexTask
"""A bucket, of which all queues are written, or a file of the index."""


@dataclass(frozen=True)
class _PieceEntries:
    """Entries of one split, from a number in it on, that follow those of the splits before."""

    split: DispatchResult
    skipped: int
    count: int


class TaskResult(NamedTuple):
    """A finished task: the folder of its files, the result of its queues, the end of its index file."""

    folder: Path
    queues: BuiltQueues
    reached_ms: int = 0


@dataclass(frozen=True)
class BuildTask:
    """Builds any share, in a folder of its own.

    Attributes:
        folder: where the folders lie, which all machines see.
        index: all entries for the index, in the order of the log.
    """

    setup: BuildContext
    folder: Path
    splits: tuple[DispatchResult, ...]
    index: tuple[_PieceEntries, ...]
    log: RecordOffsets

    def __call__(self, share: Share) -> TaskResult:
        folder = attempt_directory(self.folder, "share")
        if isinstance(share, int):
            return TaskResult(folder, self._queues(share, folder))
        return TaskResult(folder, BuiltQueues(), self._index_file(share, folder))

    def _queues(self, bucket: int, folder: Path) -> BuiltQueues:
        queue_filter = self.setup.queue_filter
        assert queue_filter is not None

        def wants(topic: str, queue_id: int) -> bool:
            return bucket_of(topic, queue_id) == bucket and queue_filter(topic, queue_id)

        with DirectorySink(folder) as sink:
            building = QueueIndexBuilder(self.setup, sink, self.log, wants)
            for split in self.splits:
                for queues in split.queue_entries(bucket):
                    rows = sum(entries.physical_offsets.size for entries in queues)
                    building.writer.put_entries(DerivedEntries(queues, None, rows))
            return building.finish()

    def _index_file(self, share: IndexTask, folder: Path) -> int:
        slots, entries = self.setup.index_shape
        header = IndexHeader()
        for count in (1, share.first):  # nearly always the last one tells the time
            for before in self._index_between(max(0, share.first - count), share.first):
                times_ms = possible_times(before.store_timestamps_ms)
                last_ms = int(times_ms[-1]) if times_ms.size else header.end_timestamp_ms
                last_offset = int(before.physical_offsets[-1])
                header = index_writer.carried_header(
                    replace(header, end_timestamp_ms=last_ms, end_physical_offset=last_offset)
                )
            if header.end_timestamp_ms:
                break
        with DirectorySink(folder) as sink:
            file = OpenIndexFile(f"{DIRECTORY}/{share.number}", header, np.zeros(slots, np.int32))
            sink.create(file.path, file_size(slots, entries))
            writer = IndexWriter(sink, slots, entries, self.setup.rules, lambda: 0, file, passes_over_times=True)
            for some in self._index_between(share.first, share.stop):
                writer.put(some)
            writer.finish(clean=True)
        return file.header.end_timestamp_ms

    def _index_between(self, first: int, stop: int) -> Iterator[IndexEntries]:
        """Entries for the index from a number on, up to another, some at a time."""
        number = 0
        for piece in self.index:
            begin, end = max(first - number, 0), min(stop - number, piece.count)
            for at in range(begin, end, BLOCK_ENTRIES):
                yield piece.split.index_entries(piece.skipped + at, min(BLOCK_ENTRIES, end - at))
            number += piece.count


def build_in_parallel(
    setup: BuildContext,
    directory: Path,
    splits: tuple[DispatchResult, ...],
    log: RecordOffsets,
    runner: Runner,
    folder: Path,
    on_progress: OnProgress,
) -> BuiltQueues:
    """Write all that is wanted into a directory.

    Args:
        splits: of the log, in its order.
        folder: on the same file system; for what is not finished yet. Whoever calls removes it.
        on_progress: is told the shares that are done, and how many there are.
    """
    times_ms = (split.read.first_ms for split in splits if split.read is not None)
    began_ms = next((time_ms for time_ms in times_ms if time_ms is not None), 0)
    splits = tuple(replace(split, read=None) for split in splits)  # what was read is no use to a share
    index = tuple(_index_entries(splits)) if setup.request.index else ()
    work = BuildTask(setup, folder, splits, index, log)
    index_shares = _index_shares(setup, splits, index) if setup.request.index else ()
    # Files of the index first: they take longest.
    shares: list[Share] = [*index_shares, *sorted(_buckets(setup, splits))]
    built, last = BuiltQueues(), ""
    on_progress(0, len(shares) or 1)
    for number, (share, done) in enumerate(zip(shares, runner.map(work, shares), strict=True), 1):
        on_progress(number, len(shares))
        built.add(done.queues)
        if isinstance(share, int):
            for place in [path for path in done.folder.rglob("*") if path.is_file()]:
                _move(place, directory / place.relative_to(done.folder))
        else:
            # A file is named by the time up to which the one before reaches.
            last = index_writer.path_behind(last, began_ms)
            _move(done.folder / DIRECTORY / str(share.number), directory / last)
            began_ms = done.reached_ms
    return built


def _buckets(setup: BuildContext, splits: Sequence[DispatchResult]) -> set[int]:
    """Buckets with entries, or with queues of which the log may have no record any more."""
    if setup.request.queue is None:
        return set()
    names = (*setup.store.queues, *setup.store.batch_queues) if setup.store.log_start else ()
    return {bucket_of(*name) for name in names}.union(*(split.buckets for split in splits))


def _index_entries(splits: Sequence[DispatchResult]) -> Iterator[_PieceEntries]:
    """All entries. Where files of the log overlap, a broker leaves out the records below the last one it entered."""
    highest = 0
    for split in splits:
        if not split.index_count:
            continue
        offsets = split.index_entries(0, 1).physical_offsets
        skipped = 0
        if int(offsets[0]) < highest:
            offsets = split.index_entries(0, split.index_count).physical_offsets
            skipped = int(np.searchsorted(offsets, highest))
        if skipped < split.index_count:
            yield _PieceEntries(split, skipped, split.index_count - skipped)
            highest = int(split.index_entries(split.index_count - 1, 1).physical_offsets[0])


def _index_shares(
    setup: BuildContext, splits: Sequence[DispatchResult], index: Sequence[_PieceEntries]
) -> Iterator[IndexTask]:
    """A task for each file. A broker makes room for a record's entries before it checks if it has any."""
    room, count = setup.index_shape[1] - 1, sum(piece.count for piece in index)
    number = 0
    for number, first in enumerate(range(0, count, room), 1):
        yield IndexTask(number - 1, first, min(count, first + room))
    if count % room:
        return
    entered = {piece.split.folder for piece in index}
    ends_without = False  # whether a record without an entry follows the last one that has some
    for split in splits:
        left_out = split.index_count > 0 and split.folder not in entered
        ends_without = left_out or split.ends_without or (ends_without and split.folder not in entered)
    if ends_without:
        yield IndexTask(number, count, count)


def _move(place: Path, target: Path) -> None:
    with reported(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        place.rename(target)

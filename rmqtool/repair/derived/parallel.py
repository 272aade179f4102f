"""Writes queues and index with a runner, share by share, from what splits of the log were dispatched into.

A share is some queues, or one file of the index. Which entries an index file takes is known from how many there are in
front of it, so no share waits for another one, and each file is written by one task from its start to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.derived_writer import DerivedEntries
from rmqtool.engine.dispatch.index_entries import IndexEntries
from rmqtool.engine.dispatch.index_writer import (
    DIRECTORY,
    IndexWriter,
    OpenIndexFile,
    carried_header,
    path_behind,
    possible_times,
)
from rmqtool.formats.index import IndexHeader, file_size
from rmqtool.repair.derived.builder import BuildContext, QueueIndexBuilder
from rmqtool.repair.derived.gap_queue_writer import RecordOffsets
from rmqtool.repair.derived.result import BuiltQueues
from rmqtool.repair.derived.segment_dispatch import DispatchResult, attempt_directory, bucket_of
from rmqtool.scan.runner import OnProgress, Runner
from rmqtool.store.sink import DirectorySink, reported

BLOCK_ENTRIES: Final = 1 << 18


class QueueTask(NamedTuple):
    """All queues of a bucket."""

    bucket: int


class IndexTask(NamedTuple):
    """One file of the index: the entries from a number on, up to another; numbers count all entries, from 0."""

    number: int
    first: int
    stop: int


Share = QueueTask | IndexTask


@dataclass(frozen=True)
class _PieceEntries:
    """Entries of one split, from a number in it on, that follow those of the splits before."""

    split: DispatchResult
    skipped: int
    count: int


@dataclass(frozen=True)
class IndexEntriesOfLog:
    """All entries for the index, in the order of the log."""

    of_splits: tuple[_PieceEntries, ...] = ()

    @property
    def count(self) -> int:
        return sum(split_entries.count for split_entries in self.of_splits)

    def between(self, first: int, stop: int) -> Iterator[IndexEntries]:
        """Entries from a number on, up to another, some at a time."""
        number = 0
        for split_entries in self.of_splits:
            begin, end = max(first - number, 0), min(stop - number, split_entries.count)
            for at in range(begin, end, BLOCK_ENTRIES):
                yield split_entries.split.index_entries(split_entries.skipped + at, min(BLOCK_ENTRIES, end - at))
            number += split_entries.count


class TaskResult(NamedTuple):
    """A share that is built: the folder of its files, what came of its queues, up to where its index file reaches."""

    folder: Path
    queues: BuiltQueues
    reached_ms: int = 0


@dataclass(frozen=True)
class BuildTask:
    """Builds any share, in a folder of its own.

    Attributes:
        folder: where the folders lie, which all machines see.
    """

    setup: BuildContext
    folder: Path
    splits: tuple[DispatchResult, ...]
    index: IndexEntriesOfLog
    log: RecordOffsets

    def __call__(self, share: Share) -> TaskResult:
        """Build a share.

        Raises:
            UnreadableError: the start of a queue, or what was dispatched, may not be read.
            WriteError: the folder does not take it.
        """
        folder = attempt_directory(self.folder, "share")
        if isinstance(share, QueueTask):
            return TaskResult(folder, self._queues(share.bucket, folder))
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
            for before in self.index.between(max(0, share.first - count), share.first):
                times_ms = possible_times(before.store_timestamps_ms)
                last_ms = int(times_ms[-1]) if times_ms.size else header.end_timestamp_ms
                last_offset = int(before.physical_offsets[-1])
                header = carried_header(replace(header, end_timestamp_ms=last_ms, end_physical_offset=last_offset))
            if header.end_timestamp_ms:
                break
        with DirectorySink(folder) as sink:
            file = OpenIndexFile(f"{DIRECTORY}/{share.number}", header, np.zeros(slots, np.int32))
            sink.create(file.path, file_size(slots, entries))
            writer = IndexWriter(sink, slots, entries, self.setup.rules, lambda: 0, file, passes_over_times=True)
            for some in self.index.between(share.first, share.stop):
                writer.put(some)
            writer.finish(clean=True)
        return file.header.end_timestamp_ms


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

    Raises:
        UnreadableError: the start of a queue, or what was dispatched, may not be read.
        WriteError: the directory does not take it.
    """
    began_ms = _first_ms(splits)
    splits = tuple(replace(split, read=None) for split in splits)  # what was read is no use to a share
    index = _index_entries(splits) if setup.request.index else IndexEntriesOfLog()
    work = BuildTask(setup, folder, splits, index, log)
    queue_shares = [QueueTask(bucket) for bucket in sorted(_buckets(setup, splits))]
    index_shares = _index_shares(setup, splits, index) if setup.request.index else ()
    shares: list[Share] = [*index_shares, *queue_shares]  # files of the index first: they take longest
    built, last = BuiltQueues(), ""
    on_progress(0, len(shares) or 1)
    for number, (share, done) in enumerate(zip(shares, runner.map(work, shares), strict=True), 1):
        on_progress(number, len(shares))
        built.add(done.queues)
        if isinstance(share, QueueTask):
            for place in [path for path in done.folder.rglob("*") if path.is_file()]:
                _move(place, directory / place.relative_to(done.folder))
        else:
            # A file is named by the time up to which the one before reaches.
            last = path_behind(last, began_ms)
            _move(done.folder / DIRECTORY / str(share.number), directory / last)
            began_ms = done.reached_ms
    return built


def _buckets(setup: BuildContext, splits: Sequence[DispatchResult]) -> set[int]:
    """Those with entries, or with queues of which the log may have no record any more."""
    if setup.request.queue is None:
        return set()
    there = (
        {bucket_of(*name) for name in (*setup.store.queues, *setup.store.batch_queues)}
        if setup.store.log_start
        else set()
    )
    return there.union(*(split.buckets for split in splits))


def _index_entries(splits: Sequence[DispatchResult]) -> IndexEntriesOfLog:
    """All entries. Where files of the log overlap, a broker leaves out the records below the last one it entered."""
    of_splits, highest = [], 0
    for split in splits:
        if not split.index_count:
            continue
        offsets = split.index_entries(0, 1).physical_offsets
        skipped = 0
        if int(offsets[0]) < highest:
            offsets = split.index_entries(0, split.index_count).physical_offsets
            skipped = int(np.searchsorted(offsets, highest))
        if skipped < split.index_count:
            of_splits.append(_PieceEntries(split, skipped, split.index_count - skipped))
            highest = int(split.index_entries(split.index_count - 1, 1).physical_offsets[0])
    return IndexEntriesOfLog(tuple(of_splits))


def _index_shares(
    setup: BuildContext, splits: Sequence[DispatchResult], index: IndexEntriesOfLog
) -> Iterator[IndexTask]:
    """A share for each file. A broker makes room for a record's entries before it looks whether it has any."""
    room, count = setup.index_shape[1] - 1, index.count
    number = 0
    for number, first in enumerate(range(0, count, room), 1):
        yield IndexTask(number - 1, first, min(count, first + room))
    if count % room == 0 and _ends_without(splits, index):
        yield IndexTask(number, count, count)


def _ends_without(splits: Sequence[DispatchResult], index: IndexEntriesOfLog) -> bool:
    """Whether a record without an entry follows the last one that has some."""
    entered = {split_entries.split.folder for split_entries in index.of_splits}
    ends_without = False
    for split in splits:
        left_out = split.index_count > 0 and split.folder not in entered
        ends_without = left_out or split.ends_without or (ends_without and split.folder not in entered)
    return ends_without


def _first_ms(splits: Sequence[DispatchResult]) -> int:
    """Store time of the log's first message."""
    times_ms = (split.read.first_ms for split in splits if split.read is not None)
    return next((time_ms for time_ms in times_ms if time_ms is not None), 0)


def _move(place: Path, target: Path) -> None:
    with reported(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        place.rename(target)

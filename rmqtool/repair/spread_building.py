"""Writes queues and index with a runner, share by share, from what pieces of the log were dispatched into.

A share is some queues, or one file of the index. Which entries an index file takes is known from how many there are in
front of it, so no share waits for another one, and each file is written by one task from its begin to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.derived_writer import DerivedEntries
from rmqtool.engine.index_keys import IndexEntries
from rmqtool.engine.index_writer import (
    DIRECTORY,
    IndexHeader,
    IndexWriter,
    OpenIndexFile,
    carried_header,
    creation_name,
    next_name_ms,
)
from rmqtool.errors import WriteError
from rmqtool.formats.index import file_size
from rmqtool.repair.built import BuiltQueues
from rmqtool.repair.derived_building import DerivedBuilding, Setup
from rmqtool.repair.piece_dispatch import PieceDone, bucket_of
from rmqtool.repair.queue_building_writer import LogPlaces
from rmqtool.scan.runner import Runner
from rmqtool.store.sink import DirectorySink
from rmqtool.store.source import reason

BLOCK_ENTRIES: Final = 1 << 18


class QueueShare(NamedTuple):
    """All queues of a bucket."""

    bucket: int


class IndexShare(NamedTuple):
    """One file of the index: the entries from a number on, up to another; numbers count all entries, from 0."""

    number: int
    first: int
    stop: int


Share = QueueShare | IndexShare


@dataclass(frozen=True)
class _Stretch:
    """Entries of one piece, from a number in it on, that follow those of the pieces before."""

    piece: PieceDone
    skipped: int
    count: int


@dataclass(frozen=True)
class IndexEntriesOfLog:
    """All entries for the index, in the order of the log."""

    stretches: tuple[_Stretch, ...] = ()

    @property
    def count(self) -> int:
        return sum(found.count for found in self.stretches)

    def between(self, first: int, stop: int) -> Iterator[IndexEntries]:
        """Entries from a number on, up to another, some at a time."""
        number = 0
        for found in self.stretches:
            begin, end = max(first - number, 0), min(stop - number, found.count)
            for at in range(begin, end, BLOCK_ENTRIES):
                yield found.piece.index_entries(found.skipped + at, min(BLOCK_ENTRIES, end - at))
            number += found.count


@dataclass(frozen=True)
class BuildShare:
    """Builds any share.

    Attributes:
        directory: where queues go, which all machines see.
        folder: where index files go, for only their order is known to a share.
    """

    setup: Setup
    directory: Path
    folder: Path
    pieces: tuple[PieceDone, ...]
    index: IndexEntriesOfLog
    log: LogPlaces

    def __call__(self, share: Share) -> BuiltQueues | int:
        """Build a share: what came of the queues, or the time up to which the index file reaches.

        Raises:
            UnreadableError: the head of a queue may not be read.
            WriteError: the directory does not take it.
        """
        return self._queues(share.bucket) if isinstance(share, QueueShare) else self._index_file(share)

    def _queues(self, bucket: int) -> BuiltQueues:
        wanted = self.setup.wanted.queue
        assert wanted is not None

        def wants(topic: str, queue_id: int) -> bool:
            return bucket_of(topic, queue_id) == bucket and wanted(topic, queue_id)

        with DirectorySink(self.directory) as sink:
            building = DerivedBuilding(self.setup, sink, self.log, wants)
            for piece in self.pieces:
                for found in piece.queue_entries(bucket):
                    rows = sum(entries.physical_offsets.size for entries in found)
                    building.put(DerivedEntries(found, None, rows))
            return building.finish()

    def _index_file(self, share: IndexShare) -> int:
        slots, entries = self.setup.index_shape
        header = IndexHeader()
        for before in self.index.between(max(0, share.first - 1), share.first):
            said = before.store_timestamps_ms, before.physical_offsets
            last_ms, last_offset = (int(column[-1]) for column in said)
            header = carried_header(replace(header, end_timestamp_ms=last_ms, end_physical_offset=last_offset))
        with DirectorySink(self.folder) as sink:
            file = OpenIndexFile(_built_path(share.number), header, np.zeros(slots, np.int32))
            sink.create(file.path, file_size(slots, entries))
            writer = IndexWriter(sink, slots, entries, self.setup.rules, lambda: 0, file)
            for some in self.index.between(share.first, share.stop):
                writer.put(some)
            writer.finish(clean=True)
        return file.header.end_timestamp_ms


def spread_building(
    setup: Setup, directory: Path, pieces: tuple[PieceDone, ...], log: LogPlaces, runner: Runner, folder: Path
) -> BuiltQueues:
    """Write all that is wanted into a directory.

    Args:
        pieces: of the log, in its order.
        folder: on the same file system; for what is not finished yet.

    Raises:
        UnreadableError: the head of a queue may not be read.
        WriteError: the directory does not take it.
    """
    index = _index_entries(pieces) if setup.wanted.index else IndexEntriesOfLog()
    work = BuildShare(setup, directory.absolute(), folder, pieces, index, log)
    queue_shares = [QueueShare(bucket) for bucket in sorted(_buckets(setup, pieces))]
    index_shares = _index_shares(setup, pieces, index) if setup.wanted.index else ()
    shares: list[Share] = [*index_shares, *queue_shares]  # files of the index first: they take longest
    built, ends_ms = BuiltQueues(), list[int]()
    for found in runner.map(work, shares):
        if isinstance(found, BuiltQueues):
            built.add(found)
        else:
            ends_ms.append(found)
    _name_index_files(directory, folder, [_first_ms(pieces), *ends_ms][: len(ends_ms)])
    return built


def _buckets(setup: Setup, pieces: Sequence[PieceDone]) -> set[int]:
    """Those with entries, or with queues of which the log may have no record any more."""
    if setup.wanted.queue is None:
        return set()
    there = {bucket_of(*name) for name in (*setup.store.queues, *setup.store.batch_queues)} if setup.minimum else set()
    return there.union(*(piece.buckets for piece in pieces))


def _index_entries(pieces: Sequence[PieceDone]) -> IndexEntriesOfLog:
    """All entries. Where files of the log overlap, a broker leaves out the records below the last one it entered."""
    stretches, highest = [], 0
    for piece in pieces:
        if not piece.index_count:
            continue
        offsets = piece.index_entries(0, 1).physical_offsets
        skipped = 0
        if int(offsets[0]) < highest:
            offsets = piece.index_entries(0, piece.index_count).physical_offsets
            skipped = int(np.searchsorted(offsets, highest))
        if skipped < piece.index_count:
            stretches.append(_Stretch(piece, skipped, piece.index_count - skipped))
            highest = int(piece.index_entries(piece.index_count - 1, 1).physical_offsets[0])
    return IndexEntriesOfLog(tuple(stretches))


def _index_shares(setup: Setup, pieces: Sequence[PieceDone], index: IndexEntriesOfLog) -> Iterator[IndexShare]:
    """A share for each file. A broker makes room for a record's entries before it looks whether it has any."""
    room, count = setup.index_shape[1] - 1, index.count
    number = 0
    for number, first in enumerate(range(0, count, room), 1):
        yield IndexShare(number - 1, first, min(count, first + room))
    if count % room == 0 and _ends_without(pieces, index):
        yield IndexShare(number, count, count)


def _ends_without(pieces: Sequence[PieceDone], index: IndexEntriesOfLog) -> bool:
    """Whether a record without an entry follows the last one that has some."""
    entered = {found.piece.folder for found in index.stretches}
    ends_without = False
    for piece in pieces:
        left_out = piece.index_count > 0 and piece.folder not in entered
        ends_without = left_out or piece.ends_without or (ends_without and piece.folder not in entered)
    return ends_without


def _first_ms(pieces: Sequence[PieceDone]) -> int:
    """Store time of the log's first message."""
    return next((piece.read.first_ms for piece in pieces if piece.read is not None and piece.read.record_count), 0)


def _name_index_files(directory: Path, folder: Path, reached_ms: Sequence[int]) -> None:
    """Give index files their names: the time up to which the file before reaches."""
    name_ms = 0
    try:
        if reached_ms:
            (directory / DIRECTORY).mkdir(exist_ok=True)
        for number, time_ms in enumerate(reached_ms):
            name_ms = next_name_ms(time_ms, name_ms)
            (folder / _built_path(number)).rename(directory / DIRECTORY / creation_name(name_ms))
    except OSError as error:
        raise WriteError(f"{directory / DIRECTORY}: {reason(error)}") from error


def _built_path(number: int) -> str:
    return f"{DIRECTORY}/{number:017d}"

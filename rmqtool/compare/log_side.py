"""The log of a store as one side of a comparison, file by file; a manifest is the other kind of side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np

from rmqtool.compare.rows import (
    BAD,
    BLANK,
    BLOCK_SIZE,
    ROW,
    Array,
    Block,
    LogTotals,
    QueueNumbers,
    TopicTotal,
    block_of,
    low_bits,
    sum_of,
)
from rmqtool.engine.reading.resurrected_tail import ResurrectedTail, resurrected_tail
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.scan.digest import Digests, batch_digests
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split, whole_file
from rmqtool.scan.walk import Batch, Walk
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log
from rmqtool.store.source import ByteSource


class Span(NamedTuple):
    """Where a file of the log begins, as a physical offset, and its bytes."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class Terms:
    """Settings that both sides must share for their digests to be comparable."""

    by_content: bool = False
    block_size: int = BLOCK_SIZE


class BlockStream(Protocol):
    """The blocks of a file; `totals` are those of the file once all were taken."""

    totals: LogTotals

    def blocks(self) -> Iterator[Block]: ...


class LogSide(Protocol):
    """A log that is compared: files in order, none inside another, whose blocks have rows or digests only."""

    @property
    def files(self) -> Sequence[Span]: ...
    @property
    def has_rows(self) -> bool: ...

    def stream(self, number: int, numbers: QueueNumbers, terms: Terms) -> BlockStream:
        """The blocks of a file; `numbers` gives the rows their queue numbers."""

    def close(self, number: int) -> None:
        """Close a file that was read."""


class StoreLog:
    """The log of a store, as a `LogSide`; it pickles, if the store's view does. Sentences name files that could not be
    opened, and those that are no part of the log; the others are splits, to be walked.
    """

    has_rows = True

    def __init__(self, store: Store, *, compiled: bool | None = None) -> None:
        demand_plain_log(store)
        self.problems: list[str] = []
        self.left_out: list[str] = []
        files: list[LogFile] = []
        end = 0
        for segment in store.commitlog:
            if segment.start < end:
                self.left_out.append(f"{segment.path}: starts inside the file before it")
                continue
            try:
                store.view.open(segment.path).close()
            except UnreadableError as error:
                self.problems.append(str(error))
                continue
            files.append(LogFile(partial(store.view.open, segment.path), segment.start))
            end = segment.end
        table = RecordTable.of(files, ScanOptions(compiled=compiled), finds_crc=True)
        self.splits, self._scan = table.splits, table.scan
        self.record_crc = table.scan.record_crc
        self.files = tuple(Span(split.physical_offset, split.source.size) for split in self.splits)

    def walk(self, split: Split) -> Walk:
        return self._scan.walk(split)

    def stream(self, number: int, numbers: QueueNumbers, terms: Terms) -> FileBlocks:
        return FileBlocks(
            self.walk(self.splits[number]),
            numbers,
            terms.block_size,
            by_content=terms.by_content,
            record_crc=self.record_crc,
        )

    def close(self, number: int) -> None:
        self.splits[number].source.close()

    def equal_file(self, number: int, other: StoreLog, other_number: int) -> LogTotals | None:
        """Totals of a file that is the same in another log, byte for byte; None where it is not.

        The file is walked once, and no digest is made.
        """
        here, there = self.splits[number], other.splits[other_number]
        if self.files[number] != other.files[other_number] or here.more_follows != there.more_follows:
            return None
        if self.record_crc != other.record_crc:
            return None
        mirror = LockstepSource(here.source, there.source)
        walk = self.walk(whole_file(mirror, here.physical_offset, more_follows=here.more_follows))
        totals = LogTotals(begin=here.physical_offset)
        held = 0
        for batch in walk.batches():
            rows = batch.as_array()
            if not mirror.is_equal:
                return None
            if rows[0]["verdict"] == Verdict.STALE or not rows[0]["size"]:
                continue
            if rows[0]["verdict"] != Verdict.GOOD:
                held += 1
                totals.unreadable_bytes += unreadable_bytes(rows)
                totals.tail_bytes += int(rows["size"].sum())
                continue
            _end_damage(totals, held)
            held = 0
            totals.end = int(rows[-1]["physical_offset"] + rows[-1]["size"])
            totals.add_topics(topic_totals(rows, batch.topics, None))
        if here.more_follows and held:
            _end_damage(totals, held)
            totals.end = here.physical_offset + here.source.size
        return totals if mirror.finish() else None

    def tail(self) -> ResurrectedTail | None:
        """Old records at the end of the log that came back after a truncation; reads the last file with records."""
        if not self.splits:
            return None
        split = self.splits[-1]
        with closing(split.source):
            return resurrected_tail(lambda: self.walk(split).batches())

    def difference_from(self, physical_offset: int, other: StoreLog) -> int | None:
        """Physical offset of the first byte that differs in another log, from one that both have in a file on."""
        numbers = [
            next((at for at, span in enumerate(side.files) if span.start <= physical_offset < span.end), None)
            for side in (self, other)
        ]
        if numbers[0] is None or numbers[1] is None:
            return None
        here, there = self.splits[numbers[0]], other.splits[numbers[1]]
        if here.physical_offset != there.physical_offset:
            return None
        try:
            with closing(here.source), closing(there.source):
                position = first_difference(here.source, there.source, physical_offset - here.physical_offset)
        except OSError:
            return None
        return None if position is None else here.physical_offset + position


def _end_damage(totals: LogTotals, held: int) -> None:
    """Count bad ranges before a record as inside the log."""
    totals.bad_ranges += held
    totals.bad_bytes += totals.tail_bytes
    totals.tail_bytes = 0


# Reads two files at once and tells whether they are equal, byte for byte; the walk over one is then that of both.


_STEP: Final = 1 << 20


class LockstepSource:
    """A `ByteSource` with the bytes of the first file; `is_equal` while all that was read is so in the second one."""

    identity: ClassVar[None] = None

    def __init__(self, source: ByteSource, other: ByteSource) -> None:
        self._source = source
        self._other = other
        self._buffer = bytearray()
        self._compared_to = 0
        self.name = source.name
        self.size = source.size
        self.is_equal = source.size == other.size

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = self._source.read_into(position, buffer)
        # A read that leaves something out proves nothing about what it left out: `finish` looks at that.
        if self.is_equal and position <= self._compared_to < position + count:
            self._compare(position, buffer[:count])
            self._compared_to = position + count
        return count

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self._source.extents(start, end)

    def finish(self) -> bool:
        """Compare the rest; return True if the files are equal."""
        buffer = memoryview(bytearray(_STEP))
        for start, end in sorted(
            [*self._source.extents(self._compared_to, self.size), *self._other.extents(self._compared_to, self.size)]
        ):
            at = max(start, self._compared_to)
            while at < end and self.is_equal:
                step = buffer[: min(_STEP, end - at)]
                try:
                    if self._source.read_into(at, step) < len(step):
                        self.is_equal = False
                except OSError:
                    self.is_equal = False
                self._compare(at, step)
                at += len(step)
            self._compared_to = max(self._compared_to, end)
        return self.is_equal

    def close(self) -> None:
        self._source.close()
        self._other.close()

    def _compare(self, position: int, here: memoryview) -> None:
        if len(self._buffer) < len(here):
            self._buffer = bytearray(len(here))
        there = memoryview(self._buffer)[: len(here)]
        try:
            self.is_equal &= self._other.read_into(position, there) == len(here) and equal_bytes(here, there)
        except OSError:
            self.is_equal = False


def equal_bytes(one: memoryview, other: memoryview) -> bool:
    """True if two chunks of memory of one length hold the same bytes."""
    whole = len(one) // 8 * 8
    words = np.frombuffer(one[:whole], np.uint64), np.frombuffer(other[:whole], np.uint64)
    return bool((words[0] == words[1]).all()) and bytes(one[whole:]) == bytes(other[whole:])


def first_difference(source: ByteSource, other: ByteSource, start: int) -> int | None:
    """First position from `start` on that differs, or only one file has; None if there is none. OSError of disks."""
    buffers = memoryview(bytearray(_STEP)), memoryview(bytearray(_STEP))
    at = start
    while True:
        counts = source.read_into(at, buffers[0]), other.read_into(at, buffers[1])
        length = min(counts)
        differing = np.flatnonzero(np.frombuffer(buffers[0], np.uint8) != np.frombuffer(buffers[1], np.uint8))
        if differing.size and differing[0] < length:
            return at + int(differing[0])
        if length < _STEP:
            return at + length if counts[0] != counts[1] else None
        at += length


# One file of a log as blocks of rows with digests, made while it is walked, without what lies after the log's end.


_DENSE_MAX: Final = 1 << 20
"""Pairs of topic and queue id up to which a table over all of them is cheaper than sorting."""


class FileBlocks:
    """The blocks of one file, and its totals, once all were taken; `numbers` gives the rows their queue numbers."""

    def __init__(
        self, walk: Walk, numbers: QueueNumbers, block_size: int, *, by_content: bool, record_crc: bool
    ) -> None:
        self._walk = walk
        self._numbers = numbers
        self._block_size = block_size
        self._by_content = by_content
        self._record_crc = record_crc
        self._parts: list[Array] = []
        self.totals = LogTotals(begin=walk.split.physical_offset)

    def blocks(self) -> Iterator[Block]:
        """Walk the file. Bad ranges after the last record are no part of the log any more, if no file follows."""
        held: list[Array] = []
        for batch in self._walk.batches():
            rows = batch.as_array()
            # A batch is of one kind: good records, or one bad range, or all of it after the log's end.
            if rows[0]["verdict"] == Verdict.STALE or not rows[0]["size"]:
                continue
            digests = batch_digests(batch, rows, by_content=self._by_content, record_crc=self._record_crc)
            kept_rows = self._rows(batch, rows, digests)
            if rows[0]["verdict"] != Verdict.GOOD:
                held.append(kept_rows)
                self.totals.unreadable_bytes += unreadable_bytes(rows)
                continue
            for waiting in held:
                yield from self._take(waiting)
            held.clear()
            self.totals.add_topics(topic_totals(rows, batch.topics, digests.identity + digests.content))
            yield from self._take(kept_rows)
        for waiting in held:
            if self._walk.split.more_follows:
                yield from self._take(waiting)
            else:
                self.totals.tail_bytes += int(waiting["size"].sum(dtype=np.int64))
        yield from self._cut()

    def _rows(self, batch: Batch, rows: Array, digests: Digests) -> Array:
        digest_rows = np.zeros(len(rows), ROW)
        digest_rows["identity"] = digests.identity
        digest_rows["content"] = low_bits(digests.content)
        digest_rows["whole"] = digests.whole
        for name in ("physical_offset", "queue_offset", "size"):
            digest_rows[name] = rows[name]
        good = rows["verdict"] == Verdict.GOOD
        messages = good & (rows["magic"] != commitlog.MAGIC_BLANK)
        digest_rows["queue"] = np.where(good, BLANK, BAD - rows["verdict"])
        digest_rows["queue"][messages] = self._queue_numbers(batch.topics, rows[messages])
        return digest_rows

    def _queue_numbers(self, topics: Sequence[bytes], rows: Array) -> Array:
        if not len(rows):
            return np.zeros(0, np.int32)
        topic_numbers, queue_ids = rows["topic_number"].astype(np.int64), rows["queue_id"].astype(np.int64)
        lowest, span = int(queue_ids.min()), int(np.ptp(queue_ids)) + 1
        keys = topic_numbers * span + (queue_ids - lowest)
        if len(topics) * span <= _DENSE_MAX:
            present = np.zeros(len(topics) * span, np.bool_)
            present[keys] = True
            distinct = np.flatnonzero(present)
            places = np.zeros(present.size, np.int32)
            places[distinct] = np.arange(distinct.size)
            at = places[keys]
        else:
            distinct, at = np.unique(keys, return_inverse=True)
        named = ((topics[key // span], key % span + lowest) for key in distinct.tolist())
        queue_numbers: Array = self._numbers.translation(named)[at]
        return queue_numbers

    def _take(self, rows: Array) -> Iterator[Block]:
        """Add rows to the current block; yield the blocks that are complete by that."""
        bad = rows["queue"] <= BAD
        if bad.any():
            self.totals.bad_ranges += int(bad.sum())
            self.totals.bad_bytes += int(rows["size"][bad].sum(dtype=np.int64))
        self.totals.end = int(rows[-1]["physical_offset"] + rows[-1]["size"])
        numbers = rows["physical_offset"] // self._block_size
        if self._parts and numbers[0] != self._parts[-1][-1]["physical_offset"] // self._block_size:
            yield from self._cut()
        starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(rows)]
        for number, (start, end) in enumerate(pairwise(starts)):
            if number:
                yield from self._cut()
            self._parts.append(rows[start:end])

    def _cut(self) -> Iterator[Block]:
        if self._parts:
            rows = self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)
            self._parts = []
            yield block_of(rows, sum_of(rows["whole"]))


def topic_totals(rows: Array, topics: Sequence[bytes], digests: Array | None) -> dict[bytes, TopicTotal]:
    """Totals of the messages among the rows of a scan; without digests theirs is not known."""
    messages = (rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)
    numbers = rows["topic_number"][messages]
    counts = np.bincount(numbers, minlength=1)
    sizes = np.bincount(numbers, rows["size"][messages], minlength=1)
    sums = np.zeros(counts.size, np.uint64)
    if digests is not None:
        np.add.at(sums, numbers, digests[messages])
    return {
        topics[number]: TopicTotal(
            int(counts[number]), int(sizes[number]), None if digests is None else int(sums[number])
        )
        for number in np.flatnonzero(counts).tolist()
    }


def unreadable_bytes(rows: Array) -> int:
    """Bytes of ranges that the disk did not give."""
    return int(rows["size"][rows["verdict"] == Verdict.UNREADABLE_RANGE].sum(dtype=np.int64))

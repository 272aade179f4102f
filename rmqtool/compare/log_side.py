"""The log of a store as one side of a comparison, file by file; a manifest is the other kind of side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from rmqtool.compare.lockstep import LockstepSource, first_difference
from rmqtool.compare.log_blocks import FileBlocks, topic_totals, unreadable_bytes
from rmqtool.compare.rows import BLOCK_SIZE, Block, LogTotals, QueueNumbers
from rmqtool.engine.reading.resurrected_tail import ResurrectedTail, resurrected_tail
from rmqtool.errors import UnreadableError
from rmqtool.scan.log import LogFile, LogPlan, ScanOptions, carries_record_crc, plan_log, reader_for, walk_split
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split, whole_file
from rmqtool.scan.walk import Walk
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log


class Span(NamedTuple):
    """Where a file of the log begins, as a physical offset, and its bytes."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class Terms:
    """What both sides must have in common for their digests to be comparable."""

    by_content: bool = False
    block_size: int = BLOCK_SIZE


class BlockStream(Protocol):
    """The blocks of a file; `totals` are those of the file once all were taken."""

    totals: LogTotals

    def blocks(self) -> Iterator[Block]: ...


class LogSide(Protocol):
    """A log that is compared.

    Attributes:
        files: in order, none inside another.
        has_rows: whether blocks have rows.
    """

    @property
    def files(self) -> Sequence[Span]: ...
    @property
    def has_rows(self) -> bool: ...

    def stream(self, number: int, numbers: QueueNumbers, terms: Terms) -> BlockStream:
        """The blocks of a file; `numbers` gives the rows their queue numbers."""

    def close(self, number: int) -> None:
        """Close a file that was read."""


class StoreLog:
    """The log of a store. See `LogSide`; it pickles, if the store's view does.

    Attributes:
        problems: files that could not be opened, as sentences.
        left_out: files that are no part of the log, as sentences.
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
        self._plan: LogPlan = plan_log(files)
        self.record_crc = carries_record_crc(self._plan.splits)
        self._compiled = compiled
        self.files = tuple(Span(split.physical_offset, split.source.size) for split in self._plan.splits)

    def split(self, number: int) -> Split:
        """A file to walk."""
        return self._plan.splits[number]

    def walk(self, split: Split) -> Walk:
        """The walk of a split of this log."""
        # Chosen where the walk is made, which may be another machine than the one that planned it.
        make_reader = reader_for(self._plan.data_bytes, self._compiled)
        return walk_split(split, make_reader(), ScanOptions(record_crc=self.record_crc))

    def stream(self, number: int, numbers: QueueNumbers, terms: Terms) -> FileBlocks:
        return FileBlocks(
            self.walk(self.split(number)),
            numbers,
            terms.block_size,
            by_content=terms.by_content,
            record_crc=self.record_crc,
        )

    def close(self, number: int) -> None:
        self.split(number).source.close()

    def equal_file(self, number: int, other: StoreLog, other_number: int) -> LogTotals | None:
        """Totals of a file that is the same in another log, byte for byte; None where it is not.

        The file is walked once, and no digest is made.
        """
        here, there = self.split(number), other.split(other_number)
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
        if not self._plan.splits:
            return None
        split = self._plan.splits[-1]
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
        here, there = self.split(numbers[0]), other.split(numbers[1])
        if here.physical_offset != there.physical_offset:
            return None
        try:
            with closing(here.source), closing(there.source):
                position = first_difference(here.source, there.source, physical_offset - here.physical_offset)
        except OSError:
            return None
        return None if position is None else here.physical_offset + position


def _end_damage(totals: LogTotals, held: int) -> None:
    """A record stands after bad ranges, so they lie inside the log."""
    totals.bad_ranges += held
    totals.bad_bytes += totals.tail_bytes
    totals.tail_bytes = 0

"""Reads the log for a build: entries of its records for queues and index, in order, up to the first damage.

Several threads share the log, and each large file of it: a part is read by any of them, and taken in the order of the
log. Where a part has met anything but good records, or does not begin where the one before it ended, the file is read
on in one split from there, as a single thread would. At most some sixteen parts of 16 MiB wait, about 20 MB each.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from rmqtool.engine.dispatch.derived_writer import DerivedEntries, EntrySelector
from rmqtool.engine.dispatch.index_entries import IndexEntries, batch_entries, joined_index_entries
from rmqtool.engine.dispatch.index_writer import possible_times
from rmqtool.engine.dispatch.queue_entries import NO_TEXTS, AnyRows, RowBytes, batch_bytes
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.scan.log import RecordTable
from rmqtool.scan.plain_rows import columns_of
from rmqtool.scan.row_columns import RowColumns, by_name, joined_rows, kept_rows, message_rows
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.split import Split, SplitOutcome, splits_of
from rmqtool.scan.walk import Batch, Walk

PART_BYTES: Final = 16 << 20
GATHERED_ROWS: Final = 1 << 16
"""Plain rows from which on their entries are told; a batch has a few thousand."""

Bad = tuple[int, int, str]
"""Something that is no record: physical offset, length, finding."""


@dataclass
class ReadRows:
    """Some good records, one after the other.

    Attributes:
        last_begin, log_end: physical offset of the last one, and after it.
        size: their bytes.
        last_record: physical offset and store time of the last message; None without one.
        first_ms: store time of the first message with a possible one, one without a topic too; None without any.
        newest_ms: the latest store time.
        tombstones: physical offsets of the records that replace lost ones.
        entries: what they put into queues and index; None where nobody asked.
    """

    last_begin: int
    log_end: int
    size: int
    record_count: int = 0
    last_record: tuple[int, int] | None = None
    first_ms: int | None = None
    newest_ms: int = 0
    tombstones: list[int] = field(default_factory=list)
    entries: DerivedEntries | None = None


@dataclass
class _ReadPart:
    outcome: SplitOutcome
    rows_read: list[ReadRows]
    bad: Bad | None


@dataclass
class LogReading:
    """One reading of a log.

    Attributes:
        log_end: records from here on do not count; None reads to the end of the log.
        dispatching: tells what rows put into queues and index; None where only the records count.
        threads: one reads each file in one.
        part_bytes: of a part.
        keeps_keys: whether the cache is told what records put into the index.
        bad: where the reading met something that is no record: (physical offset, length, finding).
    """

    table: RecordTable
    log_end: int | None = None
    dispatching: EntrySelector | None = None
    threads: int = 1
    part_bytes: int = PART_BYTES
    keeps_keys: bool = True
    bad: Bad | None = None

    def rows(self) -> Iterator[ReadRows]:
        """Rows in the order of the log, up to the first range that is not a record, or to the requested end."""
        if self.threads == 1 or any(split.has_entries for split in self.table.splits):
            for split in self.table.splits:
                if (yield from self._in_one(split, split.start, split.start)):
                    return
            return
        table = self.table
        cut = [[split] if table.scan.is_known(split) else splits_of(split, self.part_bytes) for split in table.splits]
        parts = [part for splits in cut for part in splits]
        with closing(table.map(self._read_part, self.threads, parts)) as results:
            for split, splits in zip(table.splits, cut, strict=True):
                if (yield from self._joined(split, islice(results, len(splits)))):
                    return

    def _joined(self, split: Split, parts: Iterator[_ReadPart]) -> Generator[ReadRows, None, bool]:
        """Rows of a file from those of its parts; returns True if the log ends in it."""
        position = last = split.start
        fits, ended = True, False
        for part in parts:
            first = part.outcome.first_record
            if not fits or first is None:
                continue
            fits = first == position and not ended
            if not fits:
                continue
            for read_rows in part.rows_read:
                yield read_rows
                position, last = (place - split.physical_offset for place in (read_rows.log_end, read_rows.last_begin))
                if self.log_end is not None and read_rows.log_end >= self.log_end:
                    return True
            fits, ended = part.bad is None, part.outcome.ended
            if fits:
                position = part.outcome.data_end
        if ended and fits:
            return False
        # From the last record on: a time to compare with is part of what a walk knows.
        return (yield from self._in_one(split, last, position))

    def _in_one(self, split: Split, start: int, position: int) -> Generator[ReadRows, None, bool]:
        """Rows of a file from a file position on, read from a record before it; returns True if the log ends in it."""
        if start >= split.source.size:
            return False
        walk = self.table.scan.walk(replace(split, start=start))
        try:
            for rows, bad in self._batches(walk, split.physical_offset + position):
                if rows is not None:
                    yield rows
                self.bad = self.bad or bad
                is_at_end = rows is not None and self.log_end is not None and rows.log_end >= self.log_end
                if bad is not None or is_at_end:
                    return True
        finally:
            split.source.close()
        return False

    def _read_part(self, walk: Walk) -> _ReadPart:
        rows_by_batch: list[ReadRows] = []
        last_bad: Bad | None = None  # after which nothing follows
        for rows, bad in self._batches(walk, 0):
            rows_by_batch += [rows] if rows is not None else []
            last_bad = bad
        return _ReadPart(walk.outcome, rows_by_batch, last_bad)

    def _batches(self, walk: Walk, begin: int) -> Iterator[tuple[ReadRows | None, Bad | None]]:
        """Good rows from a physical offset on, and last the range that is not a record; nothing from the requested end
        on.
        """
        # Adjacent plain rows are gathered, because work queue by queue is cheaper for many.
        plain_rows, index = list[RowColumns](), list[IndexEntries]()
        topics: Sequence[bytes] = ()

        def gathered() -> ReadRows:
            rows, entries = joined_rows(plain_rows), joined_index_entries(index) if index else None
            plain_rows.clear()
            index.clear()
            return self._read(rows, topics, NO_TEXTS, entries)

        for batch in walk.batches():
            if (plain := columns_of(batch)) is not None:
                columns = self._wanted(plain.rows, begin)
                if columns.size:
                    plain_rows.append(columns)
                    topics = batch.topics  # those of the rows before, and more
                    entries = self._index_entries(batch, columns)
                    index += [entries] if entries is not None else []
                if sum(rows.size for rows in plain_rows) >= GATHERED_ROWS:
                    yield gathered(), None
                continue
            if plain_rows:
                yield gathered(), None
            rows = self._wanted(batch.as_array(), begin)
            bad: Bad | None = None
            wrong = np.flatnonzero(rows["verdict"] != Verdict.GOOD)
            if wrong.size:
                row = rows[int(wrong[0])]
                bad = int(row["physical_offset"]), int(row["size"]), FINDING_IDS[Verdict(int(row["verdict"]))]
                rows = rows[: int(wrong[0])]
            if rows.size:
                yield self._read(rows, batch.topics, batch_bytes(batch), self._index_entries(batch, rows)), bad
            elif bad is not None:
                yield None, bad
            if bad is not None:
                return
        if plain_rows:
            yield gathered(), None

    def _wanted(self, rows: Any, begin: int) -> Any:
        rows = kept_rows(rows, rows["physical_offset"] >= begin)
        return rows if self.log_end is None else kept_rows(rows, rows["physical_offset"] < self.log_end)

    def _index_entries(self, batch: Batch, rows: AnyRows) -> IndexEntries | None:
        """Index entries of a batch's rows, while the bytes are there; None where the index is not requested."""
        if self.dispatching is None or not self.dispatching.with_index:
            return None
        entries = batch_entries(batch, rows, self.dispatching.settings.rules)
        if not self.keeps_keys:
            batch.keys = None
        return entries

    def _read(self, rows: AnyRows, topics: Sequence[bytes], texts: RowBytes, index: IndexEntries | None) -> ReadRows:
        column = by_name(rows)
        last_begin, sizes = int(column["physical_offset"][-1]), column["size"]
        read_rows = ReadRows(last_begin, last_begin + int(sizes[-1]), int(sizes.sum(dtype=np.int64)))
        if self.dispatching is not None:
            read_rows.entries = self.dispatching(rows, topics, texts, index)
        dispatched = message_rows(rows)
        if dispatched.size:
            times_ms = possible_times(dispatched["store_timestamp_ms"])
            read_rows.first_ms = int(times_ms[0]) if times_ms.size else None
        messages = kept_rows(rows, column["topic_length"] > 0)
        if messages.size:
            times_ms = messages["store_timestamp_ms"]
            read_rows.record_count = messages.size
            read_rows.last_record = int(messages["physical_offset"][-1]), int(times_ms[-1])
            read_rows.newest_ms = int(times_ms.max())
            marked = messages["prepared_transaction_offset"] == TOMBSTONE
            read_rows.tombstones = messages["physical_offset"][marked].tolist()
        return read_rows

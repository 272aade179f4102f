"""The tables of `rocksdbstore/`: index, timers and transactions of a broker from 5.4 on, and how they meet the log.

The check sorts the rows of the index by the record that they lead to, in a temporary file, and meets them once with the
records.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from heapq import merge
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import IO, Any, Final

import numpy as np

from rmqtool.engine.reading.message_places import search_log
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.record import Record
from rmqtool.errors import UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.properties import TRANSACTION_ID
from rmqtool.formats.rocksdb.store import (
    HOUR_MS,
    INDEX_FAMILY,
    LAST_OFFSET,
    MARKS,
    TIMER_FAMILY,
    IndexRow,
    Mark,
    Row,
    TimerRow,
    index_texts,
    parse_row,
)
from rmqtool.scan.row_filter import RowFilter
from rmqtool.sides.queue_scan import record_at
from rmqtool.sides.unread import DatabaseCheck, read_by_after
from rmqtool.store.databases.rocksdb import RocksFailure, RocksFamily, RocksReading
from rmqtool.store.databases.rocksdb_files import has_to_open
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.view import Entry, StoreView

DIRECTORY: Final = "rocksdbstore"
TABLES: Final = tuple(MARKS)
FINDINGS_MAX: Final = 100
"""Findings of one kind that are named; the rest is counted in one."""
_BLOCK_ROWS: Final = 1 << 16
_RUN_ROWS: Final = 1 << 20
_MERGED_ROWS: Final = 1 << 10
_KEPT_ROWS: Final = 1 << 14
"""Rows of one record that are looked at: a record of 64 KiB of properties has no more keys."""
_AFTER_ALL: Final = 1 << 63
_ROW_TYPE: Final = np.dtype(
    [("physical_offset", "<i8"), ("digest", "<u8"), ("hour_ms", "<i8"), ("store_timestamp_ms", "<i8")]
)
_IndexColumns = tuple[int, int, int, int]


@dataclass
class SideDatabase:
    """A database that is read by `rows`, after which `failure` says why not to its end.

    Attributes:
        odd_row_count: rows that mean nothing to a broker; `odd_row` is the first of them, as a sentence.
    """

    view: StoreView
    entries: Sequence[Entry]
    odd_row_count: int = 0
    odd_row: str = ""
    failure: RocksFailure | None = None
    reason: str = ""

    def rows(self, tables: Sequence[str] = TABLES) -> Iterator[tuple[str, Row]]:
        """All rows with the names of their tables, each table in the order of its keys."""
        reading = RocksReading(self.view, self.entries)
        with closing(reading.batches([RocksFamily(name) for name in tables])) as batches:
            for batch in batches:
                row = parse_row(batch.family, batch.prefix, batch.values)
                if row is not None:
                    yield batch.family, row
                    continue
                self.odd_row_count += 1
                self.odd_row = self.odd_row or f"{batch.family}: key {batch.prefix[:40].hex()}"
        self.failure, self.reason = reading.failure, reading.reason

    def timer_marks(self) -> dict[str, int]:
        """Progress of the timers, by the names of the keys; empty where a broker keeps no timer here."""
        return {row.name: row.value for _, row in self.rows((TIMER_FAMILY,)) if isinstance(row, Mark)}

    def timers_from(self, due_ms: int) -> Iterator[TimerRow]:
        """The timers that are due at a time or later; those before were delivered."""
        for _, row in self.rows((TIMER_FAMILY,)):
            if isinstance(row, TimerRow) and row.due_timestamp_ms >= due_ms:
                yield row


class SideDatabaseCheck(DatabaseCheck):
    """One check of `rocksdbstore/`."""

    directory = DIRECTORY
    kind = FileKind.ROCKSDB

    @property
    def is_used(self) -> bool:
        """True if there is a row to check, or a broker may fail to open the database."""
        return has_to_open(self.store.view, self.store.files.get(FileKind.ROCKSDB, ()))

    def findings(self, log: tuple[int, int] | None) -> Iterator[Finding]:
        """All findings.

        Args:
            log: where the log begins and ends; None where not all of the log was scanned.
        """
        if log is None:
            self.failure = "index, timers and transactions in RocksDB are compared with a whole log only"
            return
        database = SideDatabase(self.store.view, self.store.files.get(FileKind.ROCKSDB, ()))
        counts: Counter[str] = Counter()
        try:
            with tempfile.TemporaryFile() as file, open_reader(self.store, self.rules) as reader:
                for one in _row_findings(database, reader, file, log):
                    counts[one.id] += 1
                    if counts[one.id] <= FINDINGS_MAX:
                        yield one
        except (UnreadableError, OSError) as error:
            self.failure = str(error)
        for kind, count in counts.items():
            if count > FINDINGS_MAX:
                yield finding(kind, DIRECTORY, f"{count - FINDINGS_MAX} more", count=count - FINDINGS_MAX)
        if database.odd_row_count:
            text = f"{database.odd_row_count} rows, the first: {database.odd_row}"
            yield finding("rocksdbstore.odd-row", DIRECTORY, text, count=database.odd_row_count)
        if database.failure is RocksFailure.DOES_NOT_OPEN:
            yield finding("rocksdbstore.not-loadable", DIRECTORY, database.reason)
        elif database.failure is RocksFailure.UNREADABLE:
            yield finding("rocksdbstore.unreadable", DIRECTORY, database.reason)
        if database.failure is not None:
            self.failure = f"index, timers and transactions in RocksDB: {database.reason}"
            self.read_by = read_by_after(database.failure)


def _row_findings(database: SideDatabase, reader: Reader, file: IO[bytes], log: tuple[int, int]) -> Iterator[Finding]:
    """Check timers and transactions, then the rows of the index, in the order of the log's records.

    Args:
        file: is empty, and gets the rows of the index.
    """
    log_begin, log_end = log
    last: int | None = None
    block: list[_IndexColumns] = []
    for family, row in database.rows():
        if isinstance(row, IndexRow):
            block.append((row.physical_offset, _digest(row.text), row.hour_ms, row.store_timestamp_ms))
            if len(block) == _BLOCK_ROWS:
                file.write(np.array(block, _ROW_TYPE).tobytes())
                block.clear()
        elif isinstance(row, Mark):
            if family == INDEX_FAMILY and row.name == LAST_OFFSET.decode():
                last = row.value
        elif row.physical_offset < log_begin:
            if isinstance(row, TimerRow):  # that of a transaction had its time for an outcome too
                text = "a timer waits for a message that has left the commit log"
                yield finding("rocksdbstore.wrong-row", DIRECTORY, text, physical_offset=row.physical_offset)
        else:
            record = record_at(reader, row.physical_offset) if row.physical_offset < log_end else None
            if record is not None and record.size == row.record_size:
                unique_key = record.unique_key or ""
                if isinstance(row, TimerRow):
                    is_own = unique_key.encode("utf-8", "replace") == row.unique_key
                else:
                    transaction_id = record.properties.get(TRANSACTION_ID, unique_key)
                    is_own = transaction_id.encode("utf-8", "replace") == row.transaction_id
                if is_own:
                    continue
            table = "timer" if isinstance(row, TimerRow) else "transaction"
            text = f"a row of the {table} table leads to no record, or to another one"
            yield finding("rocksdbstore.wrong-row", DIRECTORY, text, physical_offset=row.physical_offset)
    file.write(np.array(block, _ROW_TYPE).tobytes())
    file.flush()
    if database.failure is not None or last is None:
        return  # without a last offset no message was indexed here yet
    groups = _by_record(file)
    offset, rows, count = next(groups)
    while offset < log_begin:
        offset, rows, count = next(groups)
    first = offset if rows else last
    behind = 0
    for message in chain(search_log(reader, RowFilter()), (None,)):
        here = log_end if message is None else message.physical_offset
        while offset < here:
            text = f"{count} rows of the index lead to a place where no record starts"
            yield finding("rocksdbstore.wrong-row", DIRECTORY, text, physical_offset=offset)
            offset, rows, count = next(groups)
        if message is None:
            break
        known: set[tuple[int, int, int]] = set()
        if offset == here:
            known = {row[1:] for row in rows}
            offset, rows, count = next(groups)
        expected = _expected(message.record) if message.record is not None else set()
        if known - expected:
            text = f"{len(known - expected)} rows of the index have keys or times that their message has not"
            yield finding("rocksdbstore.wrong-row", DIRECTORY, text, physical_offset=here)
        missing = len(expected - known)
        if missing and here > last:
            behind += 1
        elif missing and here >= first:
            text = f"{missing} keys are not in the index"
            yield finding("rocksdbstore.missing-row", DIRECTORY, text, physical_offset=here)
    ahead = count + sum(count for _, _, count in groups)
    if ahead or last >= log_end:
        text = f"the index reaches to the record at {last}, {ahead} rows lead past the end of the log at {log_end}"
        yield finding("rocksdbstore.ahead-of-log", DIRECTORY, text, physical_offset=last, count=max(1, ahead))
    elif behind:
        text = f"{behind} messages with keys are after the last one in the index, at {last}"
        yield finding("rocksdbstore.behind-log", DIRECTORY, text, physical_offset=last, count=behind)


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def _by_record(file: IO[bytes]) -> Iterator[tuple[int, list[_IndexColumns], int]]:
    """Each offset of the log that rows lead to, in order, with the first of its rows and their number.

    At last an offset after all, without rows.

    Runs of rows are sorted in the file and merged as they are read: memory does not grow with the rows.
    """
    rows = np.memmap(file, _ROW_TYPE, "r+") if file.seek(0, 2) else np.empty(0, _ROW_TYPE)
    runs = [rows[at : at + _RUN_ROWS] for at in range(0, len(rows), _RUN_ROWS)]
    for run in runs:
        run.sort()
    for offset, group in groupby(merge(*map(_rows_of, runs)), itemgetter(0)):
        rest = iter(group)
        first = list(islice(rest, _KEPT_ROWS))
        yield offset, first, len(first) + sum(1 for _ in rest)
    yield _AFTER_ALL, [], 0


def _rows_of(run: Any) -> Iterator[_IndexColumns]:
    for at in range(0, len(run), _MERGED_ROWS):
        yield from run[at : at + _MERGED_ROWS].tolist()


def _expected(record: Record) -> set[tuple[int, int, int]]:
    """Digest, hour and time of every row that a broker writes for a message."""
    if record.unique_key is None or record.transaction == "rollback":
        return set()
    time = record.store_timestamp_ms
    keys = tuple(key.encode("utf-8", "replace") for key in record.keys)
    tag = (record.tags or "").encode("utf-8", "replace")
    texts = index_texts(record.topic.encode(), keys, tag, record.unique_key.encode("utf-8", "replace"))
    return {(_digest(text), time - time % HOUR_MS, time) for text in texts}

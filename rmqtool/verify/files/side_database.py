"""Compares the tables of `rocksdbstore/` with the commit log: index, timers and transactions of a broker from 5.4 on.

The rows of the index are sorted by the record that they lead to, in a temporary file, and met once with the records.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import IO, Any, Final

import numpy as np

from rmqtool.engine.reading.message_places import search_log
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.reading.unread_files import is_rocksdb_used
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.formats.properties import TRANSACTION_ID
from rmqtool.formats.rocksdb_store import (
    HOUR_MS,
    INDEX_FAMILY,
    LAST_OFFSET,
    IndexRow,
    Mark,
    TimerRow,
    TransactionRow,
    index_texts,
)
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.rocksdb import RocksFailure
from rmqtool.store.side_database import DIRECTORY, SideDatabase
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding
from rmqtool.verify.survey.result import SplitResult

FINDINGS_MAX: Final = 100
"""Findings of one kind that are named; the rest is counted in one."""
_ROLLED_BACK: Final = "rollback"
_BLOCK_ROWS: Final = 1 << 16


def _row_type() -> np.dtype[Any]:
    return np.dtype([("physical_offset", "<i8"), ("digest", "<u8"), ("hour_ms", "<i8"), ("store_timestamp_ms", "<i8")])


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


@dataclass
class SideDatabaseCheck:
    """One check of `rocksdbstore/`.

    Attributes:
        failure: why not all of it was read, as a sentence; empty where it was, or a finding says so.
    """

    store: Store
    rules: BrokerRules
    failure: str = ""
    _last: int | None = None
    _counts: Counter[str] = field(default_factory=Counter)

    @property
    def is_used(self) -> bool:
        """Whether there is a row to check."""
        return is_rocksdb_used(self.store.files.get(FileKind.ROCKSDB, ()))

    def findings(self, log: SplitResult | None) -> Iterator[Finding]:
        """All findings.

        Args:
            log: the merged result of all splits; None where not all of the log was scanned.
        """
        if log is None:
            self.failure = "index, timers and transactions in RocksDB are compared with a whole log only"
            return
        database = SideDatabase(self.store.view, self.store.files.get(FileKind.ROCKSDB, ()))
        try:
            with tempfile.TemporaryFile() as file, open_reader(self.store, self.rules) as reader:
                yield from self._read(database, reader, file, (log.begin, log.end))
                if database.failure is None:
                    yield from self._compare(reader, _sorted(file), (log.begin, log.end))
        except (UnreadableError, OSError) as error:
            self.failure = str(error)
        for kind, count in self._counts.items():
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

    def _read(self, database: SideDatabase, reader: Reader, file: IO[bytes], log: tuple[int, int]) -> Iterator[Finding]:
        """Check timers and transactions, and keep the rows of the index."""
        block: list[tuple[int, int, int, int]] = []
        for family, row in database.rows():
            if isinstance(row, IndexRow):
                block.append((row.physical_offset, _digest(row.text), row.hour_ms, row.store_timestamp_ms))
            elif isinstance(row, Mark):
                if family == INDEX_FAMILY and row.name == LAST_OFFSET.decode():
                    self._last = row.value
            else:
                yield from self._of_message(reader, row, log)
            if len(block) == _BLOCK_ROWS:
                file.write(np.array(block, _row_type()).tobytes())
                block.clear()
        file.write(np.array(block, _row_type()).tobytes())
        file.flush()

    def _of_message(self, reader: Reader, row: TimerRow | TransactionRow, log: tuple[int, int]) -> Iterator[Finding]:
        """What is wrong with a row of timers or transactions."""
        table = "timer" if isinstance(row, TimerRow) else "transaction"
        if row.physical_offset < log[0]:
            if table == "transaction":
                return  # its time for an outcome is over too
            text = "a timer waits for a message that has left the commit log"
        else:
            message = reader.message_at(row.physical_offset) if row.physical_offset < log[1] else None
            record = message.record if message is not None else None
            if record is not None and record.size == row.record_size and _is_of(row, record):
                return
            text = f"a row of the {table} table leads to no record, or to another one"
        yield from self._say("rocksdbstore.wrong-row", text, row.physical_offset)

    def _compare(self, reader: Reader, rows: Any, log: tuple[int, int]) -> Iterator[Finding]:
        """Meet the rows of the index with the records of the log, both in the order of the log."""
        if self._last is None:
            return  # no message was indexed here yet
        offsets = rows["physical_offset"]
        at = int(np.searchsorted(offsets, log[0]))
        first = int(offsets[at]) if at < len(rows) else self._last
        behind = 0
        for message in search_log(reader, RowFilter()):
            record, here = message.record, message.physical_offset
            end = int(np.searchsorted(offsets[at:], here)) + at
            yield from self._wrong(offsets[at:end])
            at = end
            while end < len(rows) and offsets[end] == here:
                end += 1
            expected = _expected(record) if record is not None else set()
            known = {tuple(row.tolist())[1:] for row in rows[at:end]}
            at = end
            if known - expected:
                text = f"{len(known - expected)} rows of the index have keys or times that their message has not"
                yield from self._say("rocksdbstore.wrong-row", text, here)
            missing = len(expected - known)
            if missing and here > self._last:
                behind += 1
            elif missing and here >= first:
                yield from self._say("rocksdbstore.missing-row", f"{missing} keys are not in the index", here)
        end = int(np.searchsorted(offsets[at:], log[1])) + at
        yield from self._wrong(offsets[at:end])
        yield from self._at_the_end(len(rows) - end, behind, log[1])

    def _wrong(self, physical_offsets: Any) -> Iterator[Finding]:
        for physical_offset, count in zip(*np.unique(physical_offsets, return_counts=True), strict=True):
            text = f"{count} rows of the index lead to a place where no record starts"
            yield from self._say("rocksdbstore.wrong-row", text, int(physical_offset))

    def _at_the_end(self, ahead: int, behind: int, log_end: int) -> Iterator[Finding]:
        last = self._last or 0
        if ahead or last >= log_end:
            text = f"the index reaches to the record at {last}, {ahead} rows lead past the end of the log at {log_end}"
            yield finding("rocksdbstore.ahead-of-log", DIRECTORY, text, physical_offset=last, count=max(1, ahead))
        elif behind:
            text = f"{behind} messages with keys are after the last one in the index, at {last}"
            yield finding("rocksdbstore.behind-log", DIRECTORY, text, physical_offset=last, count=behind)

    def _say(self, kind: str, text: str, physical_offset: int) -> Iterator[Finding]:
        self._counts[kind] += 1
        if self._counts[kind] <= FINDINGS_MAX:
            yield finding(kind, DIRECTORY, text, physical_offset=physical_offset)


def _sorted(file: IO[bytes]) -> Any:
    """The rows that were kept, in the order of the log; read from disk as they are needed."""
    if not file.seek(0, 2):
        return np.empty(0, _row_type())
    rows = np.memmap(file, _row_type(), "r+")
    rows.sort(order="physical_offset", kind="stable")
    return rows


def _expected(record: Record) -> set[tuple[int, int, int]]:
    """Digest, hour and time of every row that a broker writes for a message."""
    if record.unique_key is None or record.transaction == _ROLLED_BACK:
        return set()
    time = record.store_timestamp_ms
    keys = tuple(key.encode("utf-8", "replace") for key in record.keys)
    tag = (record.tags or "").encode("utf-8", "replace")
    texts = index_texts(record.topic.encode(), keys, tag, record.unique_key.encode("utf-8", "replace"))
    return {(_digest(text), time - time % HOUR_MS, time) for text in texts}


def _is_of(row: TimerRow | TransactionRow, record: Record) -> bool:
    """Whether a row of timers or transactions is that of the message to which it leads."""
    if isinstance(row, TimerRow):
        return (record.unique_key or "").encode("utf-8", "replace") == row.unique_key
    transaction_id = record.properties.get(TRANSACTION_ID, record.unique_key or "")
    return transaction_id.encode("utf-8", "replace") == row.transaction_id

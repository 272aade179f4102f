"""Commitlog records for `dump`: in log order or backwards, filtered on columns first, decoded only where they match."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from rmqtool.dump.log_filter import LogFilter
from rmqtool.dump.target import Target
from rmqtool.engine.reading.record import Record, SingleRecord, decode_record
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.engine.segments.log import RecordLocation
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.columns import Row, bare_row
from rmqtool.scan.judge import MESSAGE_MAGICS
from rmqtool.scan.log import ScanOptions, carries_record_crc, reader_for, walk_split
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Batch, Walk
from rmqtool.store.file_kinds import is_segment_name
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import Entry

MISSING_FILE: Final = "commitlog.missing-file"
UNREADABLE: Final = "commitlog.unreadable-range"
NOT_READABLE: Final = "commitlog.not-readable-by-version"
FEW_ROWS: Final = 2000
"""Rows that the plain reader finds sooner than the compiled one is loaded."""
_PROBE_BYTES: Final = 4096
_OWN_OFFSET_AT: Final = commitlog.MESSAGE_V1.position("physical_offset")


@dataclass(frozen=True)
class MatchedRecord:
    """A row of the scan and where its bytes are; `read` gives (position in the record, length)."""

    row: Row
    path: str
    file_position: int
    read: Callable[[int, int], bytes]
    finding: str | None
    """Id of what is wrong; None for a good record or blank."""

    @property
    def is_message(self) -> bool:
        return self.row.magic in MESSAGE_MAGICS and self.row.verdict in (Verdict.GOOD, Verdict.STALE)

    @property
    def is_blank(self) -> bool:
        return self.row.magic == commitlog.MAGIC_BLANK and self.row.verdict in (Verdict.GOOD, Verdict.STALE)


@dataclass
class LogDump:
    """The records of a log's files.

    Attributes:
        compiled: as in `ScanOptions`.
        problems: files that could not be opened, as sentences.
        bad_ranges: how many have been met.
    """

    target: Target
    log_filter: LogFilter
    rules: BrokerRules
    compiled: bool | None = None
    problems: list[str] = field(default_factory=list)
    bad_ranges: int = 0

    def forward(self) -> Iterator[MatchedRecord]:
        """All that is wanted, in log order."""
        last = self.last_with_data()
        options = self._options()
        for number, entry in enumerate(self.target.entries[: last + 1]):
            yield from self._gap_before(number)
            if self._is_in_range(entry):
                yield from self._file(entry, options, more_follows=number < last)

    def backward(self, limit: int | None) -> Iterator[MatchedRecord]:
        """The same, the newest first; of each file only the places of its rows are held."""
        last = self.last_with_data()
        options = self._options()
        for number in range(last, -1, -1):
            entry = self.target.entries[number]
            if self._is_in_range(entry):
                yield from self._file_backward(entry, options, limit, more_follows=number < last)
            yield from self._gap_before(number)

    def record(self, match: MatchedRecord) -> Record | None:
        """The decoded record of a message row; None where a broker of these rules cannot decode it."""
        place = RecordLocation(match.row.physical_offset, match.path, match.file_position, match.row.size)
        return decode_record(SingleRecord(self.rules, match.read), place)

    def scanned(self, entry: Entry, position: int, *, more_follows: bool) -> Iterator[tuple[Row, MatchedRecord | None]]:
        """Every row of a file from a record's begin on, with what is wanted of it."""
        source = self._open(entry)
        if source is None:
            return
        try:
            walk = self._walk(source, entry, self._options(), more_follows=more_follows, start=position)
            for batch in walk.batches():
                numbers = self.log_filter.topic_numbers(batch.topics)
                for row in batch.as_rows():
                    may_match = self.log_filter.may_match(row, numbers)
                    yield row, _batch_found(batch, row, entry) if may_match else None
        finally:
            source.close()

    def counted(self, match: MatchedRecord) -> MatchedRecord:
        """The same, counted if it is a bad range."""
        self.bad_ranges += not (match.is_message or match.is_blank)
        return match

    def start_of(self, entry: Entry) -> int:
        """Physical offset of a file's first byte, as far as its name tells it."""
        return self._start(entry, None)

    def _file(
        self, entry: Entry, options: ScanOptions, *, more_follows: bool, start: int = 0
    ) -> Iterator[MatchedRecord]:
        source = self._open(entry)
        if source is None:
            yield from self._bad(entry, self._start(entry, None), entry.size, UNREADABLE)
            return
        try:
            walk = self._walk(source, entry, options, more_follows=more_follows, start=start)
            for batch in walk.batches():
                yield from self._rows_of(batch, entry)
        finally:
            source.close()

    def _file_backward(
        self, entry: Entry, options: ScanOptions, limit: int | None, *, more_follows: bool
    ) -> Iterator[MatchedRecord]:
        """One file backwards: a first pass notes where matching rows are, the last `limit` of them if there is one."""
        source = self._open(entry)
        if source is None:
            yield from self._bad(entry, self._start(entry, None), entry.size, UNREADABLE)
            return
        try:
            walk = self._walk(source, entry, options, more_follows=more_follows)
            base = walk.split.physical_offset
            places: deque[int] | array[int] = array("q") if limit is None else deque(maxlen=4 * limit)
            for batch in walk.batches():
                for match in self._rows_of(batch, entry, limit):
                    row = match.row
                    if match.is_message and self.log_filter.wants_text and not self.matches(match):
                        continue
                    places.extend((row.physical_offset, row.size, row.verdict, row.magic))
            for at in range(len(places) - 4, -1, -4):
                row = bare_row(places[at], places[at + 1], places[at + 2], places[at + 3])
                yield _found(row, entry.path, row.physical_offset - base, _range_reader(source, row, base))
        finally:
            source.close()

    def _walk(
        self, source: ByteSource, entry: Entry, options: ScanOptions, *, more_follows: bool, start: int = 0
    ) -> Walk:
        base = self._start(entry, source)
        split = Split(source, start, source.size, base, more_follows)
        data_bytes = sum(end - begin for begin, end in source.extents(start, source.size))
        return walk_split(split, reader_for(data_bytes, options.compiled)(), options)

    def _rows_of(self, batch: Batch, entry: Entry, last: int | None = None) -> Iterator[MatchedRecord]:
        for row in self._wanted_rows(batch, last):
            match = _batch_found(batch, row, entry)
            if not match.is_message or self.log_filter.texts_may_match(row, match.read):
                yield self.counted(match)

    def _wanted_rows(self, batch: Batch, last: int | None) -> list[Row]:
        """The rows that columns alone do not rule out; of many the last ones suffice where columns decide alone."""
        numbers = self.log_filter.topic_numbers(batch.topics)
        if isinstance(batch.rows, list):
            return [row for row in batch.rows if self.log_filter.may_match(row, numbers)]
        rows = cast("Any", batch.as_array())
        chosen = rows if (mask := self.log_filter.mask(rows, numbers)) is None else rows[mask]
        if last is not None and not self.log_filter.wants_text:
            chosen = chosen[-last:]
        return [row for row in map(Row._make, chosen.tolist()) if self.log_filter.may_match(row, numbers)]

    def matches(self, match: MatchedRecord, record: Record | None = None) -> bool:
        """Whether a message that its columns do not rule out has the key, tag or id that is asked for."""
        if not self.log_filter.wants_text:
            return True
        record = record or self.record(match)
        return record is None or self.log_filter.matches(record)

    def _is_in_range(self, entry: Entry) -> bool:
        """Whether a file may hold something of the range of physical offsets; one that cannot is not even opened."""
        if not is_segment_name(entry.name):
            return True
        start, low, high = int(entry.name), self.log_filter.from_physical_offset, self.log_filter.to_physical_offset
        return (low is None or start + entry.size > low) and (high is None or start < high)

    def _gap_before(self, number: int) -> Iterator[MatchedRecord]:
        """The range of files that are not there, between the one before and this one."""
        size = self.target.file_size
        entries = self.target.entries
        if number == 0 or not size or not all(is_segment_name(entries[at].name) for at in (number - 1, number)):
            return
        begin, end = int(entries[number - 1].name) + size, int(entries[number].name)
        if end > begin:
            yield from self._bad(entries[number - 1], begin, end - begin, MISSING_FILE)

    def _bad(self, entry: Entry, physical_offset: int, size: int, finding: str) -> Iterator[MatchedRecord]:
        row = bare_row(physical_offset, size, Verdict.UNREADABLE_RANGE)
        if self.log_filter.may_match(row, None):
            self.bad_ranges += 1
            yield MatchedRecord(row, entry.path, 0, lambda _position, _length: b"", finding)

    def _open(self, entry: Entry) -> ByteSource | None:
        try:
            return self.target.view.open(entry.path)
        except UnreadableError as error:
            self.problems.append(str(error))
            return None

    def _start(self, entry: Entry, source: ByteSource | None) -> int:
        """Physical offset of a file's first byte: its name, else what its first record says of itself."""
        if is_segment_name(entry.name):
            return int(entry.name)
        if source is not None:
            with suppress(UnreadableError):
                head = read_range(source, 0, _OWN_OFFSET_AT + 8)
                if int.from_bytes(head[4:8], "big", signed=True) in MESSAGE_MAGICS and len(head) == _OWN_OFFSET_AT + 8:
                    return max(0, int.from_bytes(head[_OWN_OFFSET_AT:], "big", signed=True))
        return 0

    def last_with_data(self) -> int:
        """Number of the last file that holds anything; zero files behind it are only preallocated. -1 without any."""
        for number in range(len(self.target.entries) - 1, 0, -1):
            if self._has_data(self.target.entries[number]):
                return number
        return min(0, len(self.target.entries) - 1)

    def _has_data(self, entry: Entry) -> bool:
        try:
            source = self.target.view.open(entry.path)
        except UnreadableError:
            return True  # to be told when its turn comes
        try:
            with suppress(UnreadableError):
                return any(read_range(source, 0, _PROBE_BYTES)) or last_data_end(source, 0, source.size) > 0
            return True
        finally:
            source.close()

    def _options(self) -> ScanOptions:
        """Whole-record CRCs count where the log's first record has one."""
        for entry in self.target.entries[:1]:
            with suppress(UnreadableError):
                source = self.target.view.open(entry.path)
                try:
                    split = Split(source, 0, source.size, 0)
                    return ScanOptions(record_crc=carries_record_crc([split]), compiled=self.compiled)
                finally:
                    source.close()
        return ScanOptions(compiled=self.compiled)


def _found(row: Row, path: str, file_position: int, read: Callable[[int, int], bytes]) -> MatchedRecord:
    return MatchedRecord(row, path, file_position, read, FINDING_IDS.get(Verdict(row.verdict)))


def _batch_found(batch: Batch, row: Row, entry: Entry) -> MatchedRecord:
    def read(position: int, length: int) -> bytes:
        return batch.read(row, position, length)

    return _found(row, entry.path, row.physical_offset - batch.split.physical_offset, read)


def _range_reader(source: ByteSource, row: Row, base: int) -> Callable[[int, int], bytes]:
    start = row.physical_offset - base
    return lambda position, length: read_range(source, start + position, min(length, row.size - position))

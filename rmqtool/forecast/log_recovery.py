"""The log while a broker loads and starts: scan, truncation, and what dispatch reads on after the start.

Broker: `CommitLog#recoverNormally`, `#recoverAbnormally`, `ReputMessageService#doReput`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from struct import Struct

from rmqtool.engine.dispatch.queue_entries import batch_bytes
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.forecast.log_scan import FileEnd, FileScan, PlainRecords, Records
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.record_check import RecordCheck, first_record
from rmqtool.forecast.start_file import FirstRecord
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import MESSAGE_MAGICS, STORE_TIMESTAMP_AT, SYS_FLAG_AT
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, ScanOptions, reader_for, walk_split
from rmqtool.scan.row_columns import by_name
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.split import LazySource, whole_file
from rmqtool.scan.walk import FRAME_SIZE, Batch, RecordReader
from rmqtool.store.directory import Segment
from rmqtool.store.overlay import Overlay
from rmqtool.store.source import ByteSource, read_range

_FRAME = Struct(commitlog.BLANK.struct_code)
_TIME = Struct(">q")


@dataclass(frozen=True)
class ScanResult:
    """What a scan found: the physical offsets at which it began and ended, and what stopped it."""

    begin: int
    end: int
    verdict: Verdict | None

    @property
    def finding(self) -> str | None:
        """The finding at the end; None for untouched space, or where nothing follows."""
        return None if self.verdict is None else FINDING_IDS.get(self.verdict)


class LogState:
    """The loaded files of the log. Offsets are physical.

    Attributes:
        end: where the log ends; the end of the last file until it was recovered.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        overlay: Overlay,
        rules: BrokerRules,
        options: ForecastOptions,
        *,
        data_bytes: int,
        plain: PlainRecords | None = None,
    ) -> None:
        self.segments: list[Segment] = list(segments)
        self.end = segments[-1].end if segments else 0
        self._cut_at = self.end
        self._overlay = overlay
        self._rules = rules
        self._options = options
        self._plain = plain
        self._make_reader: Callable[[], RecordReader] = reader_for(data_bytes)

    @property
    def minimum(self) -> int:
        """First physical offset; -1 without any file."""
        return self.segments[0].start if self.segments else -1

    def first_record(self, segment: Segment) -> FirstRecord:
        """What stands at the start of a file.

        Raises:
            LoadFailure: the broker runs out of memory over it.
            UnreadableError: the disk does not give it.
        """
        with closing(self._overlay.open(segment.path)) as source:
            head = read_range(source, 0, commitlog.HEAD_SIZE_MAX)
            if len(head) < commitlog.HEAD_SIZE_MAX:
                return FirstRecord(has_magic=False, store_timestamp_ms=0, checked=None)
            _, magic = _FRAME.unpack_from(head)
            known = MESSAGE_MAGICS if self._rules.reads_v2 else (commitlog.MAGIC_V1,)
            sys_flag = int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
            at = STORE_TIMESTAMP_AT
            if self._rules.ipv6_hosts and sys_flag & system_flag.BORN_HOST_V6:
                at += commitlog.V6_EXTRA
            scan = self._scan(lenient=False)
            row = first_record(scan.walk(source, 0, segment.start), scan.checker) if magic in known else None
            return FirstRecord(magic in known, _TIME.unpack_from(head, at)[0], row)

    def scan(self, first: int, known: int = -1) -> Generator[Records, None, ScanResult]:
        """Good records from a file on, up to the end of the log; the result is the generator's value.

        Args:
            known: records up to this physical offset may be skipped.

        Raises:
            LoadFailure: the broker runs out of memory over a record.
            UnreadableError: a file cannot be opened.
        """
        scan = self._scan(lenient=False)
        number = first
        while True:
            segment = self.segments[number]
            end = yield from self._file(scan, segment, 0, known)
            if not end.is_blank or number + 1 == len(self.segments):
                verdict = end.verdict
                if verdict in (None, Verdict.MISSING_END_BLANK):
                    follows = any(self._holds_data(later) for later in self.segments[number + 1 :])
                    verdict = Verdict.MISSING_END_BLANK if follows else None
                return ScanResult(self.segments[first].start, segment.start + end.position, verdict)
            number += 1

    def _holds_data(self, segment: Segment) -> bool:
        """Whether a file begins with anything but zeros."""
        with closing(self._opened(segment)) as source:
            return any(read_range(source, 0, FRAME_SIZE))

    def truncate(self, end: int) -> None:
        """Let the log end there: files that begin after it are unlinked.

        A broker reads up to the end of the last file in its list, and lists files by name: with names of different
        lengths that need not be the file with the highest offset (`MappedFileQueue#getMaxOffset`). Where that file
        ends it keeps as the remainder of the offset, also of a file whose name is no multiple of the size.
        """
        for segment in [segment for segment in self.segments if segment.start > end]:
            self._overlay.remove(segment.path)
            self.segments.remove(segment)
        self.end = self._cut_at = end
        if self.segments:
            last = self.segments[-1]
            self.end = last.end if last.end <= end else last.start + end % last.size

    def dispatched_after_start(self, begin: int) -> Generator[Records, None, int | None]:
        """Records that dispatch reads from a physical offset on once the broker runs.

        Checksums do not count here, and what is no record is skipped to the file's end. The value is where it
        stays forever: the file that should hold what follows is missing or cut before, or a slave meets what is no
        record.

        Raises:
            LoadFailure: the broker runs out of memory over a record.
            UnreadableError: a file cannot be opened.
        """
        scan = self._scan(lenient=True)
        begin = max(begin, self.minimum)
        while begin < self.end:
            segment = next((candidate for candidate in self.segments if candidate.start <= begin < candidate.end), None)
            if segment is None or begin >= self._readable_end(segment):
                return begin
            end = yield from self._below_end(self._file(scan, segment, begin - segment.start))
            if end is None:
                return None
            if segment.start + end.position >= self._readable_end(segment):
                begin = self._readable_end(segment)
            elif not end.is_blank and end.size > 0:
                begin = segment.start + end.position + end.size
            elif not end.is_blank and self._options.is_slave and segment.start + end.position < self.end:
                return segment.start + end.position
            else:
                begin = segment.end
        return None

    def member_end(self) -> int:
        """Where the last entry of a log of DLedger ends, or its last file where that is full.

        Raises:
            UnreadableError: a file cannot be read.
        """
        segments = [segment for segment in self.segments if segment.has_entries]
        end = segments[0].start
        for segment in reversed(segments):
            for batch in self._entries(segment):
                rows = by_name(batch.as_array())
                ends = (rows["physical_offset"] + rows["size"])[rows["verdict"] == Verdict.GOOD]
                end = int(ends.max(initial=end))
            if end > segment.start:
                break
        return end

    def member_records(self, begin: int = 0) -> Generator[Records, None, None]:
        """The good records of a log of DLedger, from a physical offset on to its last entry.

        Raises:
            UnreadableError: a file cannot be read.
        """
        for segment in self.segments:
            for batch in self._entries(segment) if segment.has_entries and segment.end > begin else ():
                rows = batch.as_array()
                is_good = (rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)
                is_good &= rows["physical_offset"] >= begin
                yield Records(rows[is_good], batch.topics, batch_bytes(batch))

    def _entries(self, segment: Segment) -> Iterator[Batch]:
        options = ScanOptions(self._options.delays_ms, block_size=DISPATCH_BLOCK_SIZE)
        with closing(self._opened(segment)) as source:
            split = whole_file(source, segment.start, more_follows=False, has_entries=True)
            yield from walk_split(split, self._make_reader(), options).batches()

    def _readable_end(self, segment: Segment) -> int:
        """Up to where a file is read: each file that the log's end lies in is cut there, also beside another such."""
        return (
            segment.start + self._cut_at % segment.size if segment.start <= self._cut_at < segment.end else segment.end
        )

    def _below_end(self, records: Generator[Records, None, FileEnd]) -> Generator[Records, None, FileEnd | None]:
        """Records up to the log's end; the value is None where that comes before the end of the scan."""
        while True:
            try:
                batch = next(records)
            except StopIteration as stop:
                end: FileEnd = stop.value
                return end
            is_below = batch.rows["physical_offset"] < self.end
            if is_below.any():
                yield batch._replace(rows=batch.rows[is_below])
            if not is_below.all():
                records.close()
                return None

    def _file(
        self, scan: FileScan, segment: Segment, position: int, known: int = -1
    ) -> Generator[Records, None, FileEnd]:
        with closing(LazySource.look(lambda: self._opened(segment))) as source:
            return (yield from scan.records(source, position, segment.start, known))

    def _opened(self, segment: Segment) -> ByteSource:
        source = self._overlay.open(segment.path)
        if source.size != segment.size:
            source.close()
            raise UnreadableError(f"{segment.path}: changed while it was read")
        return source

    def _scan(self, *, lenient: bool) -> FileScan:
        delays = () if self._rules.schedule_loaded_after_recovery and not lenient else self._options.delays_ms
        checker = RecordCheck(self._rules, self._options, lenient=lenient)
        record_crc = checker.needs_record_crc
        # Dispatch of plain records needs their bytes for the index alone; a checksum over all of one needs them all.
        columns_only = not (record_crc or self._options.enters_index)
        options = ScanOptions(
            delays, record_crc, block_size=DISPATCH_BLOCK_SIZE, digest=self._options.digest, columns_only=columns_only
        )
        return FileScan(checker, options, self._make_reader, self._plain)

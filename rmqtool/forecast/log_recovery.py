"""The log while a broker loads and starts: scan, truncation, and the records that are dispatched after the start.

Broker: `CommitLog#recoverNormally`, `#recoverAbnormally`, `ReputMessageService#doReput`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import RowBytes, Rows, batch_bytes
from rmqtool.engine.reading.log_end import FILES_FROM_END
from rmqtool.engine.rules.broker_rules import AbnormalStart, BrokerRules, NormalStart
from rmqtool.errors import UnreadableError
from rmqtool.forecast.load import LoadFailure
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.record_check import RecordCheck
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.checkpoint import Checkpoint
from rmqtool.formats.commitlog import MESSAGE_MAGICS, STORE_TIMESTAMP_AT, SYS_FLAG_AT
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan import columns
from rmqtool.scan.columns import Row, row_dtype
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, ScanOptions
from rmqtool.scan.row_columns import by_name
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.split import LazySource, Split, whole_file
from rmqtool.scan.walk import FRAME_SIZE, Batch, Walk
from rmqtool.store.directory import Segment
from rmqtool.store.overlay import Overlay
from rmqtool.store.source import ByteSource, read_range

MARGIN_MS: Final = 3000
EXTRA_FILES: Final = 3
"""Files before the right one that a start reads for the second side (`combineCQMaxExtraSearchCommitLogFiles`)."""
_FRAME = Struct(commitlog.BLANK.struct_code)
_TIME = Struct(">q")


@dataclass(frozen=True)
class FirstRecord:
    """First bytes of a file as the start-file tests see them.

    Attributes:
        has_magic: whether a message's magic that the version knows stands there.
        store_timestamp_ms: where a record has it, whatever lies there.
        checked: the record, if it passes the whole check.
    """

    has_magic: bool
    store_timestamp_ms: int
    checked: Row | None


@dataclass(frozen=True)
class StartChoice:
    """Finds the file in which recovery begins (`CommitLog#recoverNormally`, `#recoverAbnormally`).

    Attributes:
        first_record: looks at the start of a file.
        dispatched_end: the physical offset up to which the log counts as dispatched.
        in_database: whether the queues are in RocksDB, whose own end is compared instead of times.
        queues_end: the highest maxPhysicOffset of all queues.
        second: what the side says that does not assign queue offsets; None where there is none, or it is not asked.
        demands_second: whether no file does of which the second side says that it is too late.
        reads_second: whether that side answers pulls, and so has to be whole.
    """

    rules: BrokerRules
    options: ForecastOptions
    checkpoint: Checkpoint
    first_record: Callable[[Segment], FirstRecord]
    queues_end: int
    dispatched_end: int
    in_database: bool = False
    second: StartChoice | None = None
    demands_second: bool = False
    reads_second: bool = False

    def file_number(self, segments: Sequence[Segment], *, crashed: bool) -> int:
        """Number of the file in which recovery begins."""
        if not crashed and self.rules.normal_start is NormalStart.THIRD_FROM_END:
            return max(0, len(segments) - FILES_FROM_END)
        limit = self.options.recover_files_max or self.rules.recover_files_max
        if self.rules.recover_files_max is None:
            limit = None
        first = max(0, len(segments) - limit) if limit is not None else 0
        extra_files = EXTRA_FILES
        for number in range(len(segments) - 1, first - 1 if first or crashed else first, -1):
            if not self.matches(segments[number], crashed=crashed):
                continue
            if self.second is None or self.second.matches(segments[number], crashed=crashed):
                return number
            if self.demands_second:
                continue
            if not extra_files:
                if self.reads_second:
                    raise LoadFailure("the queues that are read have less than those that assign queue offsets")
                return number
            extra_files -= 1
        return first

    def matches(self, segment: Segment, *, crashed: bool) -> bool:
        """True if this side lets recovery begin with a file (`CommitLog#isMappedFileMatchedRecover`)."""
        rules = self.rules
        if not crashed and rules.normal_start is NormalStart.START_BELOW_QUEUES:
            return segment.start <= self.queues_end
        record = self.first_record(segment)
        row, index_timestamp_ms = record.checked, self.checkpoint.index_timestamp_ms
        times = (self.checkpoint.commitlog_timestamp_ms, self.checkpoint.consumequeue_timestamp_ms)
        minimum_timestamp_ms = max(0, min(times) - MARGIN_MS)  # `StoreCheckpoint#getMinTimestamp`
        is_index_counted = self.options.index_enabled and self.options.message_index_safe
        if crashed and rules.abnormal_start is AbnormalStart.MAGIC_AND_TIME:
            if record.has_magic and self.in_database:
                return (row.own_offset if row is not None else segment.start) <= self.dispatched_end
            if not record.has_magic or record.store_timestamp_ms == 0:
                return False
            limit_ms = min(minimum_timestamp_ms, index_timestamp_ms if is_index_counted else JAVA_LONG_MAX)
            return record.store_timestamp_ms <= limit_ms
        if row is None or row.store_timestamp_ms == 0:
            return False
        checks_index = is_index_counted and (crashed or rules.index_safe_on_normal_start)
        if checks_index and row.store_timestamp_ms > index_timestamp_ms:
            return False
        if not crashed or self.in_database:
            return row.own_offset <= self.dispatched_end
        if rules.abnormal_start is AbnormalStart.CHECKED_AND_TIME:
            return row.store_timestamp_ms <= minimum_timestamp_ms
        known = self.checkpoint.consumequeue_physical_offset  # CHECKED_AND_OFFSET
        if known > 0:
            return row.own_offset <= known
        return row.store_timestamp_ms <= self.checkpoint.consumequeue_timestamp_ms


@dataclass(frozen=True)
class ScanResult:
    """Result of a scan: the physical offsets at which it began and ended, and the finding at the end.

    None for untouched space, or where nothing follows.
    """

    begin: int
    end: int
    finding: str | None


class Records(NamedTuple):
    """Adjacent good records, with the fields that dispatch needs.

    `own_offset` is there where a single record says that it lies elsewhere than it does: dispatch believes it.
    """

    rows: Rows
    topics: list[bytes]
    texts: RowBytes
    own_offset: int | None = None


@dataclass(frozen=True)
class FileEnd:
    """Why the scan of a file ended, and at which file position.

    Attributes:
        is_blank: at an end-of-file blank, so that the next file follows.
        size: for a record whose lengths disagree what it claims, else -1 (dispatch continues after it).
        verdict: what the judge says of the place; None for zeros after which the file holds nothing.
    """

    position: int
    is_blank: bool
    size: int
    verdict: Verdict | None


PlainRecords = dict[tuple[str, tuple[int, ...], bool], int]
"""Physical offset of the last plain record at the start of a file, by its name, the delays and `record_crc`.

A plain record is one that all versions take for good; any thread may ask and note.
"""


@dataclass(frozen=True)
class FileScan:
    """Scans files from a position on; `plain` is what is known of them already, by scans of other versions."""

    checker: RecordCheck
    options: ScanOptions
    plain: PlainRecords

    def records(
        self, source: ByteSource, position: int, file_start: int, known: int = -1
    ) -> Generator[Records, None, FileEnd]:
        """Records from a file position on; the end is the generator's value.

        Args:
            file_start: physical offset of the file's first byte.
            known: records up to this physical offset may be skipped.
        """
        from_begin = position == 0
        last = self.plain.get((source.name, tuple(self.options.delays_ms), self.options.record_crc), -1)
        if from_begin and file_start <= last <= known:
            position = last - file_start  # the last of them is read again: its time is what a walk compares with
        while True:
            walk = self.options.walk(Split(source, position, source.size, file_start))
            end, position = yield from self._run(walk, position, notes=from_begin)
            if end is not None:
                return end
            from_begin = False

    def _run(self, walk: Walk, position: int, *, notes: bool) -> Generator[Records, None, tuple[FileEnd | None, int]]:
        """Follow one walk until it ends, or until the broker continues elsewhere than the judge.

        Args:
            notes: whether nothing but plain records lies before it.
        """
        base = walk.split.physical_offset
        for batch in walk.batches():
            rows = batch.as_array()
            column = by_name(rows)
            next_index = 0
            is_odd = (column["verdict"] != Verdict.GOOD) | (column["magic"] != commitlog.MAGIC_V1)
            is_odd |= (column["sys_flag"] & HOSTS_V6) != 0
            is_odd |= (column["features"] & columns.INNER_BATCH_NUMBERS) != 0
            odd = np.arange(rows.size) if self.checker.needs_record_crc else np.flatnonzero(is_odd)
            plain_count = int(odd[0]) if odd.size else rows.size
            if notes and plain_count:
                key = walk.split.source.name, tuple(self.options.delays_ms), self.options.record_crc
                self.plain[key] = int(column["physical_offset"][plain_count - 1])
            notes = notes and not odd.size
            for index in odd[self._are_doubtful(rows[odd])].tolist() if odd.size else ():
                if index > next_index:
                    yield Records(rows[next_index:index], batch.topics, batch_bytes(batch))
                position = int(column["physical_offset"][index]) - base
                checked = self.checker.check(walk, position)
                if not checked.success or checked.size == 0:
                    # The walk knows what lies around the place, and so calls it by a better name.
                    end_verdict = Verdict(int(column["verdict"][index])) or checked.verdict
                    return FileEnd(position, checked.success, checked.size, end_verdict), position
                assert checked.row is not None
                row = checked.row._replace(verdict=Verdict.GOOD)
                own_offset = row.own_offset if row.own_offset != row.physical_offset else None
                yield Records(np.array([row], row_dtype()), batch.topics, batch_bytes(batch), own_offset)
                position += checked.size
                if int(column["size"][index]) != checked.size:
                    return None, position
                next_index = index + 1
            if next_index < rows.size:
                yield Records(rows[next_index:], batch.topics, batch_bytes(batch))
                position = int(column["physical_offset"][-1] + column["size"][-1]) - base
        checked = self.checker.check(walk, position)
        is_untouched = walk.outcome.data_end <= position < walk.split.source.size  # nothing but zeros follows
        verdict = None if is_untouched else checked.verdict
        return FileEnd(position, is_blank=False, size=checked.size, verdict=verdict), position

    def _are_doubtful(self, rows: Rows) -> NDArray[np.bool_]:
        """Mask of the rows that may not be a good record to this broker."""
        if self.checker.needs_record_crc:
            return np.ones(rows.size, np.bool_)
        doubtful: NDArray[np.bool_] = (rows["verdict"] != Verdict.GOOD) | (rows["magic"] == commitlog.MAGIC_BLANK)
        rules = self.checker.rules
        if not rules.reads_v2:
            doubtful |= rows["magic"] == commitlog.MAGIC_V2
        if not rules.ipv6_hosts:
            doubtful |= (rows["sys_flag"] & HOSTS_V6) != 0
        if rules.checks_inner_batch_numbers:
            doubtful |= (rows["features"] & columns.INNER_BATCH_NUMBERS) != 0
        return doubtful


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
        self._plain = {} if plain is None else plain
        self._log_bytes = data_bytes

    @property
    def minimum(self) -> int:
        """First physical offset; -1 without any file."""
        return self.segments[0].start if self.segments else -1

    def first_record(self, segment: Segment) -> FirstRecord:
        """First record of a file."""
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
            row = None
            if magic in known and source.size >= FRAME_SIZE:
                walk = scan.options.walk(Split(source, 0, source.size, segment.start))
                checked = scan.checker.check(walk, 0)
                row = checked.row if checked.success else None  # None also of a blank
            return FirstRecord(magic in known, _TIME.unpack_from(head, at)[0], row)

    def scan(self, first: int, known: int = -1) -> Generator[Records, None, ScanResult]:
        """Good records from a file on, up to the end of the log; the result is the generator's value.

        Args:
            known: records up to this physical offset may be skipped.
        """
        scan = self._scan(lenient=False)
        number = first
        while True:
            segment = self.segments[number]
            end = yield from self._file(scan, segment, 0, known)
            if not end.is_blank or number + 1 == len(self.segments):
                verdict = end.verdict
                if verdict in (None, Verdict.MISSING_END_BLANK):
                    verdict = None
                    for later in self.segments[number + 1 :]:
                        with closing(self._opened(later)) as source:
                            if any(read_range(source, 0, FRAME_SIZE)):
                                verdict = Verdict.MISSING_END_BLANK
                                break
                finding = None if verdict is None else FINDING_IDS.get(verdict)
                return ScanResult(self.segments[first].start, segment.start + end.position, finding)
            number += 1

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
        """
        scan = self._scan(lenient=True)
        begin = max(begin, self.minimum)
        while begin < self.end:
            segment = next((candidate for candidate in self.segments if candidate.start <= begin < candidate.end), None)
            if segment is None:
                return begin
            readable_end = segment.end
            if segment.start <= self._cut_at < segment.end:  # a file is cut at the log's end, also if others are
                readable_end = segment.start + self._cut_at % segment.size
            if begin >= readable_end:
                return begin
            end = yield from self._below_end(self._file(scan, segment, begin - segment.start))
            if end is None:
                return None
            if segment.start + end.position >= readable_end:
                begin = readable_end
            elif not end.is_blank and end.size > 0:
                begin = segment.start + end.position + end.size
            elif not end.is_blank and self._options.is_slave and segment.start + end.position < self.end:
                return segment.start + end.position
            else:
                begin = segment.end
        return None

    def member_end(self) -> int:
        """Where the last entry of a log of DLedger ends, or its last file where that is full."""
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
        """The good records of a log of DLedger, from a physical offset on to its last entry."""
        for segment in self.segments:
            for batch in self._entries(segment) if segment.has_entries and segment.end > begin else ():
                rows = batch.as_array()
                is_good = (rows["verdict"] == Verdict.GOOD) & (rows["magic"] != commitlog.MAGIC_BLANK)
                is_good &= rows["physical_offset"] >= begin
                yield Records(rows[is_good], batch.topics, batch_bytes(batch))

    def _entries(self, segment: Segment) -> Iterator[Batch]:
        options = ScanOptions(self._options.delays_ms, block_size=DISPATCH_BLOCK_SIZE, log_bytes=self._log_bytes)
        with closing(self._opened(segment)) as source:
            split = whole_file(source, segment.start, more_follows=False, has_entries=True)
            yield from options.walk(split).batches()

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
            delays,
            record_crc,
            block_size=DISPATCH_BLOCK_SIZE,
            cache=self._options.cache,
            columns_only=columns_only,
            log_bytes=self._log_bytes,
        )
        return FileScan(checker, options, self._plain)

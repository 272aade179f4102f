"""Judges the records of a log that arrives in pieces: only whole ones that pass all checks are let through.

What counts as good is decided by `scan`, as for any log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from rmqtool.errors import RmqtoolError
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, MAGIC_BLANK, MESSAGE_MAGICS
from rmqtool.scan.blocks import Window
from rmqtool.scan.columns import Row
from rmqtool.scan.judge import TopicTable, judge_frame
from rmqtool.scan.log import is_compiled_faster, reader_for
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import FRAME_SIZE, PlainReader, RecordReader, Walk
from rmqtool.store.source import BytesSource

RECORD_SIZE_MAX: Final = 128 << 20
"""Bytes of a record that are held until it is whole; the broker's default limit of a message is 4 MiB."""
LOG_FILE_SIZE_MAX: Final = (1 << 31) - 1
TOPICS_MAX: Final = 100_000
"""Topics that are remembered; beyond that the table starts again."""
_TIMESTAMP: Final = Row._fields.index("store_timestamp_ms")


class DivergedError(RmqtoolError):
    """The master's log does not continue the copy, or has something in it that is no good record."""

    exit_code = 3

    def __init__(self, finding: str, physical_offset: int, text: str) -> None:
        super().__init__(text)
        self.finding = finding
        self.physical_offset = physical_offset


@dataclass(frozen=True)
class BadRecord:
    """A record that is not let through."""

    physical_offset: int
    finding: str
    text: str

    def __str__(self) -> str:
        return f"{self.finding} at {self.physical_offset}: {self.text}"


@dataclass(frozen=True)
class CheckedRecords:
    """Result of a check of the first bytes of a part of the log.

    Attributes:
        length: bytes of whole good records, a blank not counted.
        blank_length: bytes of the blank after them, which ends the file; 0 where none stands there.
        bad: what follows them where that is neither a good record nor the start of one.
        needed_length: bytes until the next record is whole; 0 where even its size has not arrived.
        times_ms: store times of the first and the last of them; None where there is none.
        is_until: whether the next record is the one before which checking was to stop.
    """

    length: int = 0
    count: int = 0
    blank_length: int = 0
    bad: BadRecord | None = None
    needed_length: int = 0
    times_ms: tuple[int, int] | None = None
    is_until: bool = False


@dataclass(frozen=True)
class Until:
    """Where a copy ends.

    Attributes:
        physical_offset: before the first record at an offset or after it.
        time_ms: before the first record with a store time or a later one, after which no earlier record follows.
        is_now: the time is when the run starts: with all that the master has then, whatever its store times are.
    """

    physical_offset: int | None = None
    time_ms: int | None = None
    is_now: bool = False

    def count_before(self, rows: Sequence[Row]) -> int:
        """Number of the first rows that are before it, whatever follows them."""
        if self.physical_offset is not None:
            for index, row in enumerate(rows):
                if int(row[0]) >= self.physical_offset:
                    return index
        if self.time_ms is not None and not self.is_now:
            for index, time_ms in enumerate(_store_times(rows)):
                if time_ms >= self.time_ms:
                    return index
        return len(rows)


@dataclass(frozen=True)
class LateRecords:
    """Records that have a store time or a later one, although earlier ones follow them.

    Attributes:
        physical_offset: of the first of them.
        store_timestamp_ms: of the first of them.
    """

    physical_offset: int
    store_timestamp_ms: int
    count: int


class StoreTimes:
    """Finds which records were stored before a time, as they arrive; a broker's clock may be set at any time.

    Attributes:
        earlier_end: physical offset after the last record that was stored before it; None where there is none.
        late: records before `earlier_end` that were not.
        rest_count: records after `earlier_end`.
        last_ms: store time of the last record; None before there is one.
    """

    def __init__(self, time_ms: int) -> None:
        self._time_ms = time_ms
        self.earlier_end: int | None = None
        self.late: LateRecords | None = None
        self.rest_count = 0
        self.last_ms: int | None = None
        self._first_late: tuple[int, int] | None = None

    @property
    def is_past(self) -> bool:
        """True if the last record was stored at the time or later."""
        return self.last_ms is not None and self.last_ms >= self._time_ms

    def note(self, rows: Sequence[Row]) -> None:
        """Records arrived."""
        times = _store_times(rows)
        if not times:
            return
        late = [index for index, time_ms in enumerate(times) if time_ms >= self._time_ms]
        if late and self._first_late is None:
            self._first_late = int(rows[late[0]][0]), times[late[0]]
        if len(late) < len(times):
            last = max(index for index, time_ms in enumerate(times) if time_ms < self._time_ms)
            before = sum(index < last for index in late) + self.rest_count
            if before:
                assert self._first_late is not None
                self.late = LateRecords(*self._first_late, before + (self.late.count if self.late else 0))
            self.earlier_end = int(rows[last][0]) + int(rows[last][1])
            self.rest_count = len(times) - 1 - last
        else:
            self.rest_count += len(times)
        self.last_ms = times[-1]


class RecordChecker:
    """Judges the records of one log, in order."""

    def __init__(self, *, record_crc: bool = False) -> None:
        """`record_crc`: whether the store writes whole-record CRCs (enabledAppendPropCRC)."""
        self._record_crc = record_crc
        self._topics = TopicTable()
        self._reader: RecordReader = PlainReader()
        self._seen_bytes = 0

    def check(
        self,
        block: bytearray,
        physical_offset: int,
        room: int | None,
        until: Until | None = None,
        times: StoreTimes | None = None,
    ) -> CheckedRecords:
        """Judge bytes that start with a record.

        Args:
            room: bytes from there to the end of the log file; None where its size is not known.
            until: where to stop.
            times: is told of each record that is let through.
        """
        until = until or Until()
        self._choose_reader(len(block))
        source = BytesSource("received", block)
        walk = Walk(
            Split(source, 0, len(block), physical_offset),
            self._reader,
            record_crc=self._record_crc,
            block_size=max(1, len(block)),
            topics=self._topics,
            at_hand=Window.over(source, block),
        )
        checked, position = CheckedRecords(), 0
        while position + FRAME_SIZE <= len(block):
            following, rows = self._reader.run(walk, position, len(block))
            if not len(rows):
                frame = bytes(block[position : position + FRAME_SIZE])
                left = None if room is None else room - position
                stop = _judge_frame(frame, len(block) - position, physical_offset + position, left)
                if stop is not None:
                    return replace(stop, length=position, count=checked.count, times_ms=checked.times_ms)
                row = walk.judge(position)
                if row.verdict != Verdict.GOOD:
                    return replace(checked, length=position, bad=_bad(row.physical_offset, row.verdict, row.size))
                following, rows = position + row.size, [row]
            kept = until.count_before(rows)
            if kept:
                if times is not None:
                    times.note(rows[:kept])
                first, last = int(rows[0][_TIMESTAMP]), int(rows[kept - 1][_TIMESTAMP])
                span_ms = (checked.times_ms[0] if checked.times_ms else first, last)
                position = int(rows[kept - 1][0]) + int(rows[kept - 1][1]) - physical_offset
                checked = replace(checked, length=position, count=checked.count + kept, times_ms=span_ms)
            if kept < len(rows):
                return replace(checked, is_until=True)
            position = following
        return checked

    def _choose_reader(self, length: int) -> None:
        before, self._seen_bytes = self._seen_bytes, self._seen_bytes + length
        is_full = len(self._topics.names) > TOPICS_MAX
        if is_full:
            self._topics = TopicTable()
        if is_full or (is_compiled_faster(self._seen_bytes) and not is_compiled_faster(before)):
            self._reader = reader_for(self._seen_bytes)


def _judge_frame(frame: bytes, at_hand: int, physical_offset: int, room: int | None) -> CheckedRecords | None:
    """Verdict from size and magic of the next record; None for a message that is whole in the block."""
    remaining = LOG_FILE_SIZE_MAX if room is None else room
    verdict, size, magic = judge_frame(frame, remaining)
    if magic == MAGIC_BLANK and room is None and BLANK_SIZE_MIN <= size <= remaining:
        verdict = Verdict.GOOD
    if verdict != Verdict.GOOD:
        return CheckedRecords(bad=_bad(physical_offset, verdict, size))
    if size > RECORD_SIZE_MAX:
        text = f"{size} bytes in one record; more than {RECORD_SIZE_MAX} are not received"
        return CheckedRecords(bad=BadRecord(physical_offset, FINDING_IDS[Verdict.BAD_SIZE], text))
    if magic not in MESSAGE_MAGICS:
        return CheckedRecords(blank_length=size)
    return CheckedRecords(needed_length=size) if size > at_hand else None


def _store_times(rows: Sequence[Row]) -> list[int]:
    if isinstance(rows, list):
        return [row[_TIMESTAMP] for row in rows]
    column: list[int] = cast("Any", rows)["store_timestamp_ms"].tolist()
    return column


def _bad(physical_offset: int, verdict: int, size: int) -> BadRecord:
    text = f"the record, of {size} bytes by its size field, fails this check"
    return BadRecord(physical_offset, FINDING_IDS[Verdict(verdict)], text)

"""The walk over a split: every byte is accounted for as record, blank, bad range or untouched tail.

The plain reader, which needs no numpy, judges one record after the other; it serves small logs, first rows, doubtful
cases, and machines without a compiler. After damage the walk continues at the next record whose magic, lengths, own
offset and CRC are right: a foreign record inside a body fails at its own offset, so no part of a body is taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MAGIC_AT, MESSAGE_MAGICS, PHYSICAL_OFFSET_AT, SYS_FLAG_AT
from rmqtool.formats.system_flag import HOSTS_V6
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.scan.blocks import BLOCK_SIZE, Window, last_data_end
from rmqtool.scan.checksum import crc32
from rmqtool.scan.columns import Row, bare_row, row_dtype, row_tuples
from rmqtool.scan.judge import FRAME, TopicTable, judge_frame, judge_messages, judge_parts, judge_record
from rmqtool.scan.rules import KEEPS_ITS_LENGTH, Verdict
from rmqtool.scan.split import Split, SplitOutcome

if TYPE_CHECKING:
    import numpy

    from rmqtool.scan.row_columns import PlainRows


FRAME_SIZE: Final = 8
_HOST_FLAGS_AT: Final = SYS_FLAG_AT + 3
"""Position of the byte with the flags that widen hosts."""
_STORE_TIMESTAMP: Final = Row._fields.index("store_timestamp_ms")
STALE_MARGIN_MS: Final = 1000
"""A record after damage that is older than the one before it by more than this was written before the log was cut.

A broker needs longer than that to start, while a clock that is set steps back by less. Without damage between them
nothing is called stale here."""

WORK_BASE: Final = 64 << 20
WORK_PER_BYTE: Final = 8
WORK_FLOOR: Final = 1024
"""Least cost of judging, in bytes of a checksum.

All that a walk judges in vain is bounded by `WORK_BASE` and `WORK_PER_BYTE` times the file: records that a file claims
may overlap, and each may reach to the file's end. Records that do not overlap never need half of it.
"""


class KeyHashes(NamedTuple):
    """Index keys of a batch's messages, in the order of a broker version.

    `rows` are numbers among the batch's messages, one for each hash.
    """

    version: str
    hashes: numpy.ndarray[Any, Any]
    rows: numpy.ndarray[Any, Any]


@dataclass
class Batch:
    """Rows of one block. `rows` and the window's bytes are valid until the next batch is asked for.

    Attributes:
        rows: `Row` tuples from the plain reader, a structured array of `columns.row_dtype` from the compiled one.
        topics: names by topic number; grows from batch to batch of one split.
        keys: what its messages put into the index, as far as somebody has asked.
        is_noted: whether whoever asks for the keys is to leave them here.
        plain: the columns of its rows, which stay valid, once somebody has asked for them; see `plain_rows`.
    """

    split: Split
    rows: Sequence[Row]
    topics: list[bytes]
    window: Window
    keys: KeyHashes | None = None
    is_noted: bool = False
    plain: PlainRows | None = None

    def as_rows(self) -> list[Row]:
        """The rows as `Row` tuples of Python numbers."""
        return row_tuples(self.rows)

    def as_array(self) -> numpy.ndarray[Any, Any]:
        """The rows as a structured array of `columns.row_dtype`."""
        if isinstance(self.rows, list):
            import numpy

            self.rows = cast("Sequence[Row]", numpy.array(self.rows, row_dtype()))
        return cast("numpy.ndarray[Any, Any]", self.rows)

    def read(self, row: Row, position: int, length: int) -> bytes:
        """Bytes of a row's record, from `position` in it."""
        start = row.physical_offset - self.split.physical_offset
        return bytes(self.window.bytes_at(start + position, min(length, row.size - position)))

    def read_many(self, places: Sequence[int], positions: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Bytes of many records, each from a position in it, by their physical offsets."""
        base = self.split.physical_offset
        if self._content is None:
            return [
                bytes(self.window.bytes_at(place - base + position, length))
                for place, position, length in zip(places, positions, lengths, strict=True)
            ]
        content, begin = self._content, int(self.rows[0][0])
        return [
            content[(start := place - begin + position) : start + length]
            for place, position, length in zip(places, positions, lengths, strict=True)
        ]

    @property
    def is_at_hand(self) -> bool:
        """True if the window holds all bytes of the rows."""
        base = self.split.physical_offset
        return self.window.holds(int(self.rows[0][0]) - base, int(self.rows[-1][0]) + int(self.rows[-1][1]) - base)

    def may_hold(self, text: bytes) -> bool:
        """True if the records may hold a text; False only where all their bytes are in the window."""
        return self._content is None or text in self._content

    @cached_property
    def _content(self) -> bytes | None:
        """All bytes of the rows; None where the window does not hold them."""
        begin, end = int(self.rows[0][0]), int(self.rows[-1][0]) + int(self.rows[-1][1])
        position = begin - self.split.physical_offset
        return bytes(self.window.bytes_at(position, end - begin)) if self.is_at_hand else None


class RecordReader(Protocol):
    """Judges many good records at once; whatever is not plainly good it leaves to the walk."""

    def run(self, walk: Walk, position: int, limit: int) -> tuple[int, Sequence[Row]]:
        """Rows of good records that begin in [position, limit) and lie whole in the window; the position after."""


class BatchSource(Protocol):
    """Known results for a log (`RowCache`): gives a walk its batches, from those of earlier walks where it can."""

    def batches(self, walk: Walk, *, answers: bool) -> Iterator[Batch]:
        """The batches of a walk.

        Args:
            answers: whether the columns that are kept do, without the bytes of the records.
        """


@dataclass
class Walk:
    """State of the scan of one split.

    Attributes:
        delays_ms: of the broker's delay levels, for the tags code of the schedule topic.
        record_crc: whether the store writes whole-record CRCs; elsewhere a property of that name is the application's.
        cache: what is known of the log, and is told what this walk sees.
        columns_only: whether the columns that a cache keeps are enough for whoever asks.
        keys_of: the version whose `KeyHashes` are needed beside the columns; None needs none.
    """

    split: Split
    reader: RecordReader
    delays_ms: Sequence[int] = field(default_factory=parse_delay_levels)
    record_crc: bool = False
    block_size: int = BLOCK_SIZE
    topics: TopicTable = field(default_factory=TopicTable)
    outcome: SplitOutcome = field(default_factory=SplitOutcome)
    cache: BatchSource | None = None
    columns_only: bool = False
    keys_of: str | None = None
    at_hand: InitVar[Window | None] = None
    """A window that shows the split already; else one of `block_size` is moved over it."""

    def __post_init__(self, at_hand: Window | None) -> None:
        self.window = at_hand or Window(self.split.source, self.block_size)
        self._work_left = WORK_BASE + WORK_PER_BYTE * self.split.source.size
        self._work_done = 0
        self._judged: tuple[int, Row] | None = None
        self._last_store_timestamp_ms = 0

    def batches(self) -> Iterator[Batch]:
        """Rows of the split. What the disk does not give is a bad range and no exception."""
        return self.scanned() if self.cache is None else self.cache.batches(self, answers=self.columns_only)

    def scanned(self) -> Iterator[Batch]:
        """Batches of the split, read from its bytes."""
        split, size = self.split, self.split.source.size
        position: int | None = split.start
        if split.anchor:
            position = find_next(self.window, split.start, split.end, split.physical_offset, self._is_good)
        self.outcome.first_record = position
        if position is None:
            return
        end = min(split.end, size)
        while position < end:
            if not (self.window.start <= position and position + FRAME_SIZE <= self.window.end):
                self.window.fill(position, end)
            position, rows = self.reader.run(self, position, end)
            if len(rows):
                self._last_store_timestamp_ms = int(rows[-1][_STORE_TIMESTAMP])
                if self.outcome.stale and isinstance(rows, list):
                    rows = [row._replace(verdict=Verdict.STALE) for row in rows]
                elif self.outcome.stale:
                    cast("numpy.ndarray[Any, Any]", rows)["verdict"] = Verdict.STALE
                yield self._batch(rows)
            if position >= end:
                break
            if self.window.start < position and self._may_reach_behind_window(position):
                self.window.fill(position, end)
                continue
            position = yield from self._beyond_good(position, self.judge(position))
        if self.outcome.ended:
            return
        self.outcome.data_end = position
        if position == size and split.more_follows:
            yield self._batch([bare_row(split.physical_offset + size, 0, Verdict.MISSING_END_BLANK)])

    def judge(self, position: int) -> Row:
        """Judge whatever is at a file position, however long; a good blank is a row with the blank's magic."""
        if self._judged is None or self._judged[0] != position:
            self._work_done = 0
            self._judged = position, self._judge(position)
        return self._judged[1]

    def judge_with_narrow_hosts(self, position: int) -> Row:
        """Judge a message whose frame is good as brokers do to which every host is IPv4, whatever the flags say."""
        head = bytearray(self.window.bytes_at(position, commitlog.HEAD_SIZE_MAX))
        head[_HOST_FLAGS_AT] &= ~HOSTS_V6
        return self._judge_parts(position, memoryview(head))

    def _judge(self, position: int) -> Row:
        physical_offset = self.split.physical_offset + position
        remaining = self.split.source.size - position
        if remaining < FRAME_SIZE:
            return self._readable(bare_row(physical_offset, remaining, Verdict.BAD_SIZE), position, remaining)
        verdict, length, magic = judge_frame(self.window.bytes_at(position, FRAME_SIZE), remaining)
        if verdict != Verdict.GOOD or magic not in MESSAGE_MAGICS:
            return self._readable(bare_row(physical_offset, length, verdict, magic), position, FRAME_SIZE)
        if length <= self.block_size:
            self._work_done += length
            record = memoryview(self.window.bytes_at(position, length))
            row = judge_record(record, physical_offset, self.topics, self.delays_ms, self.record_crc)
        else:
            row = self._judge_parts(position, memoryview(self.window.bytes_at(position, commitlog.HEAD_SIZE_MAX)))
        return self._readable(row, position, length)

    def _judge_parts(self, position: int, head: memoryview) -> Row:
        return judge_parts(
            head,
            lambda start, size: self._read(position + start, size),
            lambda start, stop: self.checksum_of(position + start, position + stop),
            self.split.physical_offset + position,
            self.topics,
            self.delays_ms,
            self.record_crc,
        )

    def _may_reach_behind_window(self, position: int) -> bool:
        """True if filling the window from here could show the reader more of this record."""
        at_hand = self.window.end - position
        if self.window.end >= self.split.source.size:
            return False
        if at_hand < FRAME_SIZE:
            return True
        _, length, _ = judge_frame(self.window.bytes_at(position, FRAME_SIZE), self.split.source.size - position)
        return at_hand < length <= self.block_size

    def _beyond_good(self, position: int, row: Row) -> Generator[Batch, None, int]:
        """Handle one row that the reader left over; return the next position."""
        size = self.split.source.size
        if row.verdict == Verdict.GOOD:
            if row.magic == commitlog.MAGIC_BLANK:
                self.outcome.ended = True
                self.outcome.data_end = size
            else:
                self._last_store_timestamp_ms = row.store_timestamp_ms
            yield self._batch([row._replace(verdict=Verdict.STALE) if self.outcome.stale else row])
            return position + row.size
        self._work_left -= max(WORK_FLOOR, self._work_done)
        following = self._where_it_goes_on(position, row)
        if following is not None:
            was_stale = self.outcome.stale
            # A new log that ends here seldom ends with a record of the length of the old one.
            is_next = row.verdict in KEEPS_ITS_LENGTH and _is_whole(row) and following == position + row.size
            self.outcome.stale = was_stale or (not is_next and self._is_stale(following))
            # A cut log leaves the rest of an old record before the whole ones: that is no damage either.
            leftover = self.outcome.stale and (was_stale or row.verdict not in KEEPS_ITS_LENGTH)
            yield self._bad(position, following, self._gap_verdict(position, following, row, stale=leftover))
            return following
        self.outcome.ended = True
        yield from self._last_range(position, row, last_data_end(self.split.source, position, size))
        return size

    def _last_range(self, position: int, row: Row, data_end: int) -> Iterator[Batch]:
        """The bytes between the last good record and the end of the file."""
        size = self.split.source.size
        if self.split.more_follows:
            self.outcome.data_end = size
            verdict = self._gap_verdict(position, size, row, stale=False)
            untouched = data_end == position > 0 and verdict != Verdict.UNREADABLE_RANGE
            yield self._bad(position, size, Verdict.MISSING_END_BLANK if untouched else verdict)
            return
        if _is_whole(row):
            data_end = max(data_end, position + row.size)  # its last bytes may be zeros: properties of length 0
        self.outcome.data_end = data_end
        self.outcome.tail_bytes = size - data_end
        if data_end == position:
            return
        # Frame right, claimed end in the zeros after the last byte: the record never arrived whole.
        torn = (
            row.verdict in (Verdict.BAD_LENGTHS, Verdict.BODY_CRC_MISMATCH)
            and not _is_whole(row)
            and position + row.size > data_end
        )
        stub = data_end - position < FRAME_SIZE and row.verdict != Verdict.UNREADABLE_RANGE
        if (torn or stub) and not self.outcome.stale:
            verdict = Verdict.TORN_RECORD
        else:
            verdict = self._gap_verdict(position, data_end, row, stale=self.outcome.stale)
        yield self._bad(position, data_end, verdict)

    def _where_it_goes_on(self, position: int, row: Row) -> int | None:
        """Position at which the log continues after a bad record; None if it does not."""
        size, start = self.split.source.size, position + 1
        if (row.verdict in KEEPS_ITS_LENGTH and _is_whole(row)) or row.verdict == Verdict.UNREADABLE_RANGE:
            claimed_end = position + row.size
            if row.size >= commitlog.RECORD_SIZE_MIN and claimed_end < size and self._continues(row, claimed_end):
                return claimed_end
            unreadable = self.window.unreadable_in(position, min(size, position + max(row.size, FRAME_SIZE)))
            if row.verdict == Verdict.UNREADABLE_RANGE and unreadable:
                start = max(start, unreadable[1])
        return find_next(self.window, start, size, self.split.physical_offset, self._is_good)

    def _continues(self, row: Row, position: int) -> bool:
        """True if the bytes at a bad record's claimed end show that the record ends there."""
        if self._is_good(position):
            return True
        following = self.judge(position)
        # Two damaged bodies in a row: all lengths of both agree, and the second one says where it lies.
        return _is_whole(row) and _is_whole(following) and following.own_offset == following.physical_offset

    def _is_good(self, position: int) -> bool | None:
        """True if a good record or blank begins here; None once the walk has judged enough in vain."""
        if self._work_left < 0:
            return None
        verdict = self.judge(position).verdict
        self._work_left -= max(WORK_FLOOR, self._work_done)
        return verdict == Verdict.GOOD

    def _gap_verdict(self, start: int, end: int, row: Row, *, stale: bool) -> Verdict:
        """Verdict on the bytes of [start, end), which begin with this bad row."""
        if row.verdict == Verdict.UNREADABLE_RANGE:
            return Verdict.UNREADABLE_RANGE
        if stale:
            return Verdict.STALE
        zeros_in_front = row.size == 0 and row.magic == 0
        # From the middle of a record on: none ends in eight zero bytes, for the last ones are text, or the length of
        # no properties after a topic.
        cut_short = (
            row.magic in MESSAGE_MAGICS
            and commitlog.RECORD_SIZE_MIN <= row.size <= end - start
            and not _is_whole(row)
            and not any(self.window.bytes_at(start + row.size - FRAME_SIZE, FRAME_SIZE))
        )
        return Verdict.HOLE if zeros_in_front or cut_short else Verdict(row.verdict)

    def _is_stale(self, position: int) -> bool:
        row = self.judge(position)
        return (
            not self.split.more_follows
            and row.magic in MESSAGE_MAGICS
            and 0 < row.store_timestamp_ms < self._last_store_timestamp_ms - STALE_MARGIN_MS
        )

    def _readable(self, row: Row, position: int, length: int) -> Row:
        if self.window.unreadable_in(position, position + length):
            return bare_row(row.physical_offset, row.size, Verdict.UNREADABLE_RANGE, row.magic)
        return row

    def _bad(self, start: int, end: int, verdict: Verdict) -> Batch:
        return self._batch([bare_row(self.split.physical_offset + start, end - start, verdict)])

    def _read(self, position: int, length: int) -> bytes | bytearray | memoryview:
        self._work_done += length
        return self.window.bytes_at(position, length)

    def checksum_of(self, start: int, end: int) -> int:
        """CRC-32 of the file's bytes [start, end)."""
        self._work_done += end - start
        value = 0
        for part in self.window.chunks(start, end):
            value = crc32(part, value)
        return value

    def _batch(self, rows: Sequence[Row]) -> Batch:
        return Batch(self.split, rows, self.topics.names, self.window)


def _is_whole(row: Row) -> bool:
    """True if all lengths of the row's record agree, so that it has its fields."""
    return row.topic_length > 0


FIRST_STEP: Final = 4 << 10
SEARCH_STEP: Final = 256 << 10
"""Bytes that are searched at once: few at first, for most searches end soon, and ever more up to this."""
_MAGIC: Final = re.compile(b"|".join(re.escape(raw) for raw in commitlog.MAGIC_BYTES.values()))
_LOOKED_AT: Final = PHYSICAL_OFFSET_AT + 8
"""Bytes of a candidate that are looked at before it is judged."""


def find_next(
    window: Window, start: int, end: int, physical_offset: int, is_good: Callable[[int], bool | None]
) -> int | None:
    """File position of the first good record or end-of-file blank in [start, end); None if there is none.

    Args:
        physical_offset: of the file's first byte.
        is_good: judges what begins at a file position; None ends the search.
    """
    size = window.source.size
    for position, head in _candidates(window, start, end):
        if len(head) < commitlog.BLANK_SIZE_MIN:
            continue
        verdict, _, magic = judge_frame(head, size - position)
        if verdict != Verdict.GOOD:
            continue
        if magic not in MESSAGE_MAGICS:
            return position
        # The own offset costs nothing and excludes nearly every foreign record; the judge looks at it last.
        if int.from_bytes(head[PHYSICAL_OFFSET_AT:], "big", signed=True) != physical_offset + position:
            continue
        is_record = is_good(position)
        if is_record is None:
            return None
        if is_record:
            return position
    return None


def _candidates(window: Window, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Positions at which a magic is where a record would have it, with the first bytes from there."""
    for extent_start, extent_end in window.source.extents(start, end):
        # The size before a magic may begin with zeros, which may lie in the hole before the extent.
        at, step = max(start, extent_start - MAGIC_AT), FIRST_STEP
        while at < extent_end:
            block = bytes(window.bytes_at(at, step + _LOOKED_AT))
            last = min(step, end - at)
            for match in _MAGIC.finditer(block, MAGIC_AT, last + commitlog.BLANK_SIZE_MIN - 1):
                begin = match.start() - MAGIC_AT
                yield at + begin, block[begin : begin + _LOOKED_AT]
            at += step
            step = min(2 * step, SEARCH_STEP)


class PlainReader:
    """A `walk.Reader` without a compiled kernel."""

    def run(self, walk: Walk, position: int, limit: int) -> tuple[int, Sequence[Row]]:
        split, window = walk.split, walk.window
        base = window.start
        end = window.readable_end(position)
        at, rows = judge_messages(
            window.buffer[: end - base],
            split.source.size - base,
            split.physical_offset + base,
            range(position - base, min(limit, end - FRAME.size + 1) - base),
            walk.topics,
            walk.delays_ms,
            walk.record_crc,
        )
        return base + at, rows

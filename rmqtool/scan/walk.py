"""The walk over a piece: record after record, every byte accounted for as record, blank, bad range or untouched tail."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from rmqtool.formats import commitlog
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.scan.blocks import BLOCK_SIZE, Window, last_data_end
from rmqtool.scan.checksum import crc32
from rmqtool.scan.columns import Row, bare_row, row_dtype
from rmqtool.scan.judge import HEAD_READ, MESSAGE_MAGICS, TopicTable, judge_frame, judge_parts, judge_record
from rmqtool.scan.piece import Piece
from rmqtool.scan.resync import find_next
from rmqtool.scan.rules import KEEPS_ITS_LENGTH, Verdict

if TYPE_CHECKING:
    import numpy

FRAME_SIZE: Final = 8
_STORE_TIMESTAMP: Final = Row._fields.index("store_timestamp_ms")
STALE_MARGIN_MS: Final = 1000
"""A record behind damage that is older than the one before it by more than this was written before the log was cut: a broker needs longer than that
to start, while a clock that is set steps back by less. Without damage between them nothing is called stale here."""


@dataclass
class Batch:
    """Rows of one block. `rows` and the window's bytes are valid until the next batch is asked for.

    Attributes:
        rows: `Row` tuples from the plain reader, a structured array of `columns.row_dtype` from the compiled one.
        topics: names by topic number; grows from batch to batch of one piece.
    """

    piece: Piece
    rows: Sequence[Row]
    topics: list[bytes]
    window: Window

    def as_rows(self) -> list[Row]:
        """The rows as `Row` tuples of Python numbers."""
        if isinstance(self.rows, list):
            return self.rows
        return [Row._make(values) for values in cast("numpy.ndarray[Any, Any]", self.rows).tolist()]

    def as_array(self) -> numpy.ndarray[Any, Any]:
        """The rows as a structured array of `columns.row_dtype`."""
        if isinstance(self.rows, list):
            import numpy as np

            return np.array(self.rows, row_dtype())
        return cast("numpy.ndarray[Any, Any]", self.rows)

    def read(self, row: Row, position: int, length: int) -> bytes:
        """Bytes of a row's record, from `position` in it."""
        start = row.physical_offset - self.piece.physical_offset
        return bytes(self.window.bytes_at(start + position, min(length, row.size - position)))


@dataclass
class Outcome:
    """What is known when a piece is done; `data_end` is the file position behind its last record or bad range."""

    data_end: int = 0
    first_record: int | None = None
    tail_bytes: int = 0
    """Zeros behind `data_end` that are the untouched rest of the file."""


class Reader(Protocol):
    """Judges many good records at once; whatever is not plainly good it leaves to the walk."""

    def run(self, walk: Walk, position: int, limit: int) -> tuple[int, Sequence[Row]]:
        """Rows of the good records that begin in [position, limit) and lie whole in the window, and the position behind them."""

    def mark_stale(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows with the verdict STALE."""


@dataclass
class Walk:
    """State of the scan of one piece.

    Attributes:
        delays_ms: of the broker's delay levels, for the tags code of the schedule topic.
        record_crc: whether the store writes whole-record CRCs; elsewhere a property of that name is the application's own text.
    """

    piece: Piece
    reader: Reader
    delays_ms: Sequence[int] = field(default_factory=parse_delay_levels)
    record_crc: bool = False
    block_size: int = BLOCK_SIZE
    topics: TopicTable = field(default_factory=TopicTable)
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.window = Window(self.piece.source, self.block_size)
        self._last_store_timestamp_ms = 0
        self._stale = False
        self._ended = False

    def batches(self) -> Iterator[Batch]:
        """Scan the piece.

        Raises:
            OSError: never; what the disk does not give is a bad range.
        """
        piece, size = self.piece, self.piece.source.size
        position = self._begin()
        self.outcome.first_record = position
        end = min(piece.end, size)
        while position is not None and position < end:
            if not (self.window.start <= position and position + FRAME_SIZE <= self.window.end):
                self.window.fill(position)
            position, rows = self.reader.run(self, position, end)
            if len(rows):
                self._last_store_timestamp_ms = int(rows[-1][_STORE_TIMESTAMP])
                yield self._batch(self.reader.mark_stale(rows) if self._stale else rows)
            if position >= end:
                break
            if self.window.start < position and self._may_reach_behind_window(position):
                self.window.fill(position)
                continue
            row = self.judge(position)
            position = yield from self._beyond_good(position, row)
        if position == size and piece.more_follows and not self._ended:
            yield self._batch([bare_row(piece.physical_offset + size, 0, Verdict.MISSING_END_BLANK)])
        if position is not None and not self._ended:
            self.outcome.data_end = min(position, size)

    def judge(self, position: int) -> Row:
        """Judge whatever is at a file position, however long; a good blank is a row with the blank's magic."""
        physical_offset = self.piece.physical_offset + position
        remaining = self.piece.source.size - position
        if remaining < FRAME_SIZE:
            return bare_row(physical_offset, remaining, Verdict.BAD_SIZE)
        verdict, length, magic = judge_frame(self.window.bytes_at(position, FRAME_SIZE), remaining)
        if verdict != Verdict.GOOD or magic not in MESSAGE_MAGICS:
            return self._readable(bare_row(physical_offset, length, verdict, magic), position, FRAME_SIZE)
        if length <= self.block_size:
            record = memoryview(self.window.bytes_at(position, length))
            row = judge_record(record, physical_offset, self.topics, self.delays_ms, self.record_crc)
        else:
            row = judge_parts(
                memoryview(self.window.bytes_at(position, HEAD_READ)),
                lambda start, size: self.window.bytes_at(position + start, size),
                lambda start, stop: self._checksum(position + start, position + stop),
                physical_offset,
                self.topics,
                self.delays_ms,
                self.record_crc,
            )
        return self._readable(row, position, length)

    def _begin(self) -> int | None:
        if not self.piece.anchor:
            return self.piece.start
        found = find_next(self.window, self.piece.start, self.piece.physical_offset, self._verdict_at, self.piece.end)
        return found if found is not None and found < self.piece.end else None

    def _may_reach_behind_window(self, position: int) -> bool:
        """Whether filling the window from here could show the reader more of this record."""
        at_hand = self.window.end - position
        if self.window.end >= self.piece.source.size:
            return False
        if at_hand < FRAME_SIZE:
            return True
        _, length, _ = judge_frame(self.window.bytes_at(position, FRAME_SIZE), self.piece.source.size - position)
        return at_hand < length <= self.block_size

    def _beyond_good(self, position: int, row: Row) -> Generator[Batch, None, int]:
        """Deal with one row that the reader left over; the next position."""
        size = self.piece.source.size
        if row.verdict == Verdict.GOOD:
            if row.magic == commitlog.MAGIC_BLANK:
                self._ended = True
                self.outcome.data_end = size
            else:
                self._last_store_timestamp_ms = row.store_timestamp_ms
            yield self._batch([row._replace(verdict=Verdict.STALE) if self._stale else row])
            return position + row.size
        following = self._next_good(position, row)
        if following is not None:
            yield self._bad(
                position, following, Verdict.HOLE if self._is_hole(position, following, row) else Verdict(row.verdict)
            )
            self._stale = self._stale or self._is_stale(following)
            return following
        self._ended = True
        yield from self._last_range(position, row, last_data_end(self.piece.source, position, size))
        return size

    def _last_range(self, position: int, row: Row, data_end: int) -> Iterator[Batch]:
        """What lies between the last good record and the end of the file."""
        size = self.piece.source.size
        if self.piece.more_follows:
            whole = Verdict.HOLE if position == 0 else Verdict.MISSING_END_BLANK
            verdict = whole if data_end == position else Verdict(row.verdict)
            self.outcome.data_end = size
            yield self._bad(position, size, verdict)
            return
        self.outcome.data_end = data_end
        self.outcome.tail_bytes = size - data_end
        if data_end > position:
            # The claimed end lies in the zeros behind the last byte: the record never arrived whole.
            torn = row.verdict != Verdict.UNREADABLE_RANGE and (row.size <= 0 or position + row.size > data_end)
            verdict = (
                Verdict.TORN_RECORD
                if torn and row.magic in MESSAGE_MAGICS or data_end - position < FRAME_SIZE
                else Verdict(row.verdict)
            )
            yield self._bad(position, data_end, verdict)

    def _next_good(self, position: int, row: Row) -> int | None:
        """Where the log goes on behind a bad record."""
        size = self.piece.source.size
        unreadable = self.window.unreadable_in(position, position + max(row.size, FRAME_SIZE))
        if row.verdict in KEEPS_ITS_LENGTH and self._continues(position + row.size):
            return position + row.size
        start = unreadable[1] if unreadable and row.verdict == Verdict.UNREADABLE_RANGE else position + 1
        return find_next(self.window, start, self.piece.physical_offset, self._verdict_at, size)

    def _continues(self, position: int) -> bool:
        """Whether a good record or blank begins here."""
        return position < self.piece.source.size and self._verdict_at(position) in (Verdict.GOOD, None)

    def _is_hole(self, start: int, end: int, row: Row) -> bool:
        """Whether zeros stand in the place of records: everywhere, or from the middle of the first one on."""
        if row.verdict == Verdict.UNREADABLE_RANGE:
            return False
        if row.magic in MESSAGE_MAGICS and 0 < row.size <= end - start:
            # No record ends in eight zero bytes: its last bytes are text, or the length of properties behind a topic.
            return not any(self.window.bytes_at(start + row.size - FRAME_SIZE, FRAME_SIZE))
        return last_data_end(self.piece.source, start, end) == start

    def _verdict_at(self, position: int) -> Verdict | None:
        row = self.judge(position)
        if row.verdict == Verdict.GOOD and row.magic == commitlog.MAGIC_BLANK:
            return None
        return Verdict(row.verdict)

    def _is_stale(self, position: int) -> bool:
        row = self.judge(position)
        return (
            not self.piece.more_follows
            and row.magic in MESSAGE_MAGICS
            and 0 < row.store_timestamp_ms < self._last_store_timestamp_ms - STALE_MARGIN_MS
        )

    def _readable(self, row: Row, position: int, length: int) -> Row:
        if self.window.unreadable and self.window.unreadable_in(position, position + max(length, FRAME_SIZE)):
            return bare_row(row.physical_offset, row.size, Verdict.UNREADABLE_RANGE, row.magic)
        return row

    def _bad(self, start: int, end: int, verdict: Verdict) -> Batch:
        return self._batch([bare_row(self.piece.physical_offset + start, end - start, verdict)])

    def _checksum(self, start: int, end: int) -> int:
        value = 0
        for part in self.window.chunks(start, end):
            value = crc32(part, value)
        return value

    def _batch(self, rows: Sequence[Row]) -> Batch:
        return Batch(self.piece, rows, self.topics.names, self.window)

"""Position of a stream or a watch in the log, the proof that it is still the same log, and where the log ends now.

A position is known by the start of the file that it lies in and by the bytes before it: both are never written again,
so another log, one that was put back from a copy, or one that was cut has others. What cannot be read there is an
UnreadableError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from rmqtool.errors import UnreadableError
from rmqtool.formats.commitlog import HEAD_SIZE
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.log import ScanOptions, carries_record_crc, first_row_from, starts_with_data
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split, whole_file
from rmqtool.scan.walk import FRAME_SIZE
from rmqtool.store.checkpoint_file import readable_checkpoint
from rmqtool.store.directory import Segment, Store
from rmqtool.store.probe_lock import lock_report
from rmqtool.store.source import read_range
from rmqtool.store.view import DirectoryView, StoreView

BEFORE_SIZE: Final = 64
"""Bytes before a position that tell it; of a record these are its properties, which hold its unique key."""
MARK_LENGTH: Final = 16
BLOCK_SIZE: Final = 4 << 20
"""Bytes of a window: its rows are one record batch in Spark, of which few should be made."""
END_BLOCK_SIZE: Final = 256 << 10
"""Bytes of a window that looks for the log's end: of a little that is new little is read."""


@dataclass(frozen=True)
class Position:
    """Where a stream continues.

    Attributes:
        last_record: physical offset of the last record before it; None where it is the start of a file.
        mark: see `mark_of`; None where there is nothing before it.
        trail: positions before it with their marks, the newest first: one for each power of two of bytes between.
    """

    physical_offset: int
    last_record: int | None = None
    mark: str | None = None
    trail: tuple[tuple[int, str], ...] = ()

    @classmethod
    def parse(cls, value: int | Mapping[str, Any]) -> Position:
        """A position of a checkpoint; those of rmqtool 0.2 are numbers.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        if isinstance(value, int):
            return cls(_offset(value))
        last_record, mark = value.get("last_record"), value.get("mark")
        if not isinstance(mark, str | None):
            raise TypeError(mark)
        trail = tuple((_offset(at), str(told)) for at, told in value.get("trail", ()))
        last_record = None if last_record is None else _offset(last_record)
        return cls(_offset(value["physical_offset"]), last_record, mark, trail)

    def as_json(self) -> dict[str, Any]:
        """The position as a checkpoint keeps it."""
        trail = {"trail": [list(told) for told in self.trail]} if self.trail else {}
        return {"physical_offset": self.physical_offset, "last_record": self.last_record, "mark": self.mark, **trail}


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= JAVA_LONG_MAX:
        raise ValueError(value)
    return value


def mark_of(store: Store, physical_offset: int) -> str | None:
    """Tells the bytes before a physical offset: a digest of the first record's fixed fields in their file, and of the
    last bytes before the zeros at its end; None where no file has them, or the file holds none yet.

    Raises:
        UnreadableError: they cannot be read.
    """
    return _mark(store, physical_offset, before_zeros=True)


def _mark(store: Store, physical_offset: int, *, before_zeros: bool) -> str | None:
    segment = store.segment_at(physical_offset - 1)
    if segment is None:
        return None
    position = physical_offset - segment.start
    with closing(store.view.open(segment.path)) as source:
        first = read_range(source, 0, min(HEAD_SIZE, position))
        end = last_data_end(source, 0, position) if before_zeros else position
        begin = max(0, end - BEFORE_SIZE)
        before = read_range(source, begin, end - begin)
    return hashlib.sha256(first + before).hexdigest()[:MARK_LENGTH] if any(first) else None


def _is_marked(store: Store, physical_offset: int, mark: str) -> bool:
    """True if a mark tells the bytes before a physical offset; those of rmqtool 0.3 took zeros, too."""
    return mark in (mark_of(store, physical_offset), _mark(store, physical_offset, before_zeros=False))


def position_after(store: Store, before: Position, end: Position) -> Position:
    """The end of a reading that began at a position: with its mark, and with a trail by which a cut log is known again.

    Raises:
        UnreadableError: bytes before it cannot be read.
    """
    begin, at = before.physical_offset, end.physical_offset
    told = dict(before.trail)
    if before.mark is not None:
        told[begin] = before.mark
    known = sorted({*told, *(segment.start for segment in store.commitlog if begin < segment.start < at)}, reverse=True)
    by_distance = {(at - place).bit_length(): place for place in known if place < at}  # the oldest of each
    trail = ((place, told.get(place) or mark_of(store, place)) for place in by_distance.values())
    return replace(end, mark=mark_of(store, at), trail=tuple((at, mark) for at, mark in trail if mark is not None))


def position_before_cut(store: Store, position: Position) -> Position:
    """Where a reading continues in a log that is not the one that was read up to a position: at the last place before
    which both are the same, or else at the log's start.

    Raises:
        UnreadableError: the log cannot be read there.
    """
    end = readable_end(store)[0].physical_offset if position.trail else 0
    for number, (at, mark) in enumerate(position.trail):
        if store.log_start < at <= end and _is_marked(store, at, mark):
            return Position(at, None, mark, position.trail[number + 1 :])
    return Position(store.log_start)


def position_within(store: Store, begin: Position, end: Position, most: int) -> Position:
    """Where a row ends some bytes after a position, `end` at the latest.

    Args:
        most: bytes between; the row that reaches over them is read too.

    Raises:
        UnreadableError: the log cannot be read there.
    """
    cut = begin.physical_offset + max(most, 1)
    if cut >= end.physical_offset:
        return end
    segment = store.segment_at(cut)
    if segment is None:
        following = min(later.start for later in store.commitlog if later.start >= cut)
        return end if following >= end.physical_offset else Position(following)
    with closing(store.view.open(segment.path)) as source:
        whole = Split(source, 0, source.size, segment.start)
        scan = ScanOptions(record_crc=carries_record_crc([whole]), block_size=END_BLOCK_SIZE)
        row_at = max(0, begin.physical_offset - segment.start)
        at = segment.start + first_row_from(whole, cut - segment.start, scan, row_at=row_at)
    return end if at >= end.physical_offset else Position(at)


def what_is_lost(store: Store, position: Position) -> str | None:
    """Why a stream cannot continue at a position without losing records; None where it can."""
    begin, end = store.log_start, max((segment.end for segment in store.commitlog), default=0)
    at = position.physical_offset
    if end < at:
        return f"its commit log ends at {end}, but was read up to {at}: it was replaced or cut"
    if begin > at:
        return f"its commit log begins at {begin}, but was read up to {at} only: {begin - at} bytes were removed"
    if position.mark is None or store.segment_at(at - 1) is None:
        return None
    if not _is_marked(store, at, position.mark):
        return f"its commit log is not the one that was read up to {at}: it was replaced or cut"
    return None


def readable_end(store: Store, known: Position | None = None) -> tuple[Position, int]:
    """After the last record that stays, and the bytes of the records after it, which are not flushed for certain.

    Args:
        known: a position of this log that was read before.
    """
    if not _may_be_written(store):
        end = _log_end(store, known)
        if not _may_be_written(store):  # asked again: a broker may have started meanwhile
            return end, 0
    flushed = flushed_end(store, known)
    written = _log_end(store, flushed, is_written=True)
    read = max(flushed.physical_offset, 0 if known is None else known.physical_offset)
    return flushed, max(0, written.physical_offset - read)


def _may_be_written(store: Store) -> bool:
    """True if a broker may write into a store now, so that not all of its log is flushed.

    A broker that was killed leaves `abort`, too: on this machine one can see whether the store is used. Elsewhere
    nobody can, and `abort` has to do.
    """
    view = store.view
    if not isinstance(view, DirectoryView):
        return store.has_abort
    directories = [view.root / named for named in store.settings.commitlog_directories]
    return view.stat("abort") is not None and lock_report(view.root, directories).may_be_in_use


def flushed_end(store: Store, known: Position | None = None) -> Position:
    """After the last record of a log, into which a broker writes, that is flushed for certain.

    It is where a record ends or a file begins.

    Args:
        known: a position of this log that is flushed; what lies before it is not read again.
    """
    checkpoint = readable_checkpoint(store)
    limit_ms = None if checkpoint is None else max(0, checkpoint.commitlog_timestamp_ms)
    if limit_ms or not store.commitlog:
        return _log_end(store, known, limit_ms, is_written=True)
    newest, _ = newest_with_data(store.view, store.commitlog)
    return Position(store.commitlog[newest].start)


def _log_end(
    store: Store, known: Position | None, limit_ms: int | None = None, *, is_written: bool = False
) -> Position:
    """After the last record of a log, or before the first one that is newer than a limit, as in `flushed_end`."""
    segments = store.commitlog
    if not segments:
        return Position(0)
    newest, record_crc = newest_with_data(store.view, segments)
    options = ScanOptions(record_crc=record_crc, block_size=END_BLOCK_SIZE)
    look = partial(_end_in, store, options, JAVA_LONG_MAX if limit_ms is None else limit_ms, is_written=is_written)
    last = None if known is None else known.last_record
    for segment in reversed(segments[: newest + 1]):
        end = None
        if last is not None and segment.start < last < segment.end:
            end = look(segment, last - segment.start)
        end = end or look(segment, 0)
        if end is not None:
            return end
    return Position(segments[0].start)


def _end_in(
    store: Store, options: ScanOptions, limit_ms: int, segment: Segment, start: int, *, is_written: bool
) -> Position | None:
    """After the last good row before the first message that is too new.

    Args:
        start: file position of a record, which tells how old those are that lie after the log's end.

    Returns:
        None where there is no such row, or no record begins at `start`.
    """
    with closing(store.view.open(segment.path)) as source:
        data_bytes = sum(end - begin for begin, end in source.extents(start, source.size))
        split = Split(source, start, source.size, segment.start)
        end: Position | None = None
        for batch in replace(options, log_bytes=data_bytes).walk(split).batches():
            rows = batch.as_array()
            good = rows["verdict"] == Verdict.GOOD
            if end is None and start and not good[0]:
                return None
            newer = np.flatnonzero((rows["topic_length"] > 0) & (rows["store_timestamp_ms"] > limit_ms))
            places = np.flatnonzero(good[: int(newer[0]) if newer.size else None])
            if places.size:
                row = rows[places[-1]]
                begin = int(row["physical_offset"])
                end = Position(begin + int(row["size"]), begin)
            if newer.size:
                break
            if is_written and end is not None:
                # Where nothing is written a broker that runs writes next: the rest of its file, which may be a gigabyte
                # of zeros, is not searched for records after damage.
                at = end.physical_offset - segment.start
                if not any(read_range(source, at, FRAME_SIZE)):
                    break
    return end


def newest_with_data(view: StoreView, segments: Sequence[Segment]) -> tuple[int, bool]:
    """The number of the last file that begins with data, and whether its first record carries a checksum of all of it.

    A file that cannot be read may hold anything. 0 where no file begins with data.
    """
    for number in range(len(segments) - 1, -1, -1):
        try:
            with closing(view.open(segments[number].path)) as source:
                if starts_with_data(source):
                    whole = whole_file(source, segments[number].start, more_follows=False)
                    return number, carries_record_crc([whole])
        except UnreadableError:
            return number, False
    return 0, False

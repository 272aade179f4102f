"""Finds the commitlog's end from what the queues know: hop on from the highest record of a queue, reading headers only.

After the file in which it ends lie files of zeros. A broker leaves one, which it made in advance. Up to two do no harm
to any version, and each is unlinked at load. Three or more lead a version whose normal start reads from the third file
from the end past the log's end: it takes the start of a file of zeros for it, and what it stores there is lost at the
next start. Where a file is missing between, such a start waits forever. Tried with 4.4.0 to 5.5.1; after a crash all
of them find the right end.

Broker: `CommitLog#recoverNormally`, which reads the last files' records whole and so finds damage that is passed here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from rmqtool.engine.rules.broker_rules import BrokerRules, NormalStart
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MESSAGE_MAGICS, PHYSICAL_OFFSET_AT
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.judge import judge_frame
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Segment, Store
from rmqtool.store.source import read_range

RECORDS_MAX: Final = 200_000
"""Records that are hopped over, about half a second."""
READ_MAX: Final = 128 << 20
WINDOW: Final = 64 << 10
CANDIDATES_MAX: Final = 256
QUIET_BYTES: Final = 1 << 20
"""Zeros that must follow the last record, for the end to count as found; a hole is not read further than this."""

_OWN_OFFSET: Final = Struct(">q")
_HEAD: Final = PHYSICAL_OFFSET_AT + _OWN_OFFSET.size
FRAME_SIZE: Final = 8


@dataclass(frozen=True)
class LogEnd:
    """Where the log ends as far as it was followed."""

    physical_offset: int
    is_exact: bool
    """False where the hop stopped at something that is no record, or was not followed to the end."""
    last_record: int | None
    """Physical offset of the last record that was passed; None if there was none."""
    reason: str
    """Description of the bytes at the end, as a sentence."""
    is_full: bool = False
    """True if it is the end of the last file, so that the next record begins another one."""


def find_log_end(segments: tuple[Segment, ...], files: OpenFiles, known: Iterable[tuple[int, int]]) -> LogEnd:
    """The end of the log.

    Args:
        segments: the log's files, by their start.
        known: (physical offset, size) of the last record of each queue; the highest one that is there is the start.
            Where none is, the hop starts at the start of the last file that holds anything.
    """
    if not segments:
        return LogEnd(0, is_exact=True, last_record=None, reason="there is no file")
    hop = _Hop(segments, files)
    starts = [segment.start for segment in segments]
    for physical_offset, size in sorted(set(known), reverse=True)[:CANDIDATES_MAX]:
        index = bisect_right(starts, physical_offset) - 1
        if index < 0 or physical_offset >= segments[index].end:
            continue
        with suppress(UnreadableError):
            if hop.record_size(index, physical_offset - starts[index]) == size > 0:
                return hop.follow(index, physical_offset - starts[index])
    for index in range(len(segments) - 1, 0, -1):
        with suppress(UnreadableError):
            if any(files.read(segments[index].path, 0, FRAME_SIZE)):
                return hop.follow(index, 0)
    return hop.follow(0, 0)


@dataclass
class _Hop:
    _segments: tuple[Segment, ...]
    _files: OpenFiles
    _window: bytes = b""
    _window_at: tuple[int, int] = (-1, 0)
    _bytes_read: int = 0

    def record_size(self, index: int, position: int) -> int | None:
        """Size of the message at a position; None where its frame or its own offset shows that it is not a message."""
        segment = self._segments[index]
        head = self._head(index, position)
        if len(head) < _HEAD:
            return None
        verdict, size, magic = judge_frame(head, segment.size - position)
        own_offset = _OWN_OFFSET.unpack_from(head, PHYSICAL_OFFSET_AT)[0]
        good = verdict == Verdict.GOOD and magic in MESSAGE_MAGICS and own_offset == segment.start + position
        return size if good else None

    def follow(self, index: int, position: int) -> LogEnd:
        """Hop on from the start of a record, across files."""
        segments = self._segments
        last: int | None = None
        try:
            for _ in range(RECORDS_MAX):
                segment, end = segments[index], segments[index].start + position
                if self._bytes_read > READ_MAX:
                    break
                size = self.record_size(index, position)
                if size is None and not self._is_blank(index, position):
                    return self._stopped(index, position, last)
                if size is not None:
                    last = end
                    position += size
                    if position < segment.size:
                        continue
                following = index + 1
                if following == len(segments) or segments[following].start != segment.end:
                    # A blank that nothing follows is written again by the next append, so the log ends before it.
                    end = segment.start + position
                    if following < len(segments):
                        reason = "the file that should follow is missing"
                        return LogEnd(end, is_exact=False, last_record=last, reason=reason)
                    return LogEnd(end, is_exact=True, last_record=last, reason="the last file is full", is_full=True)
                index, position = following, 0
        except UnreadableError as error:
            return LogEnd(end, is_exact=False, last_record=last, reason=f"not readable there:  {error}")
        end = segments[index].start + position
        reason = "the commit log continues; it was not followed further"
        return LogEnd(end, is_exact=False, last_record=last, reason=reason)

    def _stopped(self, index: int, position: int, last: int | None) -> LogEnd:
        """The end at something that is neither a record nor a blank."""
        segment = self._segments[index]
        end = segment.start + position
        behind = self._files.read(segment.path, position, QUIET_BYTES)
        if any(behind[:FRAME_SIZE]):
            return LogEnd(end, is_exact=False, last_record=last, reason="what follows is not a record")
        is_later_used = any(any(self._files.read(later.path, 0, FRAME_SIZE)) for later in self._segments[index + 1 :])
        if is_later_used or any(behind):
            return LogEnd(end, is_exact=False, last_record=last, reason="zeros follow, and other bytes after them")
        return LogEnd(end, is_exact=True, last_record=last, reason="unused space follows")

    def _is_blank(self, index: int, position: int) -> bool:
        head = self._head(index, position)
        if len(head) < FRAME_SIZE:
            return position == self._segments[index].size
        verdict, _, magic = judge_frame(head, self._segments[index].size - position)
        return verdict == Verdict.GOOD and magic == commitlog.MAGIC_BLANK

    def _head(self, index: int, position: int) -> bytes:
        """First bytes at a position, from the window where it holds them."""
        inside = position - self._window_at[1]
        if self._window_at[0] != index or inside < 0 or inside + _HEAD > len(self._window):
            self._window = self._files.read(self._segments[index].path, position, WINDOW)
            self._window_at = (index, position)
            self._bytes_read += len(self._window)
            inside = 0
        return self._window[inside : inside + _HEAD]


FILES_FROM_END: Final = 3
"""The file from the end in which a normal start of `NormalStart.THIRD_FROM_END` begins to read."""


class LogTail(NamedTuple):
    """Files and offsets after the log's end.

    Attributes:
        log_end: where the next record goes, as far as the headers of records tell.
        next_start: where the file after that one begins.
        files: those of zeros after the file in which the log ends.
    """

    log_end: int
    next_start: int
    files: tuple[Segment, ...]

    def misleads(self, rules: BrokerRules) -> bool:
        """True if a normal start of a version ends the log in one of the files."""
        return rules.normal_start is NormalStart.THIRD_FROM_END and len(self.files) >= FILES_FROM_END

    @property
    def is_odd(self) -> bool:
        """True if no broker leaves files like that: too many, or not one after the other."""
        ends = (self.next_start, *(segment.end for segment in self.files))
        return len(self.files) >= FILES_FROM_END or any(
            segment.start != end for segment, end in zip(self.files, ends, strict=False)
        )


def log_tail(store: Store, known: Iterable[tuple[int, int]] = (), *, least: int = 1) -> LogTail | None:
    """The tail of a log that ends in untouched space; None where its last record is not to be found that way.

    Args:
        known: physical offset and size of records near the log's end; without one its last file is read.
        least: files of zeros at the end without which nobody asks for the tail; None is the answer.
    """
    segments = store.commitlog
    count = len(segments)
    try:
        while count:
            segment = segments[count - 1]
            with closing(store.view.open(segment.path)) as source:
                if any(read_range(source, 0, FRAME_SIZE)) or last_data_end(source, 0, segment.size):
                    break
            count -= 1
    except UnreadableError:
        return None
    zeros = segments[count:]
    if len(zeros) < least:
        return None
    if count == 0:
        return LogTail(zeros[0].start, zeros[0].end, zeros[1:])
    last = segments[count - 1]
    with OpenFiles(store.view) as files:
        end = find_log_end((last,), files, known)
    if not end.is_exact:
        return None
    if not end.is_full:
        with closing(store.view.open(last.path)) as source:
            if last.start + last_data_end(source, 0, last.size) > end.physical_offset:
                return None
    last_end = last.start + (store.commitlog_file_size or last.size)
    if end.is_full and zeros[0].start == last_end:
        return LogTail(last_end, zeros[0].end, zeros[1:])
    return LogTail(end.physical_offset, last_end, zeros)

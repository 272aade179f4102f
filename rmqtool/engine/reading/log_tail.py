"""The files of zeros after the one in which the log ends, and what brokers make of them.

A broker leaves one such file, which it made in advance. Up to two do no harm to any version, and each is unlinked at
load. Three or more lead a version whose normal start reads from the third file from the end past the log's end: it
takes the begin of a file of zeros for it, and what it stores there is lost at the next start. Where a file is missing
between, such a start waits for ever. Tried with 4.4.0 to 5.5.1; after a crash all of them find the right end.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Final, NamedTuple

from rmqtool.engine.reading.log_end import FRAME_SIZE, find_log_end
from rmqtool.engine.rules.algorithms import NormalStart
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.directory import Segment, Store
from rmqtool.store.source import read_range
from rmqtool.store.view import StoreView

FILES_FROM_END: Final = 3
"""The file from the end in which a normal start of `NormalStart.THIRD_FROM_END` begins to read."""


class LogTail(NamedTuple):
    """What lies after the log's end.

    Attributes:
        log_end: where the next record goes, as far as the headers of records tell.
        next_start: where the file after that one begins.
        files: those of zeros after the file in which the log ends.
    """

    log_end: int
    next_start: int
    files: tuple[Segment, ...]

    def misleads(self, rules: BrokerRules) -> bool:
        """Whether a normal start of a version ends the log in one of the files."""
        return rules.normal_start is NormalStart.THIRD_FROM_END and len(self.files) >= FILES_FROM_END

    @property
    def is_odd(self) -> bool:
        """Whether no broker leaves files like that: too many, or not one after the other."""
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
        while count and _is_zero(store.view, segments[count - 1]):
            count -= 1
    except UnreadableError:
        return None
    zeros = segments[count:]
    if len(zeros) < least:
        return None
    if count == 0:
        return LogTail(zeros[0].start, zeros[0].end, zeros[1:])
    with OpenFiles(store.view) as files:
        end = find_log_end(segments[count - 1 : count], files, known)
    if not end.is_exact or (not end.is_full and _data_end(store.view, segments[count - 1]) > end.physical_offset):
        return None
    last_end = segments[count - 1].start + (store.commitlog_file_size or segments[count - 1].size)
    if end.is_full and zeros[0].start == last_end:
        return LogTail(last_end, zeros[0].end, zeros[1:])
    return LogTail(end.physical_offset, last_end, zeros)


def _is_zero(view: StoreView, segment: Segment) -> bool:
    """Whether a file holds nothing but zeros.

    Raises:
        UnreadableError: it cannot be read.
    """
    with closing(view.open(segment.path)) as source:
        return not any(read_range(source, 0, FRAME_SIZE)) and last_data_end(source, 0, segment.size) == 0


def _data_end(view: StoreView, segment: Segment) -> int:
    """Physical offset behind the last byte of a file that is not zero."""
    with closing(view.open(segment.path)) as source:
        return segment.start + last_data_end(source, 0, segment.size)

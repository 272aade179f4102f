"""The commit log as the broker reads it: the file of a physical offset, and its readable part.

Broker: `CommitLog#getMessage`, `CommitLog#getData`, `CommitLog#pickupStoreTimestamp`,
`MappedFileQueue#findMappedFileByOffset`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import takewhile

from rmqtool.engine.rules.broker_rules import BrokerRules, SizeMismatch
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.commitlog import STORE_TIMESTAMP_AT, SYS_FLAG_AT
from rmqtool.store.directory import Segment, Store
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE


def loaded_segments(segments: tuple[Segment, ...], file_size: int, rules: BrokerRules) -> tuple[Segment, ...]:
    """The files that take part in answers; `file_size` is that of a full one in bytes.

    Versions that do not start on such a store answer nothing at all; a person who asks all the same is shown what is
    there.
    """
    if rules.size_mismatch is SizeMismatch.IGNORE_REST:
        return tuple(takewhile(lambda segment: segment.size == file_size, segments))
    return segments


@dataclass(frozen=True)
class RecordLocation:
    """A readable place: the file, the position in it, and the bytes from there to where reading ends."""

    physical_offset: int
    path: str
    file_position: int
    readable_length: int


class Log:
    """Reads by physical offset.

    Args:
        end: physical offset after the last record as recovery finds it; None reads to the ends of the files, whatever
            lies there.
    """

    def __init__(self, store: Store, rules: BrokerRules, files: OpenFiles, end: int | None = None) -> None:
        self.rules = rules
        self.file_size: int = store.commitlog_file_size
        self.segments: tuple[Segment, ...] = loaded_segments(store.commitlog, self.file_size, rules)
        self.end: int = end if end is not None else (self.segments[-1].start + self.file_size if self.segments else 0)
        self._files = files
        self._starts = [segment.start for segment in self.segments]

    @property
    def minimum(self) -> int:
        """First physical offset of the log; -1 without any file (`MappedFileQueue#getMinOffset`)."""
        return self._starts[0] if self._starts else -1

    def place(self, physical_offset: int, *, first_file_for_zero: bool = True) -> RecordLocation | None:
        """Where a physical offset lies; None where no file holds it or nothing can be read there.

        Physical offset 0 is looked up in the first file there is, wherever that begins, and read from its first byte;
        not where that file has no record yet, for the log ends there.
        """
        index = bisect_right(self._starts, physical_offset) - 1
        segment = self.segments[index] if index >= 0 and self.file_size else None
        if segment is not None and physical_offset >= segment.start + self.file_size:
            segment = None
        if segment is None and physical_offset == 0 and first_file_for_zero and self._begins_with_record():
            segment = self.segments[0]
        if segment is None:
            return None
        position = physical_offset % self.file_size
        readable = min(self.file_size, segment.size, max(0, self.end - segment.start))
        if position > readable:
            return None
        return RecordLocation(segment.start + position, segment.path, position, readable - position)

    def selectable(self, physical_offset: int, length: int) -> RecordLocation | None:
        """The place of a range if the broker would hand it out: wholly inside the readable part of one file."""
        place = self.place(physical_offset)
        return place if place is not None and 0 <= length <= place.readable_length else None

    def read(self, place: RecordLocation, start: int, length: int) -> bytes:
        """Bytes from `start` after a position on, up to the end of the readable part.

        Raises:
            UnreadableError: the disk does not give them.
        """
        return self._files.read(place.path, place.file_position + start, min(length, place.readable_length - start))

    def next_file_start(self, physical_offset: int) -> int:
        """Start of the file after the one that holds an offset (`CommitLog#rollNextFile`)."""
        size = self.file_size or DEFAULT_LOG_FILE_SIZE  # a log without files shows none
        return physical_offset + size - physical_offset % size

    def store_timestamp_ms(self, physical_offset: int, record_size: int) -> int:
        """Store time of the record at a place, -1 where it cannot be read (`CommitLog#pickupStoreTimestamp`)."""
        if physical_offset < self.minimum:
            return -1
        place = self.selectable(physical_offset, record_size)
        if place is None:
            return -1
        head = self.read(place, 0, min(record_size, commitlog.HEAD_SIZE + commitlog.V6_EXTRA))
        sys_flag = int.from_bytes(head[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
        at = STORE_TIMESTAMP_AT
        if self.rules.ipv6_hosts:
            at += commitlog.host_extra(sys_flag, system_flag.BORN_HOST_V6)
        # The broker throws where the record is shorter than its header; a lookup cannot continue then either.
        return int.from_bytes(head[at : at + 8], "big", signed=True) if len(head) >= at + 8 else -1

    def _begins_with_record(self) -> bool:
        """True if the log has another file than a lone one that begins with zeros, as far as the disk shows."""
        if len(self.segments) != 1:
            return bool(self.segments)
        try:
            return any(self._files.read(self.segments[0].path, 0, commitlog.BLANK_SIZE_MIN))
        except UnreadableError:
            return True

"""The commit log files of a copy: their end, appended bytes, and the part of those that is on the disk.

The caller holds the lock of the store. A file has its full length from the start, sparse, as a broker makes it. After
the end there may be bytes already: of a killed run, or intact records after a damaged one. They are compared with what
is appended, and never overwritten with something else.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Final, NamedTuple

from rmqtool.errors import RefusedError, RmqtoolError
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.replication.record_check import LOG_FILE_SIZE_MAX
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.columns import Row
from rmqtool.scan.log import reader_for
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Walk
from rmqtool.store.directory import Segment, Store
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.sink import DirectorySink
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE
from rmqtool.store.source import read_range
from rmqtool.store.view import StoreView

SETTLED_MS: Final = 10_000
"""A message of which the master still waits for slaves is not older (syncFlushTimeout is 5 s)."""
SAMPLES_MAX: Final = 4096
_SAMPLE_MS: Final = 100
_DIRECTORY: Final = "commitlog"
_STEP: Final = 4096
_TIMESTAMP: Final = Row._fields.index("store_timestamp_ms")
_MAGIC: Final = Row._fields.index("magic")
_VERDICT: Final = Row._fields.index("verdict")


class MismatchError(RmqtoolError):
    """The copy has other bytes than the master at the same offset."""

    def __init__(self, physical_offset: int, text: str) -> None:
        super().__init__(text)
        self.physical_offset = physical_offset


class RecentRecords:
    """Where records of the last seconds start, so that a master can be asked for them again.

    A request acknowledges all before it, so it must be older than any message of which a master waits for slaves.
    A store time in the future counts as now: it says nothing about the age of other records.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        self._newest_ms = 0

    def note(self, physical_offset: int, first_ms: int, last_ms: int) -> None:
        """Records from an offset on were stored between two times."""
        now_ms = int(time.time() * 1000)
        first_ms, last_ms = min(first_ms, now_ms), min(last_ms, now_ms)
        if not self._samples or first_ms - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append((first_ms, physical_offset))
        self._newest_ms = max(self._newest_ms, last_ms)
        while len(self._samples) > 1 and self._samples[1][0] <= self._newest_ms - SETTLED_MS:
            self._samples.popleft()

    @property
    def is_enough(self) -> bool:
        """True if all records before the first known one are settled."""
        return bool(self._samples) and self._samples[0][0] <= self._newest_ms - SETTLED_MS

    @property
    def first(self) -> int | None:
        """The last offset before which all records are settled, as far as is known; None if nothing is."""
        return self._samples[0][1] if self._samples else None


class _LogCopyFile(NamedTuple):
    path: str
    start: int


class LogCopy:
    """The end of a copy's log, open for appending. Offsets are physical.

    Writing raises MismatchError where the copy has other bytes in that place, WriteError where the disk takes nothing.

    Attributes:
        start: of the first byte; None before there is a file.
        end: after the last whole record, or the blank after it.
        rest_end: after the last byte of the last file that is not zero, which is a part of no record before `end`.
        file_size: bytes of a full file; of a first file that nothing ends yet it may be an assumption.
    """

    def __init__(self, store: Store | None, view: StoreView, sink: DirectorySink, file_size: int | None) -> None:
        """Find the end of the copy.

        Args:
            store: the copy as it was found; None where there is no log yet.
            file_size: as a person or the master says; None where nobody does.

        Raises:
            RefusedError: the files do not follow each other, or have another size than was said.
        """
        self._sink, self._view = sink, view
        segments = store.commitlog if store is not None else ()
        _require_plain(store, segments)
        self.file_size = file_size or (segments[0].size if segments else DEFAULT_LOG_FILE_SIZE)
        self.is_size_known = file_size is not None or len(segments) > 1
        for segment, following in pairwise(segments):
            if segment.end != following.start:
                raise RefusedError(f"{segment.path}: the next file, {following.path}, does not start where it ends")
        for segment in segments:
            if segment.size != self.file_size:
                raise RefusedError(f"{segment.path}: {segment.size} bytes; files of this log have {self.file_size}")
        self.start = segments[0].start if segments else None
        self.end = self.start or 0
        self.recent = RecentRecords()
        self.record_count = 0
        self.rest_end = 0
        self._intact: list[tuple[int, int]] = []
        self._find_end(segments)
        self._file = self._file_at(self.end) if any(s.start <= self.end < s.end for s in segments) else None
        self._unsynced: set[str] = set()
        self._is_file_made = False

    def begin(self, start: int) -> None:
        """Let a copy without a record start at an offset."""
        assert self.is_empty, self.end
        self.start = self.end = start

    @property
    def is_empty(self) -> bool:
        """True if it has no file yet, so that it may start anywhere."""
        return self._file is None and self.start in (None, self.end)

    @property
    def request_offset(self) -> int:
        """Where to ask a master to start, so that it sends a part again that the copy has. Never 0, the last file."""
        return max(1, self.end if self.recent.first is None else self.recent.first)

    def append(self, records: bytes | bytearray, first_ms: int, last_ms: int) -> None:
        """Write whole records, which fit into the file."""
        self._write(records)
        self.recent.note(self.end, first_ms, last_ms)
        self.end += len(records)

    def end_file(self, blank: bytes | bytearray) -> None:
        """Write the blank that ends the file, with all that follows it there."""
        assert self.start is not None, blank
        if not self.is_size_known:
            self.file_size, self.is_size_known = self.end + len(blank) - self.start, True
            file = self._current_file()
            self._sink.resize(file.path, self.file_size)
        self._write(blank)
        self.end += len(blank)
        self.sync()
        self._file = None

    def intact_after(self, physical_offset: int) -> int | None:
        """Where the first intact record is that reaches past an offset, of those after the end; None without one."""
        return next((start for start, end in self._intact if end > physical_offset), None)

    def first_difference(self, physical_offset: int, expected: bytes | bytearray) -> int | None:
        """Physical offset of the first byte at which the copy differs; None if it does not.

        After the end a zero outside of intact records differs from nothing: it may be a hole.
        """
        at = 0
        while at < len(expected):
            path, file_start = self._file_at(physical_offset + at)
            length = min(len(expected) - at, file_start + self.file_size - physical_offset - at)
            with closing(self._view.open(path)) as source:
                content = read_range(source, physical_offset + at - file_start, length)
            part = bytes(expected[at : at + length])
            if content != part:
                differing = self._difference(physical_offset + at, content.ljust(length, b"\0"), part)
                if differing is not None:
                    return differing
            at += length
        return None

    def _difference(self, physical_offset: int, before: bytes, now: bytes) -> int | None:
        for at in range(0, len(before), _STEP):
            old, new = before[at : at + _STEP], now[at : at + _STEP]
            if old != new:
                for index, (old_byte, new_byte) in enumerate(zip(old, new, strict=True), physical_offset + at):
                    if old_byte != new_byte and (old_byte or self._is_kept(index)):
                        return index
        return None

    def _is_kept(self, physical_offset: int) -> bool:
        """True if a byte must have its value, even if it is zero."""
        at = bisect_right(self._intact, physical_offset, key=lambda extent: extent[1])
        is_intact = at < len(self._intact) and self._intact[at][0] <= physical_offset
        return physical_offset < self.end or is_intact

    def sync(self) -> None:
        """Return once all that was appended is on the disk."""
        for path in sorted(self._unsynced):
            self._sink.sync(path)
        self._unsynced.clear()
        if self._is_file_made:
            self._sink.sync_directory(_DIRECTORY)
            self._sink.sync_directory("")
            self._is_file_made = False

    @property
    def is_synced(self) -> bool:
        return not self._unsynced

    def _write(self, content: bytes | bytearray) -> None:
        file = self._current_file()
        if self.end < self.rest_end:
            differing = self.first_difference(self.end, content[: self.rest_end - self.end])
            if differing is not None:
                text = f"{file.path}: bytes after the copy's last whole record differ from the master's at {differing}"
                raise MismatchError(differing, text)
        self._sink.write_at(file.path, self.end - file.start, memoryview(content))
        self._unsynced.add(file.path)

    def _current_file(self) -> _LogCopyFile:
        if self._file is None:
            self._file = self._file_at(self.end)
            self._sink.create(self._file.path, self.file_size)
            self._is_file_made = True
        return self._file

    def _file_at(self, physical_offset: int) -> _LogCopyFile:
        assert self.start is not None, physical_offset
        start = self.start
        if self.is_size_known:
            start += (physical_offset - start) // self.file_size * self.file_size
        return _LogCopyFile(f"{_DIRECTORY}/{segment_name(start)}", start)

    def _find_end(self, segments: tuple[Segment, ...]) -> None:
        """Walk the last file with data, and those before it whose records are not settled."""
        walked: list[tuple[int, int, int]] = []
        used = len(segments)
        while used and self._data_end(segments[used - 1]) == 0:
            used -= 1
        self.rest_end = segments[used - 1].start + self._data_end(segments[used - 1]) if used else 0
        for index in reversed(range(used)):
            samples = list(self._walk(segments[index], is_last=index == used - 1))
            walked = samples + walked
            recent = RecentRecords()
            for sample in walked:
                recent.note(*sample)
            self.recent = recent
            if recent.is_enough:
                break

    def _walk(self, segment: Segment, *, is_last: bool) -> Iterator[tuple[int, int, int]]:
        """Samples of the records of a file; the last file sets the end, and the intact records after it."""
        end, is_broken = segment.start, False
        with closing(self._view.open(segment.path)) as source:
            walk = Walk(Split(source, 0, segment.size, segment.start), reader_for(self._data_end(segment)))
            for batch in walk.batches():
                rows = batch.as_rows()
                if is_broken:
                    self._note_intact(rows)
                    continue
                count = next((index for index, row in enumerate(rows) if row[_VERDICT] != Verdict.GOOD), len(rows))
                good = rows[:count]
                records = [row for row in good if row[_MAGIC] != MAGIC_BLANK]
                if good:
                    end = good[-1].physical_offset + good[-1].size
                    self.is_size_known = self.is_size_known or len(records) < len(good)
                if records:
                    yield records[0].physical_offset, records[0][_TIMESTAMP], records[-1][_TIMESTAMP]
                if count < len(rows):
                    if not is_last:
                        break
                    is_broken = True
                    self._note_intact(rows[count:])
        if is_last:
            self.end = end

    def _note_intact(self, rows: list[Row]) -> None:
        """Note records that pass their checks after one that does not; old ones (STALE) too."""
        for row in rows:
            if row.verdict in (Verdict.GOOD, Verdict.STALE):
                end = row.physical_offset + row.size
                if self._intact and self._intact[-1][1] == row.physical_offset:
                    self._intact[-1] = self._intact[-1][0], end
                else:
                    self._intact.append((row.physical_offset, end))
                self.rest_end = max(self.rest_end, end)

    def _data_end(self, segment: Segment) -> int:
        with closing(self._view.open(segment.path)) as source:
            return last_data_end(source, 0, segment.size)


def _require_plain(store: Store | None, segments: tuple[Segment, ...]) -> None:
    """Refuse a log that brokers do not read file after file in `commitlog/`."""
    if store is None:
        return
    for segment in store.loadable_log:
        if segment not in segments or segment.path.rpartition("/")[0] != _DIRECTORY:
            raise RefusedError(f"{segment.path}: a copy has its log in {_DIRECTORY}/, in files named by 20 digits")
    if any(segment.size > LOG_FILE_SIZE_MAX for segment in segments):
        raise RefusedError(f"{store.view.label}: a commit log file of more than {LOG_FILE_SIZE_MAX} bytes")

"""Follows a log as it grows: nothing is read twice, and a partly written record is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Final

from rmqtool.dump.log import LogDump
from rmqtool.errors import UnreadableError
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.report.rows import DumpRow, RowBlock
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch
from rmqtool.store.file_kinds import is_segment_name
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry

POLL_SECONDS: Final = 0.25
_FRAME_SIZE: Final = 8


@dataclass
class LogFollower(LogDump):
    """The rows of a log that grows; looks every `poll_seconds`, and notes to which file and position it has come."""

    poll_seconds: float = POLL_SECONDS
    _number: int = 0
    _position: int = 0
    _is_full: bool = False
    """A blank has ended the current file."""

    def rows(self) -> Iterator[DumpRow | RowBlock | None]:
        """Rows as they come, and None each time there is nothing new for now; never ends by itself."""
        while True:
            last = self.last_with_data()
            advanced = False
            while self._number <= last:
                before = (self._number, self._position)
                if not self._is_full and self._has_more(last):
                    yield from self._read_on(more_follows=self._number < last)
                if self._number < last:
                    self._number, self._position, self._is_full = self._number + 1, 0, False
                advanced = advanced or before != (self._number, self._position)
                if self._number == last and (self._is_full or not self._has_more(last)):
                    break
                if before == (self._number, self._position):
                    break
            if not advanced:
                yield None
                time.sleep(self.poll_seconds)
            self._look_again()

    def _has_more(self, last: int) -> bool:
        """True if there is data where the next record will be; in a file that is no longer the last, in any case."""
        if not 0 <= self._number < len(self.target.entries):
            return False
        if self._number < last:
            return True
        with (
            suppress(UnreadableError),
            closing(self.target.view.open(self.target.entries[self._number].path)) as source,
        ):
            return any(read_range(source, self._position, _FRAME_SIZE))
        return False

    def _read_on(self, *, more_follows: bool) -> Iterator[DumpRow | RowBlock]:
        """Rows of the file from the position on; a bad range at the end of the log is not reported yet."""
        entry = self.target.entries[self._number]
        source = self.opened(entry) if not more_follows or self.may_hold_rows(self._number) else None
        if source is None:
            return
        try:
            held: Batch | None = None
            for batch in self.walk(source, entry, more_follows=more_follows, start=self._position).batches():
                if held is not None:
                    yield from self.shown(held)
                    held = None
                row = batch.as_rows()[-1]
                self._position = row.physical_offset - batch.split.physical_offset
                if not more_follows and row.verdict not in (Verdict.GOOD, Verdict.STALE):
                    held = batch
                    continue
                self._position += row.size
                self._is_full = row.magic == MAGIC_BLANK
                yield from self.shown(batch)
        finally:
            source.close()

    def _look_again(self) -> None:
        """List the directories again: the file before the last keeps its number, as files are added at the end only."""
        target = self.target
        if not target.entries:
            return
        current = target.entries[min(self._number, len(target.entries) - 1)].path
        directories = dict.fromkeys(entry.path.rpartition("/")[0] for entry in target.entries)
        segment_entries: list[Entry] = []
        for directory in directories:
            try:
                listed = target.view.list(directory)
            except UnreadableError:
                return
            segment_entries += [entry for entry in listed if entry.is_file and is_segment_name(entry.name)]
        paths = {entry.path for entry in target.entries}
        if len(target.entries) == 1 and not is_segment_name(target.entries[0].name):
            return
        entries = tuple(sorted(segment_entries, key=lambda entry: (int(entry.name), entry.path)))
        if paths != {entry.path for entry in entries} and any(entry.path == current for entry in entries):
            self.target = replace(target, entries=entries)
            self._number = [entry.path for entry in entries].index(current)

"""The commit log as strips: one for all of it, and one for each file that is worth a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from rmqtool.report.json_schemas import JsonObject
from rmqtool.report.page.strip import Axis, Bar, Paint, Strip

FILES_MAX: Final = 24
"""Files that have a row of their own."""
ENDS: Final = 3
"""Files at either end of the log that have a row in any case."""
RANGES_MAX: Final = 200
"""Ranges of one file that its strip shows."""
MARKED_FILES_MAX: Final = 400
"""Files of which ranges are kept."""
_STALE: Final = frozenset({"commitlog.stale-tail", "commitlog.resurrected-tail"})
_OF_FILES: Final = frozenset({"commitlog.wrong-file-size", "commitlog.stray-file", "commitlog.file-after-end"})
"""Findings about a file as such, which say nothing of its bytes."""
_TORN: Final = "commitlog.torn-record"
_MISSING: Final = "commitlog.missing-file"


class DrawnFile(NamedTuple):
    """One file of the log, as its directory shows it."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        """The physical offset after its last byte."""
        return self.start + self.size


@dataclass
class FileRow:
    """A file as the page shows it; `hidden` are the files before it that have no row."""

    file: DrawnFile
    bars: list[Bar]
    findings: list[tuple[str, int]]
    hidden: int = 0


@dataclass
class _Marks:
    kinds: Counter[str] = field(default_factory=Counter)
    ranges: list[tuple[int, int, Paint]] = field(default_factory=list)


class LogPicture:
    """Collects findings of the log, in bounded memory."""

    def __init__(self, files: Sequence[DrawnFile]) -> None:
        self.files = files
        self.axis = Axis(files[0].start, max(file.end for file in files)) if files else Axis(0, 0)
        self.end: int | None = None
        """The physical offset after the last record or damaged range; None where the log was not checked to its end."""
        self._strip = Strip(self.axis)
        self._marks: dict[str, _Marks] = {}
        self._marked: Counter[str] = Counter()
        for before, after in pairwise(files):
            if before.end < after.start:
                self._strip.paint(before.end, after.start, Paint.MISSING)

    def add(self, finding: JsonObject) -> None:
        """Mark where a finding lies, an object as `verify --format json` writes it."""
        if not finding["id"].startswith("commitlog."):
            return
        file = finding["file"]
        self._marked[file] += 1
        if file not in self._marks and len(self._marks) >= MARKED_FILES_MAX:
            marks = _Marks()
        else:
            marks = self._marks.setdefault(file, _Marks())
        marks.kinds[finding["id"]] += finding["count"]
        paint, begin = _paint_of(finding), finding["physical_offset"]
        if paint is None or begin is None:
            return
        end = begin + max(1, finding["length"] or 1)
        self._strip.paint(begin, end, paint)
        if len(marks.ranges) < RANGES_MAX:
            marks.ranges.append((begin, end, paint))

    def finish(self, end: int | None) -> None:
        """Paint the rest, once it is known how far the log was checked: `end` is as in `LogPicture.end`."""
        self.end = end
        for file in self.files:
            _paint_rest(self._strip, file, end)

    @property
    def bars(self) -> list[Bar]:
        return self._strip.bars()

    @property
    def marked_file_count(self) -> int:
        """Files with at least one finding."""
        return len(self._marked)

    def rows(self) -> tuple[list[FileRow], int]:
        """Files that have a row, in the order of the log, and how many after the last one have none."""
        count = len(self.files)
        shown = set(range(count))
        if count > FILES_MAX:
            shown = {*range(ENDS), *range(count - ENDS, count)}
            for number, file in enumerate(self.files):
                if file.path in self._marked and len(shown) < FILES_MAX:
                    shown.add(number)
        rows, before = [], -1
        for number in sorted(shown):
            file = self.files[number]
            strip, marks = Strip(Axis(file.start, file.end)), self._marks.get(file.path, _Marks())
            for begin, end, paint in marks.ranges:
                strip.paint(begin, end, paint)
            _paint_rest(strip, file, self.end)
            rows.append(FileRow(file, strip.bars(), marks.kinds.most_common(3), number - before - 1))
            before = number
        return rows, count - 1 - before


def _paint_rest(strip: Strip, file: DrawnFile, end: int | None) -> None:
    """Paint the rest of a file: intact before the log's end, never written after it."""
    if end is None:
        strip.paint(file.start, file.end, Paint.UNCHECKED)
        return
    border = min(max(end, file.start), file.end)
    if border > file.start:
        strip.paint(file.start, border, Paint.INTACT)
    if border < file.end:
        strip.paint(border, file.end, Paint.UNWRITTEN)


def _paint_of(finding: JsonObject) -> Paint | None:
    """Paint of a finding's range; None where its bytes are as they should be."""
    if finding["id"] in _STALE:
        return Paint.STALE
    if finding["id"] == _MISSING:
        return Paint.MISSING
    if finding["id"] in _OF_FILES:
        return None
    return Paint.DAMAGED if finding["severity"] == "error" or finding["id"] == _TORN else None

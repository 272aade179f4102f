"""Store times as lanes: log, index and checkpoint on one axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rmqtool.formats.checkpoint import LATEST_MS
from rmqtool.report.page.strip import Axis, Lane
from rmqtool.report.text import counted
from rmqtool.times import time_text

_CHECKPOINT: Final = (
    ("commitlog_timestamp_ms", "Checkpoint: commit log"),
    ("consumequeue_timestamp_ms", "Checkpoint: queues"),
    ("index_timestamp_ms", "Checkpoint: index"),
)


class IndexRange(NamedTuple):
    """Header of an index file: times, and physical offsets of the first and the last record."""

    path: str
    begin_ms: int
    end_ms: int
    begin: int
    end: int


@dataclass(frozen=True)
class Times:
    """Known times of a store; None or 0 where unknown."""

    first_ms: int | None
    last_ms: int | None
    of_files: Mapping[str, int]
    """Store time of the first record of files of the log, as far as they were looked at."""
    index: Sequence[IndexRange]
    checkpoint: Mapping[str, int] | None


def time_axis(times: Times) -> Axis | None:
    """From the earliest to the latest time of log and index; None where there is none that a clock may have shown."""
    index = (moment for file in times.index for moment in (file.begin_ms, file.end_ms))
    known = list(_possible((times.first_ms, times.last_ms, *times.of_files.values(), *index)))
    if not known:
        return None
    start, end = min(known), max(known)
    near = [moment for _, moment in _checkpoint(times) if start - (end - start) <= moment <= 2 * end - start]
    return Axis(min([start, *near]), max([end, *near]) + 1)


def time_lanes(times: Times, axis: Axis) -> Iterator[Lane]:
    """A lane for each kind of file that has times."""
    width = max(1, (axis.end - axis.start) // 400)
    log = list(_possible((times.first_ms, times.last_ms)))
    if log:
        text = f"{time_text(min(log))} to {time_text(max(log))}"
        yield Lane("Commit log", axis.bars([(min(log), max(log) + 1, "kept")]), text)
    firsts = sorted(_possible(times.of_files.values()))
    if len(firsts) > 1:
        ranges = [(moment, moment + width, "mark") for moment in firsts]
        yield Lane("Commit log files", axis.bars(ranges), f"where {counted(len(firsts), 'file')} start")
    filled = [file for file in times.index if 0 < file.begin_ms <= file.end_ms <= LATEST_MS]
    if filled:
        ranges = [(file.begin_ms, file.end_ms + 1, "index") for file in filled]
        begin, end = min(file.begin_ms for file in filled), max(file.end_ms for file in filled)
        yield Lane("Index", axis.bars(ranges), f"{time_text(begin)} to {time_text(end)}")
    for label, moment in _checkpoint(times):
        is_near = axis.start <= moment < axis.end
        bars = axis.bars([(moment, moment + width, "mark")]) if is_near else []
        yield Lane(label, bars, time_text(moment) + ("" if is_near else ", outside the picture"))


def _checkpoint(times: Times) -> Iterator[tuple[str, int]]:
    for name, label in _CHECKPOINT:
        for moment in _possible([(times.checkpoint or {}).get(name)]):
            yield label, moment


def _possible(moments: Iterable[Any]) -> Iterator[int]:
    return (moment for moment in moments if moment is not None and 0 < moment <= LATEST_MS)

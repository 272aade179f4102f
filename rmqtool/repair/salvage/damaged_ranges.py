"""The damaged ranges of a log, as `verify` found them, and the queue units that point into them.

Each queue is asked once, however many damaged ranges there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.queue_entries import DispatchSettings, batch_bytes, queue_entries
from rmqtool.findings.finding import MISSING_LOG_FILE, Finding
from rmqtool.formats.queue_name import TypedQueueKey
from rmqtool.repair.recover.log_steps import TAIL, loss_behind, tail_begin
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.log import ScanOptions, open_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import FINDING_IDS, Verdict
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import segment_name
from rmqtool.verify.match.queue_order import MisplacedRecord, MissingRun, QueueOrder, QueueRun
from rmqtool.verify.survey.queue_map import Open, QueueMap

RANGES: Final = frozenset(FINDING_IDS.values()) - TAIL
"""Findings about bytes in which no record can be read as it stands."""
MISSING_FILES_MAX: Final = 100
"""Files side by side that are made again."""


@dataclass(frozen=True)
class DamagedRange:
    """Physical offsets [start, end) in one file, between good records or the file's bounds.

    Attributes:
        file_start: physical offset of the file's first byte.
        starts: where a damaged record begins, as far as the scan could tell.
        is_last: nothing good lies after it, so the log may as well end in it.
        is_missing: the file is not there.
    """

    path: str
    file_start: int
    file_size: int
    start: int
    end: int
    starts: tuple[int, ...]
    is_last: bool = False
    is_missing: bool = False

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def reaches_file_end(self) -> bool:
        """True if a blank has to lead from it to the next file."""
        return self.end == self.file_start + self.file_size and not self.is_last

    def without(self, kept: Iterable[tuple[int, int]]) -> Iterator[DamagedRange]:
        """The parts that stay damaged where others, given as physical offsets [start, end) in order, are repaired."""
        at = self.start
        for start, end in kept:
            if start > at:
                yield replace(self, start=at, end=start, starts=(at,), is_last=False)
            at = end
        if at < self.end:
            yield replace(self, start=at, starts=(at, *(start for start in self.starts if start > at)))


def damaged_ranges(store: Store, findings: Iterable[Finding], delays_ms: tuple[int, ...]) -> tuple[DamagedRange, ...]:
    """The ranges in log order; those that touch each other in one file are one."""
    findings = tuple(findings)
    good_end = _good_end(store, findings, delays_ms)
    by_path = {segment.path: segment for segment in store.commitlog}
    ranges: list[DamagedRange] = []
    for finding in findings:
        segment, start, length = by_path.get(finding.file), finding.physical_offset, finding.length
        if finding.id in RANGES and segment is not None and start is not None and length:
            ranges.append(DamagedRange(finding.file, segment.start, segment.size, start, start + length, (start,)))
    size = store.commitlog_file_size
    for finding in findings:
        begin, length = finding.physical_offset, finding.length
        if finding.id != MISSING_LOG_FILE or not length or begin is None or not size or is_too_far(finding, size):
            continue
        directory = finding.file.rpartition("/")[0]
        for start in range(begin, begin + length, size):
            path = f"{directory}/{segment_name(start)}"
            if start < good_end:  # where nothing good follows the log may as well end
                ranges.append(DamagedRange(path, start, size, start, start + size, (start,), is_missing=True))
    joined: list[DamagedRange] = []
    for damaged in sorted(ranges, key=lambda damaged: damaged.start):
        last = joined[-1] if joined else None
        if last is not None and last.path == damaged.path and damaged.start <= last.end:
            joined[-1] = replace(last, end=max(last.end, damaged.end), starts=(*last.starts, *damaged.starts))
        else:
            joined.append(damaged)
    if joined and joined[-1].end >= good_end:
        joined[-1] = replace(joined[-1], is_last=True)
    return tuple(joined)


def is_too_far(finding: Finding, file_size: int) -> bool:
    """True if so many files are missing that the next one's name is probably wrong; brokers skip them."""
    return finding.id == MISSING_LOG_FILE and (finding.length or 0) > MISSING_FILES_MAX * file_size


def _good_end(store: Store, findings: Iterable[Finding], delays_ms: tuple[int, ...]) -> int:
    """End of the log's data, or start of a tail that is cut anyway; served parts of it are kept."""
    tail = tail_begin(findings)
    if tail is not None and not loss_behind(store, tail, delays_ms).messages:
        return tail
    for segment in reversed(store.commitlog):
        with closing(store.view.open(segment.path)) as source:
            end = last_data_end(source, 0, segment.size)
        if end:
            return segment.start + end
    return 0


Unit = tuple[int, int, int, int]
"""Physical offset, record size; of a batch queue also the first queue offset and the number of messages."""
NEAR: Final = 64 << 20
"""Ranges that lie no farther apart are looked up together."""
TOGETHER_MAX: Final = 1 << 30
"""Bytes of the log that are looked up together at most, so that not too many units are read at a time."""


class _Found(NamedTuple):
    """One number per unit in each array."""

    queues: Any
    places: Any
    physical_offsets: Any
    sizes: Any
    bases: Any
    counts: Any


class UnitsInRanges:
    """Units by physical offset."""

    def __init__(self, queues: Sequence[QueueMap], open_file: Open, ranges: Sequence[DamagedRange]) -> None:
        """Look them up.

        Args:
            ranges: in log order. The last one of the log counts up to its file's end.
        """
        self._queues = queues
        starts = np.array([damaged.start for damaged in ranges], np.int64)
        ends = np.array(
            [damaged.file_start + damaged.file_size if damaged.is_last else damaged.end for damaged in ranges], np.int64
        )
        unit_columns = [
            _into(number, queue, open_file, starts[low:high], ends[low:high])
            for low, high in _clusters(starts, ends)
            for number, queue in enumerate(queues)
        ]
        columns = [np.concatenate([np.empty(0, np.int64), *parts]) for parts in zip(*unit_columns, strict=True)]
        whole = _Found(*columns) if unit_columns else _Found(*[np.empty(0, np.int64)] * 6)
        order = np.argsort(whole.physical_offsets, kind="stable")
        self._found = _Found(*(column[order] for column in whole))

    def between(self, start: int, end: int) -> Iterator[tuple[QueueMap, int, Unit]]:
        """Queue, place in it, and content of the units that point into [start, end), in log order."""
        low, high = np.searchsorted(self._found.physical_offsets, (start, end)).tolist()
        for queue, place, *unit in zip(*(column[low:high].tolist() for column in self._found), strict=True):
            yield self._queues[queue], place, (unit[0], unit[1], unit[2], unit[3])


def _clusters(starts: Any, ends: Any) -> Iterator[tuple[int, int]]:
    """Numbers [low, high) of ranges that are near each other."""
    low = 0
    for number in range(1, len(starts)):
        if starts[number] - ends[number - 1] > NEAR or ends[number] - starts[low] > TOGETHER_MAX:
            yield low, number
            low = number
    if len(starts):
        yield low, len(starts)


def _into(number: int, queue: QueueMap, open_file: Open, starts: Any, ends: Any) -> _Found:
    places, units = queue.pointing_into(open_file, int(starts[0]), int(ends.max()))
    offsets = units["physical_offset"].astype(np.int64)
    at = np.searchsorted(starts, offsets, "right") - 1
    inside = (at >= 0) & (offsets < ends[np.maximum(at, 0)])
    count = int(inside.sum())
    zeros = np.zeros(count, np.int64)
    return _Found(
        np.full(count, number, np.int64),
        places[inside].astype(np.int64),
        offsets[inside],
        units["record_size"][inside].astype(np.int64),
        units["base_queue_offset"][inside].astype(np.int64) if queue.is_batch else zeros,
        units["batch_size"][inside].astype(np.int64) if queue.is_batch else zeros,
    )


class Neighbor(NamedTuple):
    """A good record next to damage."""

    physical_offset: int
    size: int
    store_timestamp_ms: int


@dataclass
class DamageContext:
    """Results of one scan over the log.

    Attributes:
        neighbors: the good records before and after each range, in their order.
        missing: in log order.
        chains: each queue's good records in order.
        misplaced: good records whose headers claim a place that they cannot have.
    """

    neighbors: list[tuple[Neighbor | None, Neighbor | None]] = field(default_factory=list)
    missing: list[MissingRun] = field(default_factory=list)
    chains: dict[TypedQueueKey, list[QueueRun]] = field(default_factory=dict)
    misplaced: list[MisplacedRecord] = field(default_factory=list)


def scan_context(
    store: Store, ranges: Sequence[DamagedRange], settings: DispatchSettings, options: ScanOptions
) -> DamageContext:
    """Scan the log once.

    Args:
        options: the columns that a cache keeps are enough.
    """
    starts = np.array([damaged.start for damaged in ranges], np.int64)
    ends = np.array([damaged.end for damaged in ranges], np.int64)
    sums = np.concatenate([[0], np.cumsum(ends - starts)])
    order = QueueOrder(begins_at_zero=bool(store.commitlog) and store.commitlog[0].start == 0)
    neighbors: list[tuple[Neighbor | None, Neighbor | None]] = []
    last: Neighbor | None = None
    with open_log(store.view.open, store.commitlog, options) as table:
        for batch in table.batches():
            rows = batch.as_array()
            if (rows["verdict"] == Verdict.STALE).any():
                break
            good = message_rows(rows)
            if not good.size:
                continue
            at = np.searchsorted(good["physical_offset"], ends[len(neighbors) :])
            neighbors += [
                (_neighbour(good[number - 1]) if number else last, _neighbour(good[number]))
                for number in at[at < good.size].tolist()
            ]
            last = _neighbour(good[-1])
            for entries in queue_entries(good, batch.topics, batch_bytes(batch), settings, by_bytes=True):
                order.take(entries)
    neighbors += [(last, None)] * (ends.size - len(neighbors))

    def damaged_between(behind: int, before: int) -> int:
        """Bytes of damage between two offsets."""
        low = np.searchsorted(starts, behind, "right")
        high = np.searchsorted(ends, before, "right")
        return int(sums[max(low, high)] - sums[low])

    missing, misplaced = order.judged(damaged_between)
    return DamageContext(neighbors, missing, order.chains, misplaced)


def _neighbour(row: Any) -> Neighbor:
    return Neighbor(int(row["physical_offset"]), int(row["size"]), int(row["store_timestamp_ms"]))

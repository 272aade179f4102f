"""What lies around damage: the good records next to it, and the queue offsets that are missing between good ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch import DispatchSettings, QueueEntries, Rows, batch_bytes, message_rows, queue_entries
from rmqtool.formats.commitlog import RECORD_SIZE_MIN
from rmqtool.repair.salvage.damage import DamagedRange
from rmqtool.scan.log import LogFile, ScanOptions, carries_record_crc, plan_log, scan_log
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Store

QueueName = tuple[bytes, int, bool]
"""Topic, queue id, and whether it is a batch queue."""
RUNS_MAX: Final = 100_000
"""Runs of missing queue offsets that are kept; a log that has more of them has no order to learn from."""


class Neighbour(NamedTuple):
    """A good record next to damage."""

    physical_offset: int
    size: int
    store_timestamp_ms: int


class MissingRun(NamedTuple):
    """Queue offsets [first, first + length) that no good record has, though good ones lie on both sides of them.

    They were written between the physical offsets `behind` and `before`.
    """

    queue: QueueName
    first: int
    length: int
    behind: int
    before: int


@dataclass
class Surroundings:
    """What one scan over the log tells.

    Attributes:
        neighbours: the good records in front of and behind each range, in their order.
        record_crc: whether the store writes whole-record CRCs.
    """

    neighbours: list[tuple[Neighbour | None, Neighbour | None]] = field(default_factory=list)
    missing: list[MissingRun] = field(default_factory=list)
    record_crc: bool = False


def look_around(
    store: Store, ranges: Sequence[DamagedRange], settings: DispatchSettings, delays_ms: Sequence[int]
) -> Surroundings:
    """Scan the log once.

    Raises:
        UnreadableError: a file may not be opened.
    """
    plan = plan_log([LogFile(partial(store.view.open, found.path), found.start) for found in store.commitlog])
    try:
        look = _Look(ranges, settings, begins_at_zero=bool(store.commitlog) and store.commitlog[0].start == 0)
        look.found.record_crc = carries_record_crc(plan.pieces)
        for batch in scan_log(plan, ScanOptions(delays_ms, look.found.record_crc)):
            rows = batch.as_array()
            if (rows["verdict"] == Verdict.STALE).any():
                break
            good = message_rows(rows)
            if good.size:
                look.take(good, queue_entries(good, batch.topics, batch_bytes(batch), settings))
    finally:
        plan.close()
    return look.finish()


class _Look:
    def __init__(self, ranges: Sequence[DamagedRange], settings: DispatchSettings, *, begins_at_zero: bool) -> None:
        self.found = Surroundings()
        self._settings = settings
        self._ends = np.array([each.end for each in ranges], np.int64)
        self._starts = np.array([each.start for each in ranges], np.int64)
        self._last: Neighbour | None = None
        self._begins_at_zero = begins_at_zero
        self._next: dict[QueueName, tuple[int, int]] = {}
        """The queue offset that comes next, and where the record before it lies."""
        self._runs: defaultdict[QueueName, list[MissingRun]] = defaultdict(list)
        self._run_count = 0

    def take(self, rows: Rows, queues: list[QueueEntries]) -> None:
        """Take the good messages of one batch."""
        done = len(self.found.neighbours)
        at = np.searchsorted(rows["physical_offset"], self._ends[done:])
        for number in at[at < rows.size].tolist():
            before = _neighbour(rows[number - 1]) if number else self._last
            self.found.neighbours.append((before, _neighbour(rows[number])))
        self._last = _neighbour(rows[-1])
        for entries in queues:
            self._take_queue(entries)

    def finish(self) -> Surroundings:
        """The result, once all batches were taken."""
        while len(self.found.neighbours) < self._ends.size:
            self.found.neighbours.append((self._last, None))
        self.found.missing = sorted(
            (run for runs in self._runs.values() for run in runs), key=lambda run: (run.before, run.first)
        )
        return self.found

    def _take_queue(self, entries: QueueEntries) -> None:
        own = entries.own
        offsets, places = entries.queue_offsets[own], entries.physical_offsets[own]
        if not offsets.size:
            return
        queue = (entries.topic, entries.queue_id, entries.is_batch)
        sizes = entries.batch_sizes[own] if entries.is_batch else np.ones(offsets.size, np.int64)
        first, place = self._next.get(queue, (0 if self._begins_at_zero else int(offsets[0]), -1))
        expected = np.concatenate([[first], (offsets + sizes)[:-1]])
        behind = np.concatenate([[place], places[:-1]])
        self._drop_seen(queue, offsets)
        for number in np.flatnonzero(offsets > expected).tolist():
            run = MissingRun(
                queue,
                int(expected[number]),
                int(offsets[number] - expected[number]),
                int(behind[number]),
                int(places[number]),
            )
            if run.length * RECORD_SIZE_MIN <= self._damaged_between(run) and self._run_count < RUNS_MAX:
                self._runs[queue].append(run)
                self._run_count += 1
        self._next[queue] = int(offsets[-1] + sizes[-1]), int(places[-1])

    def _damaged_between(self, run: MissingRun) -> int:
        """Bytes of damage that lie between the two records around a run."""
        low = np.searchsorted(self._starts, run.behind, "right")
        high = np.searchsorted(self._ends, run.before, "right")
        return int((self._ends[low:high] - self._starts[low:high]).sum())

    def _drop_seen(self, queue: QueueName, queue_offsets: Any) -> None:
        """A queue offset that a later record has was not lost: the one before it claimed a wrong one."""
        runs = self._runs.get(queue)
        if not runs:
            return
        kept = [
            run for run in runs if not ((queue_offsets >= run.first) & (queue_offsets < run.first + run.length)).any()
        ]
        self._run_count -= len(runs) - len(kept)
        self._runs[queue] = kept


def _have(queue_offsets: Any, run: MissingRun) -> bool:
    return bool(((queue_offsets >= run.first) & (queue_offsets < run.first + run.length)).any())


def _neighbour(row: Any) -> Neighbour:
    return Neighbour(int(row["physical_offset"]), int(row["size"]), int(row["store_timestamp_ms"]))

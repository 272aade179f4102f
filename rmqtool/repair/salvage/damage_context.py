"""What lies around damage: the good records next to it, and the queue offsets that are missing between good ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.queue_entries import DispatchSettings, QueueEntries, Rows, batch_bytes, queue_entries
from rmqtool.formats.queue_name import TypedQueueKey
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.scan.log import ScanOptions, plan_segments, scan_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Store
from rmqtool.verify.match.queue_order import MisplacedRecord, MissingRun, QueueOrder, QueueRun


class Neighbor(NamedTuple):
    """A good record next to damage."""

    physical_offset: int
    size: int
    store_timestamp_ms: int


@dataclass
class DamageContext:
    """What one scan over the log tells.

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
        options: the columns that a digest keeps are enough.

    Raises:
        UnreadableError: a file may not be opened.
    """
    with closing(plan_segments(store.view.open, store.commitlog)) as plan:
        look = _Look(ranges, begins_at_zero=bool(store.commitlog) and store.commitlog[0].start == 0)
        for batch in scan_log(plan, options):
            rows = batch.as_array()
            if (rows["verdict"] == Verdict.STALE).any():
                break
            good = message_rows(rows)
            if good.size:
                look.take(good, queue_entries(good, batch.topics, batch_bytes(batch), settings, by_bytes=True))
    return look.finish()


class _Look:
    def __init__(self, ranges: Sequence[DamagedRange], *, begins_at_zero: bool) -> None:
        self.context = DamageContext()
        self._ends = np.array([damaged.end for damaged in ranges], np.int64)
        self._starts = np.array([damaged.start for damaged in ranges], np.int64)
        self._sums = np.concatenate([[0], np.cumsum(self._ends - self._starts)])
        self._last: Neighbor | None = None
        self._order = QueueOrder(begins_at_zero=begins_at_zero)

    def take(self, rows: Rows, queues: list[QueueEntries]) -> None:
        """Take the good messages of one batch."""
        done = len(self.context.neighbors)
        at = np.searchsorted(rows["physical_offset"], self._ends[done:])
        for number in at[at < rows.size].tolist():
            before = _neighbour(rows[number - 1]) if number else self._last
            self.context.neighbors.append((before, _neighbour(rows[number])))
        self._last = _neighbour(rows[-1])
        for entries in queues:
            self._order.take(entries)

    def finish(self) -> DamageContext:
        """The result, once all batches were taken."""
        while len(self.context.neighbors) < self._ends.size:
            self.context.neighbors.append((self._last, None))
        self.context.missing, self.context.misplaced = self._order.judged(self._damaged_between)
        self.context.chains = self._order.chains
        return self.context

    def _damaged_between(self, behind: int, before: int) -> int:
        """Bytes of damage that lie between two places."""
        low = np.searchsorted(self._starts, behind, "right")
        high = np.searchsorted(self._ends, before, "right")
        return int(self._sums[max(low, high)] - self._sums[low])


def _neighbour(row: Any) -> Neighbor:
    return Neighbor(int(row["physical_offset"]), int(row["size"]), int(row["store_timestamp_ms"]))

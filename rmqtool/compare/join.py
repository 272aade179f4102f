"""Finds the messages of one log in the other, wherever they lie: which are missing, changed, moved or out of order.

Messages are joined by their identity, a partition at a time. Two with one identity are told apart by queue and queue
offset first, so that a message that was sent twice is looked for at its own place before it is looked for elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from rmqtool.compare.rows import ROW, Array
from rmqtool.compare.spill import Spill

PAIR: Final = np.dtype([("queue", "i4"), ("physical_offset", "i8"), ("queue_offset", "i8"), ("other_offset", "i8")])
"""A message that both logs have in the same queue: its place in the one, and its queue offset in the other."""


class Kind(StrEnum):
    """Kind of a message's difference."""

    ONLY_A = "only-a"
    ONLY_B = "only-b"
    CHANGED = "changed"
    """Consumers get different content."""
    MOVED = "moved"
    """It stands in another queue, or at another queue offset."""
    REORDERED = "reordered"
    """In the same queue it comes after a message before which it comes in the other log."""


@dataclass
class Differences:
    """Messages that differ in one way: all counted by queue number, the first ones kept.

    Attributes:
        listed: rows of the first ones by physical offset, those of the other log beside them if they have one.
    """

    limit: int
    counts: dict[int, int] = field(default_factory=dict)
    listed: list[tuple[Array, Array | None]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def add(self, rows: Array, others: Array | None = None) -> None:
        """Add messages, in any order."""
        if not len(rows):
            return
        queues, counts = np.unique(rows["queue"], return_counts=True)
        for queue, count in zip(queues.tolist(), counts.tolist(), strict=True):
            self.counts[queue] = self.counts.get(queue, 0) + count
        order = np.argsort(rows["physical_offset"], kind="stable")[: self.limit]
        for at in order.tolist():
            self.listed.append((rows[at].copy(), None if others is None else others[at].copy()))
        self.listed.sort(key=lambda pair: int(pair[0]["physical_offset"]))
        del self.listed[self.limit :]


def join(spill: Spill, pairs: Spill, limit: int) -> dict[Kind, Differences]:
    """Join all partitions of the rows of both logs; `pairs` takes what both have in the same queue."""
    differences = {kind: Differences(limit) for kind in Kind}
    for number in range(spill.partition_count):
        join_rows(spill.rows(0, number, ROW), spill.rows(1, number, ROW), pairs, differences)
    return differences


def join_rows(here: Array, there: Array, pairs: Spill, differences: dict[Kind, Differences]) -> None:
    """Join the rows of one partition."""
    here, there = _join_single(here, there, pairs, differences)
    for fields in (("identity", "queue", "queue_offset"), ("identity", "queue"), ("identity",)):
        left, right = matched(here, there, fields)
        _compare(here[left], there[right], pairs, differences)
        here, there = np.delete(here, left), np.delete(there, right)
    differences[Kind.ONLY_A].add(here)
    differences[Kind.ONLY_B].add(there)


def _join_single(here: Array, there: Array, pairs: Spill, differences: dict[Kind, Differences]) -> tuple[Array, Array]:
    """Join the identities that each side has at most once, which are nearly all; return the rows of the others."""
    here, there = (rows[np.argsort(rows["identity"])] for rows in (here, there))
    ordered = here["identity"], there["identity"]
    many = np.unique(np.concatenate([one[1:][one[1:] == one[:-1]] for one in ordered]))  # those of several rows
    left, right = (_among(rows["identity"], many) for rows in (here, there))
    rests = here[left], there[right]
    if many.size:
        here, there = here[~left], there[~right]
    in_both = _among(here["identity"], there["identity"]), _among(there["identity"], here["identity"])
    _compare(here[in_both[0]], there[in_both[1]], pairs, differences)
    differences[Kind.ONLY_A].add(here[~in_both[0]])
    differences[Kind.ONLY_B].add(there[~in_both[1]])
    return rests


def _among(values: Array, ordered: Array) -> Array:
    """Mask of the values that an ordered array has too."""
    if not ordered.size:
        return np.zeros(values.size, np.bool_)
    places = np.searchsorted(ordered, values)
    places[places == ordered.size] = 0
    is_among: Array = ordered[places] == values
    return is_among


def matched(here: Array, there: Array, fields: Sequence[str]) -> tuple[Array, Array]:
    """Places of rows that agree in the fields; of several that do, the first ones in the order of the log."""
    both = np.concatenate([here, there])
    side = np.arange(len(both)) >= len(here)
    order = np.lexsort((both["physical_offset"], side, *(both[name] for name in reversed(fields))))
    both, side = both[order], side[order]
    begins = np.zeros(len(both), np.bool_)
    begins[:1] = True
    for name in fields:
        begins[1:] |= both[name][1:] != both[name][:-1]
    group = np.cumsum(begins) - 1
    # Place in the group's own side, so that the first of one side meets the first of the other.
    runs = begins.copy()
    runs[1:] |= side[1:] != side[:-1]
    starts = np.flatnonzero(runs)
    rank = np.arange(len(both)) - np.repeat(starts, np.diff([*starts.tolist(), len(both)]))
    again = np.lexsort((side, rank, group))
    one, next_one = again[:-1], again[1:]
    is_pair = (group[one] == group[next_one]) & (rank[one] == rank[next_one]) & (side[one] != side[next_one])
    return order[one[is_pair]], order[next_one[is_pair]] - len(here)


def _compare(here: Array, there: Array, pairs: Spill, differences: dict[Kind, Differences]) -> None:
    if not len(here):
        return
    changed = here["content"] != there["content"]
    differences[Kind.CHANGED].add(here[changed], there[changed])
    same_queue = here["queue"] == there["queue"]
    moved = ~same_queue | (here["queue_offset"] != there["queue_offset"])
    differences[Kind.MOVED].add(here[moved], there[moved])
    rows = np.empty(int(same_queue.sum()), PAIR)
    for name in ("queue", "physical_offset", "queue_offset"):
        rows[name] = here[name][same_queue]
    rows["other_offset"] = there["queue_offset"][same_queue]
    pairs.take(0, rows)


def find_reordered(pairs: Spill, differences: Differences) -> None:
    """Find the messages that precede another one in this log and follow it in the other; pairs are by physical offset
    in this log, ascending from partition to partition.
    """
    highest: dict[int, int] = {}
    for number in range(pairs.partition_count):
        rows = pairs.rows(0, number, PAIR)
        rows = rows[np.lexsort((rows["physical_offset"], rows["queue"]))]
        for part in np.split(rows, np.flatnonzero(np.diff(rows["queue"])) + 1):
            if not len(part):
                continue
            queue = int(part[0]["queue"])
            before = np.maximum.accumulate(np.concatenate([[highest.get(queue, -(1 << 63))], part["other_offset"]]))
            differences.add(part[part["other_offset"] < before[:-1]])
            highest[queue] = int(before[-1])

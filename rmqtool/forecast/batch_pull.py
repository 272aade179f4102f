"""Which units of a batch queue a client gets that pulls one message after the other.

A client continues after the last message of the unit that it got, and is given the unit at which the broker's search
for the queue offset ends (`BatchConsumeQueue#getBatchMsgIndexBuffer`): with base offsets out of order that is seldom
the one that it looks for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.batch_queue import BatchQueue
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.directory import Segment

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]
Units = NDArray[np.void]


def pulled_units(
    queue: BatchQueue, segments: Sequence[Segment], units_of: Callable[[Segment], Units]
) -> Iterator[tuple[Segment, Units, Bools]]:
    """A file, all of its units, and which of them clients get from the queue's minimum on.

    Args:
        segments: the queue's files that hold units.
        units_of: all units of a file.

    Raises:
        UnreadableError: a file cannot be read.
    """
    at, maximum = queue.min_queue_offset, min(queue.max_queue_offset, JAVA_LONG_MAX)
    firsts = [queue.unit(segment, 0).base_queue_offset for segment in segments]
    # The last file is read that does not begin after what is asked for.
    last_of = {first: number for number, first in enumerate(firsts)}
    bounds = [first for first in sorted(last_of) if first < maximum]
    number = -1
    for lower, upper in pairwise([*bounds, maximum]):
        number = max(number, last_of[lower])
        at = max(at, lower)
        if at < upper:
            units = units_of(segments[number])
            given, at = given_units(*_bounds(units), at, upper)
            yield segments[number], units, given


def given_units(bases: Int64s, ends: Int64s, at: int, stop: int) -> tuple[Bools, int]:
    """Which units of a file are given to a client that is at a queue offset, and where it is at or after `stop`."""
    given = np.zeros(bases.size, np.bool_)
    if (ends > bases).all() and (bases[1:] >= ends[:-1]).all():
        given = (bases < stop) & (np.append(bases[1:], JAVA_LONG_MAX) > at)
        return given, max(stop, int(ends[given].max(initial=at)))
    # What is given changes only at a unit's base offset, and after it.
    changes = np.unique(np.concatenate([[at], bases, bases + 1]))
    changes = changes[(changes >= at) & (changes < stop)]
    numbers, starts = searched(bases, changes).tolist(), changes.tolist()
    while at < stop:
        turn = bisect_right(starts, at) - 1
        given[numbers[turn]] = True
        end = int(ends[numbers[turn]])
        at = end if end > at else (starts[turn + 1] if turn + 1 < len(starts) else stop)
    return given, at


def searched(bases: Int64s, queue_offsets: Int64s) -> NDArray[np.intp]:
    """At which units of a file the broker's searches for queue offsets end; see `BatchQueue`."""
    low = np.zeros(queue_offsets.size, np.intp)
    high = np.full(queue_offsets.size, bases.size - 1, np.intp)
    while (open_ := high - low > 1).any():
        middle = (low + high) // 2
        base = bases[middle]
        is_hit, is_below = open_ & (base == queue_offsets), open_ & (base < queue_offsets)
        low = np.where(is_hit | is_below, middle, low)
        high = np.where(is_hit, middle, np.where(open_ & ~is_below, middle - 1, high))
    takes_high = (bases[low] != queue_offsets) & (bases[high] <= queue_offsets)
    return np.where(takes_high, high, low)


def _bounds(units: Units) -> tuple[Int64s, Int64s]:
    bases = units["base_queue_offset"].astype(np.int64)
    return bases, bases + units["batch_size"].astype(np.int64)

"""The queue units that point into damage: each queue is asked once, however many damaged ranges there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.verify.survey.queue_map import Open, QueueMap

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
    """Units by what they point to."""

    def __init__(self, queues: Sequence[QueueMap], open_file: Open, ranges: Sequence[DamagedRange]) -> None:
        """Look them up.

        Args:
            ranges: in log order. The last one of the log counts up to its file's end.

        Raises:
            UnreadableError: a file of a queue cannot be opened.
        """
        self._queues = queues
        starts = np.array([each.start for each in ranges], np.int64)
        ends = np.array([each.file_start + each.file_size if each.is_last else each.end for each in ranges], np.int64)
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
    """Numbers [low, high) of ranges that lie near each other."""
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

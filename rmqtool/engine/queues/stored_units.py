"""The plain units that a store has, as its files and databases are: before any start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import FILLER_UNIT, UNIT, UNIT_SIZE
from rmqtool.store.directory import Store
from rmqtool.store.source import read_range

BLOCK_UNITS: Final = 1 << 16
Int64s = NDArray[np.int64]


class StoredUnits:
    """Looks up units of a store's queues, each by its directory as files have it, also where it is in a database."""

    def __init__(self, store: Store) -> None:
        """Nothing is read before it is asked for."""
        self._store = store
        self._queues = {queue.directory: queue for queue in store.queues.values()}
        database = store.queue_database
        self._database = database if database is not None and database.failure is None else None

    def physical_offsets(self, directory: str, place: int, count: int) -> Int64s:
        """Where the units of a queue lead to; -1 where there is none that a broker takes for one, or it is filler."""
        offsets = np.full(count, -1, np.int64)
        if self._database is not None:
            _, topic, queue_id = directory.split("/")
            rows = self._database.between((topic, int(queue_id)), place, place + count)
            offsets[rows["queue_offset"].astype(np.int64) - place] = rows["physical_offset"]
            return offsets
        queue = self._queues.get(directory)
        for segment in queue.segments if queue is not None else ():
            low, high = max(place * UNIT_SIZE, segment.start), min((place + count) * UNIT_SIZE, segment.end)
            if low >= high or low % UNIT_SIZE:
                continue
            with suppress(UnreadableError), closing(self._store.view.open(segment.path)) as source:
                raw = read_range(source, low - segment.start, high - low)
                units = np.frombuffer(raw[: len(raw) // UNIT_SIZE * UNIT_SIZE], UNIT.dtype)
                is_unit = (units["physical_offset"] >= 0) & (units["record_size"] > 0)
                is_unit &= units != np.array(FILLER_UNIT, UNIT.dtype)
                at = low // UNIT_SIZE - place
                offsets[at : at + len(units)] = np.where(is_unit, units["physical_offset"], -1)
        return offsets

    def lead_to(self, directory: str, queue_offsets: Int64s, physical_offsets: Int64s) -> NDArray[np.bool_]:
        """For each record of a queue whether the unit at its queue offset leads to it."""
        are_there = np.zeros(queue_offsets.size, np.bool_)
        bounds = (0, *(np.flatnonzero(np.diff(queue_offsets) != 1) + 1).tolist(), queue_offsets.size)
        for begin, end in pairwise(bounds):
            if begin < end and queue_offsets[begin] >= 0:
                stored = self.physical_offsets(directory, int(queue_offsets[begin]), end - begin)
                are_there[begin:end] = stored == physical_offsets[begin:end]
        return are_there

    def live_start(self, directory: str, log_minimum: int) -> tuple[int, int] | None:
        """Queue offset and physical offset of the first unit that leads to the log or behind it."""
        for place, count in self._places(directory):
            offsets = self.physical_offsets(directory, place, count)
            live = np.flatnonzero(offsets >= log_minimum)
            if live.size:
                return place + int(live[0]), int(offsets[live[0]])
        return None

    def newest(self, directory: str) -> int:
        """The highest physical offset to which a unit of a queue leads; -1 without one."""
        places = self._places(directory)
        return max((int(self.physical_offsets(directory, *place).max(initial=-1)) for place in places), default=-1)

    def _places(self, directory: str) -> Iterator[tuple[int, int]]:
        """Queue offset and count of a queue's units, many at a time."""
        spans = []
        if self._database is not None:
            _, topic, queue_id = directory.split("/")
            if (rows := self._database.units.get((topic, int(queue_id)))) is not None:
                spans = [(rows.first, rows.last + 1)]
        elif (queue := self._queues.get(directory)) is not None:
            spans = [(-(-segment.start // UNIT_SIZE), segment.end // UNIT_SIZE) for segment in queue.segments]
        for begin, end in spans:
            for place in range(begin, end, BLOCK_UNITS):
                yield place, min(BLOCK_UNITS, end - place)

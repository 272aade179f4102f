"""Consume queues in RocksDB while a broker loads and starts: units put over those of the store, and the queues' ends.

Broker: `RocksDBConsumeQueueStore#putMessagePosition0`, `#truncateDirty`,
`RocksDBConsumeQueueOffsetTable#correctMaxCqOffset`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.queues.database_queue import DatabaseQueue
from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.forecast.load import LoadFailure
from rmqtool.forecast.record_arrays import ServedPlaces
from rmqtool.formats.queue_name import QueueName
from rmqtool.store.databases.queue_database import QueueDatabase, StoredEnd, StoredEnds, row_type

if TYPE_CHECKING:
    from rmqtool.forecast.record_arrays import RecordArrays

_READ_UNITS: Final = 1 << 16
Rows = NDArray[Any]


@dataclass
class DatabaseState:
    """State that all queues of a database share.

    Attributes:
        dispatched: end of the last record that was dispatched; at first as the store has it.
        truncates: whether a queue's end is corrected where the log is cut.
        log_minimum: where the log begins.
        newest_put: physical offset up to which records were dispatched in this start, perhaps again.
    """

    database: QueueDatabase
    rules: BrokerRules
    truncates: Callable[[QueueName], bool]
    dispatched: int
    log_minimum: int = 0
    newest_put: int = -1


class DatabaseQueueState:
    """One queue of a database; see `QueueState`, whose part it takes."""

    is_batch = False

    def __init__(self, name: QueueName, shared: DatabaseState) -> None:
        self.topic, self.queue_id = name
        self.rules = shared.rules
        self.known_maximum = 0
        self._name = name
        self._shared = shared
        ends = shared.database.ends.get(name, StoredEnds())
        self._throws = (name, False) in shared.database.short_ends
        """True if a broker throws at every request to the queue; a last unit is stored again when one is put."""
        self._ends = StoredEnds(ends.minimum, ends.maximum)
        self._put: list[Rows] = []
        self._is_put_in_order = False
        self._is_destroyed = False

    @property
    def physical_end(self) -> int:
        """Where the record of the last unit begins; -1 without one."""
        return self._ends.maximum.physical_offset if self._ends.maximum is not None else -1

    def recover(self) -> None:
        """Do nothing; rows are read on demand."""
        self.known_maximum = max(self.known_maximum, self.maximum())

    def put(self, entries: QueueEntries) -> None:
        """Enter records of the log: a unit replaces the one that has its queue offset."""
        rows = np.empty(len(entries.queue_offsets), row_type())
        rows["queue_offset"], rows["physical_offset"] = entries.queue_offsets, entries.physical_offsets
        rows["record_size"], rows["tags_code"] = entries.record_sizes, entries.tags_codes
        rows["store_timestamp_ms"] = entries.store_timestamps_ms
        self._put.append(rows)
        self._is_put_in_order = False
        last = rows[-1]
        self._ends.maximum = StoredEnd(int(last["physical_offset"]), int(last["queue_offset"]))
        end = int((rows["physical_offset"] + rows["record_size"]).max())
        self._shared.newest_put = self._shared.dispatched = max(self._shared.newest_put, end)
        self.known_maximum = max(self.known_maximum, self._ends.maximum.queue_offset + 1)

    def truncate(self, log_end: int) -> None:
        """Set the stored end back to a unit before the log's end, by halving; the units stay.

        Raises:
            LoadFailure: the broker gives up over a stored end.
        """
        if log_end >= self._shared.dispatched or not self._shared.truncates(self._name):
            return
        maximum, reads_all = self._ends.maximum, self.rules.rocksdb_loads_all_ends
        if maximum is None and (self._name, True) in self._shared.database.short_ends and not reads_all:
            raise LoadFailure(f"{self.topic}/{self.queue_id}: the stored last unit has too few bytes")
        if maximum is None or maximum.physical_offset < log_end:
            return
        if self._throws:
            raise LoadFailure(f"{self.topic}/{self.queue_id}: the stored first unit has too few bytes")
        try:
            self._set_end_back(maximum, log_end)
        except UnreadableError as failure:
            raise LoadFailure(str(failure)) from None

    def _set_end_back(self, maximum: StoredEnd, log_end: int) -> None:
        queue = self.queue(self._shared.log_minimum)
        lowest, minimum = queue.first_answer
        self._ends.minimum = minimum or self._ends.minimum
        if minimum is None or minimum.queue_offset != lowest or minimum.physical_offset > log_end:
            if self.rules.rocksdb_loads_all_ends:
                return  # the broker logs a fault and leaves the queue as it is
            raise LoadFailure(f"{self.topic}/{self.queue_id}: no unit before the end of the log")
        low, high, best = lowest, maximum.queue_offset, None
        while high >= low:
            middle = low + (high - low) // 2
            physical_offset = queue.physical_offset(middle)
            if physical_offset is None or physical_offset < log_end:
                low, best = middle + 1, StoredEnd(physical_offset, middle) if physical_offset is not None else best
            elif physical_offset == log_end:
                break
            else:
                high = middle - 1
        if best is not None:
            self._ends.maximum = best
        elif maximum.queue_offset != lowest:
            self._ends.maximum = minimum

    def set_end(self, queue_offset: int) -> None:
        """Let the queue begin and end before a queue offset (`RocksDBConsumeQueue#initializeWithOffset`)."""
        self._ends = StoredEnds(StoredEnd(0, queue_offset), StoredEnd(0, queue_offset - 1))

    def destroy(self) -> None:
        """Delete the database, as a broker does that finds no log; it continues to use the ends that it has read."""
        self._is_destroyed, self._put, self._is_put_in_order = True, [], False
        keeps_ends = self.rules.rocksdb_loads_all_ends
        self._ends = StoredEnds(StoredEnd(0, 0), self._ends.maximum) if keeps_ends else StoredEnds()
        self._shared.dispatched = 0

    def correct_minimum(self, log_minimum: int) -> None:
        """Do nothing; a queue is asked with the minimum of the log."""

    def maximum(self) -> int:
        return self._ends.maximum.queue_offset + 1 if self._ends.maximum is not None and not self._throws else 0

    def filler_units(self) -> int:
        return 0  # a database needs none

    def queue(self, log_minimum: int, extension: QueueExtension | None = None) -> DatabaseQueue:
        del extension
        ends = StoredEnds() if self._throws else self._ends
        short_units = self._shared.database.short_units.get(self._name, {}) if not self._is_destroyed else {}
        return DatabaseQueue(*self._name, ends, self.between, self.rules, log_minimum, short_units)

    def bounds(self, log_minimum: int) -> tuple[int, int]:
        queue = self.queue(log_minimum)
        return queue.min_queue_offset, queue.max_queue_offset

    def between(self, begin: int, end: int) -> Rows:
        """Units whose queue offsets are in [begin, end), those put in this start before those of the store."""
        stored = self._shared.database.between(self._name, begin, end) if not self._is_destroyed else _NO_ROWS
        put = self._put_rows()
        low, high = np.searchsorted(put["queue_offset"], [begin, end])
        if low == high:
            return stored
        put = put[low:high]
        kept = stored[~np.isin(stored["queue_offset"], put["queue_offset"])]
        rows = np.concatenate([kept, put])
        return rows[np.argsort(rows["queue_offset"], kind="stable")]

    def first_from(self, begin: int) -> int | None:
        """The first queue offset from one on that has a unit; None where none has."""
        known = []
        database = self._shared.database
        if not self._is_destroyed and (queue := database.units.get(self._name)) is not None:
            number = database.number_of(self._name, begin)
            if number < queue.unit_count:
                known.append(int(database.rows(self._name, number, 1)[0]["queue_offset"]))
        put = self._put_rows()["queue_offset"]
        if (at := int(np.searchsorted(put, begin))) < put.size:
            known.append(int(put[at]))
        return min(known, default=None)

    def _put_rows(self) -> Rows:
        """Rows that were put, in order of queue offsets; of several for one the last counts."""
        if not self._is_put_in_order:
            rows = np.concatenate(self._put)[::-1] if self._put else _NO_ROWS
            _, at = np.unique(rows["queue_offset"].astype(np.int64), return_index=True)
            self._put, self._is_put_in_order = [rows[at]], True
        return self._put[0]


_NO_ROWS: Final = np.empty(0, row_type())


class DatabaseServedUnits:
    """Tells which records a queue of a database serves; its members are those of `ServedUnits`."""

    is_batch = False

    def __init__(self, state: DatabaseQueueState, log_minimum: int) -> None:
        queue = state.queue(log_minimum)
        self._first, self._end = queue.min_queue_offset, queue.max_queue_offset
        self.span = self._first, self._end
        self._state, self._log_minimum = state, log_minimum
        self._reads_on = state.rules.rocksdb_pull_reads_on

    def ranges(self, unit_count_max: int) -> Iterator[tuple[int, int]]:
        """Queue offsets [first, end) that have units; what no unit has is left out."""
        begin: int | None = self._first
        while begin is not None and begin < self._end:
            begin = self._state.first_from(begin)
            if begin is not None and begin < self._end:
                yield begin, min(begin + unit_count_max, self._end)
                begin += unit_count_max

    def between(self, first: int, end: int) -> ServedPlaces:
        units = self._given(max(first, self._first), min(end, self._end))
        offsets, places, sizes = (
            units[name].astype(np.int64) for name in ("queue_offset", "physical_offset", "record_size")
        )
        return ServedPlaces(offsets, places, sizes, np.ones(len(units), np.int64))

    def live_start(self, log_minimum: int) -> tuple[int, int] | None:
        for begin, end in self.ranges(_READ_UNITS):
            units = self._between(begin, end)
            live = np.flatnonzero(units["physical_offset"] >= log_minimum)
            if live.size:
                return int(units["queue_offset"][live[0]]), int(units["physical_offset"][live[0]])
        return None

    def has_at(self, queue_offsets: NDArray[np.int64], records: RecordArrays) -> NDArray[np.bool_]:
        """For each record whether the unit at its own queue offset points to it, and a pull comes past it."""
        is_served = np.zeros(queue_offsets.size, np.bool_)
        inside = np.flatnonzero((queue_offsets >= self._first) & (queue_offsets < self._end))
        if not inside.size:
            return is_served
        units = self._given(int(queue_offsets[inside].min()), int(queue_offsets[inside].max()) + 1)
        at = np.searchsorted(units["queue_offset"], queue_offsets[inside])
        known = at < len(units)
        known[known] = units["queue_offset"][at[known]] == queue_offsets[inside[known]]
        numbers, hit = inside[known], units[at[known]]
        is_served[numbers] = (hit["physical_offset"] == records.physical_offsets[numbers]) & records.fit(numbers, hit)
        return is_served

    def has_anywhere(self, records: RecordArrays) -> NDArray[np.bool_]:
        is_served = np.zeros(records.physical_offsets.size, np.bool_)
        order = np.argsort(records.physical_offsets, kind="stable")
        in_order = records.physical_offsets[order]
        for begin, end in self.ranges(_READ_UNITS):
            units = self._given(begin, end)
            if len(units):
                at = np.searchsorted(in_order, units["physical_offset"]).clip(max=in_order.size - 1)
                hits = np.flatnonzero((in_order[at] == units["physical_offset"]) & records.fit(order[at], units))
                is_served[order[at[hits]]] = True
        return is_served

    def _between(self, begin: int, end: int) -> Rows:
        """Units without those that lead before the log, which any compaction removes."""
        units = self._state.between(begin, end)
        kept: Rows = units[units["physical_offset"] >= self._log_minimum]
        return kept

    def _given(self, begin: int, end: int) -> Rows:
        """The units that a pull gives; where it reads on, it fails at a missing unit, and gives none before it."""
        if not self._reads_on:
            return self._between(begin, min(end, self._end))
        units = self._between(begin, min(end + 1, self._end))
        places = units["queue_offset"]
        follows = np.append(places[1:] == places[:-1] + 1, np.zeros(min(1, len(places)), np.bool_))
        given: Rows = units[(places < end) & (follows | (places == self._end - 1))]
        return given

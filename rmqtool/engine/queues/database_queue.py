"""A consume queue in RocksDB as the broker has it after load: only units between its stored ends count.

Broker: `RocksDBConsumeQueue`, `RocksDBConsumeQueueStore#getOffsetInQueueByTime`,
`RocksDBConsumeQueueOffsetTable#getMinCqOffset`, `RocksDBConsumeQueueTable#rangeQuery`, `#binarySearchInCQByTime`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.queues.unit import Boundary, QueueUnit
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import UNIT_SIZE
from rmqtool.store.databases.queue_database import StoredEnd, StoredEnds

if TYPE_CHECKING:
    from numpy.typing import NDArray

READ_UNITS: Final = 4096


Between = Callable[[int, int], "NDArray[Any]"]
"""Gives the units, as rows of the database, whose queue offsets are in [begin, end)."""
ShortUnits = Mapping[int, int | None]
"""As `QueueDatabase.short_units`."""


@dataclass(eq=False)
class DatabaseQueue(Queue):
    """A queue whose units are rows of a database."""

    topic: str
    queue_id: int
    ends: StoredEnds
    _between: Between
    _rules: BrokerRules
    _log_minimum: int
    _short_units: ShortUnits
    loaded: None = None
    unit_size: ClassVar[int] = UNIT_SIZE  # though a unit has more bytes here

    @cached_property
    def max_queue_offset(self) -> int:
        return self.ends.maximum.queue_offset + 1 if self.ends.maximum is not None and not self._throws else 0

    @property
    def min_queue_offset(self) -> int:
        """As every question but the first one gets it."""
        if self._throws:
            return 0
        first, stored = self.first_answer
        return stored.queue_offset if stored is not None else first

    @cached_property
    def _throws(self) -> bool:
        """True if a broker throws at every request to the queue, as each begins with its minimum."""
        try:
            _ = self.first_answer
        except UnreadableError:
            return True
        return False

    @cached_property
    def first_answer(self) -> tuple[int, StoredEnd | None]:
        """The minimum as the first question gets it, and what is stored of it from then on; None: as before.

        That is the stored minimum if it does not lie below the log; else the first unit that does not, by halving.
        Where that meets no such unit, the queue's end is stored, which only later questions get.

        Raises:
            UnreadableError: halving meets a unit of too few bytes, and the broker throws.
        """
        minimum, maximum = self.ends.minimum, self.ends.maximum
        if minimum is not None and minimum.physical_offset >= self._log_minimum:
            return minimum.queue_offset, minimum
        if maximum is None:
            return 0, StoredEnd(self._log_minimum, 0)
        if maximum.physical_offset < self._log_minimum:
            return maximum.queue_offset + 1, StoredEnd(self._log_minimum, maximum.queue_offset + 1)
        low, high, first = minimum.queue_offset if minimum is not None else 0, maximum.queue_offset, None
        start = low
        while high >= low:
            middle = low + (high - low) // 2
            physical_offset = self.physical_offset(middle)
            if physical_offset is None or physical_offset < self._log_minimum:
                low = middle + 1
                continue
            high, first = middle - 1, StoredEnd(physical_offset, middle)
            if first.physical_offset == self._log_minimum:
                break
        if first is None:
            return start, maximum if maximum.queue_offset != start else None
        return first.queue_offset, first

    def units_from(self, queue_offset: int, max_count: int | None = None) -> Iterator[QueueUnit] | None:
        """Units up to the first one that is missing, at which later versions fail."""
        if queue_offset >= self.max_queue_offset:
            return None
        if self._rules.rocksdb_pull_reads_on:
            return self._units(queue_offset)
        return islice(self._units(queue_offset), max_count) if self.row(queue_offset) is not None else None

    def unit_at(self, queue_offset: int) -> QueueUnit | None:
        row = self.row(queue_offset) if queue_offset < self.max_queue_offset else None
        return None if row is None else QueueUnit(*row.item()[:4])

    def last_record(self) -> tuple[int, int] | None:
        row = self.row(self.max_queue_offset - 1)
        return None if row is None else (int(row["physical_offset"]), int(row["record_size"]))

    def offset_by_time(self, log: Log, timestamp_ms: int, boundary: Boundary) -> int:  # noqa: ARG002 - as every queue
        """The queue offset of a time; see `Queue`. Units of this kind hold their times; -1 where none was found."""
        if not self.max_queue_offset:
            return 0
        lower = boundary is Boundary.LOWER
        first, last = self.min_queue_offset, self.max_queue_offset - 1
        last_time, first_time = self._time(last), self._time(first)
        if self._rules.rocksdb_time_beyond_ends:
            if last_time is not None and last_time < timestamp_ms:
                return last + 1 if lower else last
            if first_time is not None and first_time > timestamp_ms:
                return first if lower else 0
        low, high, left, right = first, last, -1, -1
        while high >= low:
            middle = low + (high - low) // 2
            row = self.row(middle)
            if row is None:
                low = middle + 1
            elif row["physical_offset"] < self._log_minimum:
                low, left = middle + 1, middle
            elif row["store_timestamp_ms"] < 0:
                return 0
            elif row["store_timestamp_ms"] == timestamp_ms:
                step, limit = (-1, first) if lower else (1, last)
                while middle != limit and self._time(middle + step) == timestamp_ms:
                    middle += step
                return middle
            elif row["store_timestamp_ms"] > timestamp_ms:
                high, right = middle - 1, middle
            else:
                low, left = middle + 1, middle
        return right if lower else left

    def row(self, queue_offset: int) -> Any | None:
        """The unit as it lies in the database; None where there is none."""
        rows = self._between(queue_offset, queue_offset + 1)
        return rows[0] if len(rows) else None

    def physical_offset(self, queue_offset: int) -> int | None:
        """Where halving takes the record of a unit to start, though the unit may have no more than that.

        Raises:
            UnreadableError: the unit has fewer bytes, and the broker throws.
        """
        row = self.row(queue_offset)
        if row is not None:
            return int(row["physical_offset"])
        if (short := self._short_units.get(queue_offset, -1)) is None:
            text = f"{self.topic}/{self.queue_id}: the unit at queue offset {queue_offset} has too few bytes"
            raise UnreadableError(f"{text}, and a broker fails")
        return short if queue_offset in self._short_units else None

    def _units(self, queue_offset: int) -> Iterator[QueueUnit]:
        while queue_offset < self.max_queue_offset:
            end = min(queue_offset + READ_UNITS, self.max_queue_offset)
            for row in self._between(queue_offset, end).tolist():
                if row[0] != queue_offset:
                    break
                yield QueueUnit(*row[:4])
                queue_offset += 1
            if queue_offset < end:
                if self._rules.rocksdb_pull_reads_on:
                    text = f"{self.topic}/{self.queue_id}: no unit at queue offset {queue_offset}"
                    raise UnreadableError(f"{text}, where a pull from a broker {self._rules.version} fails")
                return

    def _time(self, queue_offset: int) -> int | None:
        row = self.row(queue_offset)
        return None if row is None else int(row["store_timestamp_ms"])

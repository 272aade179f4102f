"""The file in which recovery begins.

Broker: `CommitLog#recoverNormally`, `#recoverAbnormally`, `#isMappedFileMatchedRecover`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rmqtool.engine.reading.log_end import FILES_FROM_END
from rmqtool.engine.rules.algorithms import AbnormalStart, NormalStart
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.forecast.load import LoadFailure
from rmqtool.forecast.options import ForecastOptions
from rmqtool.formats.checkpoint import Checkpoint
from rmqtool.scan.columns import Row
from rmqtool.store.directory import Segment

MARGIN_MS: Final = 3000
EXTRA_FILES: Final = 3
"""Files before the right one that a start reads for the second side (`combineCQMaxExtraSearchCommitLogFiles`)."""


@dataclass(frozen=True)
class FirstRecord:
    """What the start-file tests see of a file's first bytes.

    Attributes:
        has_magic: whether a message's magic that the version knows stands there.
        store_timestamp_ms: where a record has it, whatever lies there.
        checked: the record, if it passes the whole check.
    """

    has_magic: bool
    store_timestamp_ms: int
    checked: Row | None


@dataclass(frozen=True)
class StartChoice:
    """Finds the file.

    Attributes:
        first_record: looks at the start of a file.
        dispatched_end: the physical offset up to which the log counts as dispatched.
        in_database: whether the queues are in RocksDB, whose own end is compared instead of times.
        queues_end: the highest maxPhysicOffset of all queues.
        second: what the side says that does not assign queue offsets; None where there is none, or it is not asked.
        demands_second: whether no file does of which the second side says that it is too late.
        reads_second: whether that side answers pulls, and so has to be whole.
    """

    rules: BrokerRules
    options: ForecastOptions
    checkpoint: Checkpoint
    first_record: Callable[[Segment], FirstRecord]
    queues_end: int
    dispatched_end: int
    in_database: bool = False
    second: StartChoice | None = None
    demands_second: bool = False
    reads_second: bool = False

    def normal(self, segments: Sequence[Segment]) -> int:
        """Number of the file after a clean stop.

        Raises:
            LoadFailure: the broker gives up.
        """
        if self.rules.normal_start is NormalStart.THIRD_FROM_END:
            return max(0, len(segments) - FILES_FROM_END)
        return self._search(segments, crashed=False)

    def abnormal(self, segments: Sequence[Segment]) -> int:
        """Number of the file after a crash.

        Raises:
            LoadFailure: the broker gives up.
        """
        return self._search(segments, crashed=True)

    def _search(self, segments: Sequence[Segment], *, crashed: bool) -> int:
        limit = self.options.recover_files_max or self.rules.recover_files_max
        if self.rules.recover_files_max is None:
            limit = None
        first = max(0, len(segments) - limit) if limit is not None else 0
        extra_files = EXTRA_FILES
        for number in range(len(segments) - 1, first - 1 if first or crashed else first, -1):
            if not self.matches(segments[number], crashed=crashed):
                continue
            if self.second is None or self.second.matches(segments[number], crashed=crashed):
                return number
            if self.demands_second:
                continue
            if not extra_files:
                if self.reads_second:
                    raise LoadFailure("the queues that are read have less than those that assign queue offsets")
                return number
            extra_files -= 1
        return first

    def matches(self, segment: Segment, *, crashed: bool) -> bool:
        """Whether this side lets recovery begin with a file."""
        if not crashed and self.rules.normal_start is NormalStart.START_BELOW_QUEUES:
            return segment.start <= self.queues_end
        if not crashed:
            return self._may_start_normally(segment)
        matches = {
            AbnormalStart.MAGIC_AND_TIME: self._has_magic_and_time,
            AbnormalStart.CHECKED_AND_TIME: self._is_checked_and_in_time,
            AbnormalStart.CHECKED_AND_OFFSET: self._is_checked_and_below,
        }[self.rules.abnormal_start]
        return matches(segment)

    def _may_start_normally(self, segment: Segment) -> bool:
        row = self.first_record(segment).checked
        if row is None or row.store_timestamp_ms == 0:
            return False
        if self.rules.index_safe_on_normal_start and not self._is_index_safe(row):
            return False
        return row.own_offset <= self.dispatched_end

    def _has_magic_and_time(self, segment: Segment) -> bool:
        record = self.first_record(segment)
        if record.has_magic and self.in_database:
            own_offset = record.checked.own_offset if record.checked is not None else segment.start
            return own_offset <= self.dispatched_end
        if not record.has_magic or record.store_timestamp_ms == 0:
            return False
        limit = self._minimum_timestamp_ms
        if self._index_safe:
            limit = min(limit, self.checkpoint.index_timestamp_ms)
        return record.store_timestamp_ms <= limit

    def _is_checked_and_in_time(self, segment: Segment) -> bool:
        row = self.first_record(segment).checked
        if row is None or row.store_timestamp_ms == 0 or not self._is_index_safe(row):
            return False
        if self.in_database:
            return row.own_offset <= self.dispatched_end
        return row.store_timestamp_ms <= self._minimum_timestamp_ms

    def _is_checked_and_below(self, segment: Segment) -> bool:
        row = self.first_record(segment).checked
        if row is None or row.store_timestamp_ms == 0 or not self._is_index_safe(row):
            return False
        known = self.checkpoint.consumequeue_physical_offset if not self.in_database else self.dispatched_end
        if known > 0 or self.in_database:
            return row.own_offset <= known
        return row.store_timestamp_ms <= self.checkpoint.consumequeue_timestamp_ms

    def _is_index_safe(self, row: Row) -> bool:
        return not self._index_safe or row.store_timestamp_ms <= self.checkpoint.index_timestamp_ms

    @property
    def _index_safe(self) -> bool:
        return self.options.index_enabled and self.options.message_index_safe

    @property
    def _minimum_timestamp_ms(self) -> int:
        """`StoreCheckpoint#getMinTimestamp`."""
        times = (self.checkpoint.commitlog_timestamp_ms, self.checkpoint.consumequeue_timestamp_ms)
        return max(0, min(times) - MARGIN_MS)

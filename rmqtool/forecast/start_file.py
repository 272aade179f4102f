"""The file in which recovery begins.

Broker: `CommitLog#recoverNormally`, `#recoverAbnormally`, `#isMappedFileMatchedRecover`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rmqtool.engine.reading.log_end import FILES_FROM_END
from rmqtool.engine.rules.algorithms import AbnormalStart, NormalStart
from rmqtool.engine.rules.versions import BrokerRules
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
        first_record: looks at the begin of a file.
        dispatched_end: the physical offset up to which the log counts as dispatched.
        in_database: whether the queues are in RocksDB, whose own end is compared instead of times.
        queues_end: the highest maxPhysicOffset of all queues.
        second_end: the same of a database that is written beside the files; 0 where it has nothing or is not asked.
    """

    rules: BrokerRules
    options: ForecastOptions
    checkpoint: Checkpoint
    first_record: Callable[[Segment], FirstRecord]
    queues_end: int
    dispatched_end: int
    in_database: bool = False
    second_end: int = 0

    def normal(self, segments: Sequence[Segment]) -> int:
        """Number of the file after a clean stop."""
        kind = self.rules.normal_start
        if kind is NormalStart.THIRD_FROM_END:
            return max(0, len(segments) - FILES_FROM_END)
        if kind is NormalStart.START_BELOW_QUEUES:
            return self._search(segments, lambda segment: segment.start <= self.queues_end)
        return self._search(segments, self._may_start_normally)

    def abnormal(self, segments: Sequence[Segment]) -> int:
        """Number of the file after a crash."""
        kind = self.rules.abnormal_start
        matches = {
            AbnormalStart.MAGIC_AND_TIME: self._has_magic_and_time,
            AbnormalStart.CHECKED_AND_TIME: self._is_checked_and_in_time,
            AbnormalStart.CHECKED_AND_OFFSET: self._is_checked_and_below,
        }[kind]
        return self._search(segments, matches)

    def _search(self, segments: Sequence[Segment], matches: Callable[[Segment], bool]) -> int:
        limit = self.options.recover_files_max or self.rules.recover_files_max
        if self.rules.recover_files_max is None:
            limit = None
        first = max(0, len(segments) - limit) if limit is not None else 0
        extra_files = EXTRA_FILES
        for number in range(len(segments) - 1, first, -1):
            if not matches(segments[number]):
                continue
            if self.second_end <= 0 or segments[number].start <= self.second_end or not extra_files:
                return number
            extra_files -= 1
        return first

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

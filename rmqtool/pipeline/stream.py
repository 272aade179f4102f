"""Follows the logs of stores as a stream: an offset is the position up to which each was read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rmqtool.engine.segments.log_position import (
    Position,
    mark_of,
    position_after,
    position_before_cut,
    position_within,
    readable_end,
    what_is_lost,
)
from rmqtool.errors import DataLossError, NotAStoreError, UnreadableError, UsageError
from rmqtool.findings.finding import MISSING_LOG_FILE
from rmqtool.pipeline.enums import OnStoreMissing
from rmqtool.pipeline.tables.log_splits import UNREADABLE, LogTask, Splitting, log_tasks
from rmqtool.pipeline.tables.message_columns import MessageBatches, SourceFile
from rmqtool.pipeline.tables.options import LATEST, PLANNING_THREADS, SourceOptions
from rmqtool.pipeline.tables.options import UNREADABLE as UNREADABLE_STORE
from rmqtool.pipeline.tables.table import MessagesTable, RangeTask, in_mode, tasks, with_judgement
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.runner import ThreadRunner
from rmqtool.store.directory import Store

REPLACED: Final = "commitlog.replaced"
"""The log is another one than the stream has read, or was cut; it is read again from where it is the same."""
Offsets = dict[str, Any]
"""Content of a checkpoint: the position in each store, and whether the store was missing."""
MISSING: Final = "missing"


@dataclass(frozen=True)
class LostRange:
    """What a batch cannot read, as one row.

    Attributes:
        physical_offset, size: of the range of a log that is gone.
    """

    store: str
    physical_offset: int
    size: int
    finding: str


@dataclass(frozen=True)
class StoreBatch:
    """What a batch has of one store.

    Attributes:
        begin: where reading continues, after what is lost.
        end: of what can be read now.
        lost: since the last batch; None where nothing is.
    """

    label: str
    store: Store
    begin: Position
    end: Position
    lost: LostRange | None = None


def lag(end: str | None, latest: str | None) -> dict[str, int]:
    """Bytes of each store's log between two offsets of a stream, as Spark tells them in JSON; of others nothing."""

    def places(text: str | None) -> dict[str, int]:
        values = json.loads(text) if text else None
        of_stores = values.items() if isinstance(values, dict) else ()
        known = ((label, one) for label, one in of_stores if isinstance(one, dict) and "physical_offset" in one)
        return {label: Position.parse(one).physical_offset for label, one in known}

    read, ends = places(end), places(latest)
    return {label: max(0, ends[label] - read[label]) for label in ends.keys() & read.keys()}


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the table `messages` as the logs grow."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._is_bounded = False
        self._target: dict[str, int] | None = None
        self._ends: dict[str, Position] = {}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """The place in each log at which the options begin.

        Raises:
            UsageError: they name a store that is not there.
        """
        starting = self._options.starting_offsets
        stores = self._stores({})
        if isinstance(starting, Mapping) and (unknown := sorted(starting.keys() - stores.keys())):
            raise UsageError(f"option startingOffsets: there is no store {', '.join(unknown)}")
        offsets: Offsets = {}
        for label, store in stores.items():
            asked = starting.get(label, 0) if isinstance(starting, Mapping) else starting
            if asked == LATEST:
                end, _ = readable_end(store)
                offsets[label] = position_after(store, Position(end.physical_offset), end).as_json()
            else:
                offsets[label] = Position(max(asked, self._begin(store, {})[0].physical_offset)).as_json()
        return offsets

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """As the options say."""
        most = self._options.bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than the logs are flushed when the first batch is planned."""
        self._is_bounded = True

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802 - Spark's name
        """Ends of the flushed logs, as the last batch saw them."""
        return {label: end.as_json() for label, end in self._ends.items()} or None

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """End of the next batch: the ends of the flushed logs, or so far towards each that the limit is kept.

        Raises:
            DataLossError: records after `start` are gone, or a store is.
        """
        stores = self._stores(start)
        planned = ThreadRunner(PLANNING_THREADS).map(partial(self._next, start), list(stores.values()))
        batches = {batch.label: batch for batch in planned if batch is not None}
        self._ends = {label: batch.end for label, batch in batches.items()}
        if self._is_bounded and self._target is None:
            self._target = {label: batch.end.physical_offset for label, batch in batches.items()}
        if self._target is not None:
            batches = {
                label: replace(batch, end=batch.end if batch.end.physical_offset <= at else Position(at))
                for label, batch in batches.items()
                if (at := self._target.get(label)) is not None
            }
        new = {label: max(0, one.end.physical_offset - one.begin.physical_offset) for label, one in batches.items()}
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        offsets = dict(start)
        for label, batch in batches.items():
            end = batch.end
            if most is not None and sum(new.values()) > most:
                end = position_within(batch.store, batch.begin, end, most * new[label] // sum(new.values()))
            if end.physical_offset > batch.begin.physical_offset:
                offsets[label] = position_after(batch.store, batch.begin, end).as_json()
            elif batch.lost is not None or label not in start or _was_missing(start[label]):
                offsets[label] = batch.begin.as_json()
        for label in start.keys() - self._ends.keys():
            self._tell_missing(label)
            offsets[label] = {**Position.parse(start[label]).as_json(), MISSING: True}
        return offsets

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The parts of the logs in between, each with the range that is asked for of its store.

        Raises:
            DataLossError: records in between are gone.
        """
        stores = self._stores(end)
        values: list[LostRange] = []
        ranges: list[tuple[Store, RowFilter, int | None]] = []
        for label, value in end.items():
            if value == start.get(label):
                continue
            high = Position.parse(value)
            if _was_missing(value):
                values.append(LostRange(label, high.physical_offset, 0, UNREADABLE_STORE))
                continue
            if label not in stores:
                if self._options.on_store_missing != OnStoreMissing.SKIP:
                    raise DataLossError(f"{label}: there is no store any more, and a batch of it was begun")
                low = Position.parse(start.get(label, 0)).physical_offset
                values.append(LostRange(label, low, max(0, high.physical_offset - low), UNREADABLE_STORE))
                continue
            store = stores[label]
            begin, lost = self._begin(store, start)
            if lost is not None:
                values.append(lost)
            if (message := what_is_lost(store, high)) is not None:
                self._tell(label, message)
                continue  # planned before the log was replaced: the next batch begins where it is the same
            low = begin.physical_offset
            if low < high.physical_offset:
                row_at = None if begin.mark is None else low  # where the options begin may be anywhere
                ranges.append((store, self._between(low, high.physical_offset), row_at))

        def parts_in(splitting: Splitting) -> list[RangeTask]:
            return [
                RangeTask(task, between)
                for store, between, row_at in ranges
                for task in log_tasks(store, [between], splitting, row_at)
            ]

        groups = [*([lost] for lost in values), *tasks(parts_in, self._options.splitting)]
        return [InputPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task.

        Raises:
            DataLossError: a file was removed after the batch was planned.
        """
        table = MessagesTable(replace(self._options, row_filter=RowFilter(stale=False)))
        for part in partition.value or ():
            if isinstance(part, LostRange):
                columns = MessageBatches(with_judgement(self._schema), SourceFile(part.store, ""))
                row = columns.range_row(part.physical_offset, part.size, part.finding, file_position=None)
                yield from in_mode(iter([row]), self._schema, self._options.mode)
            else:
                yield from in_mode(self._watched(part.task, table.read(part)), self._schema, self._options.mode)

    def _watched(self, task: LogTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows == 1 and batch["finding"][0].as_py() == UNREADABLE:
                for split in task:
                    if split.view.stat(split.path) is None:
                        self._tell(split.store, f"{split.path} was removed before it was read")
            yield batch

    def _between(self, low: int, high: int) -> RowFilter:
        return replace(self._options.row_filter, from_physical_offset=low, to_physical_offset=high)

    def _stores(self, known: Offsets) -> dict[str, Store]:
        """The stores by name, but those whose log was read before and is gone as a whole: their disk may be away."""

        def is_away(store: Store) -> bool:
            return not store.commitlog and Position.parse(known.get(store.view.label, 0)).physical_offset > 0

        try:
            return {store.view.label: store for store in self._options.stores() if not is_away(store)}
        except (NotAStoreError, UnreadableError):
            if not known:
                raise
            return {}

    def _next(self, start: Offsets, store: Store) -> StoreBatch | None:
        """What is new in a store; None where it cannot be read."""
        label = store.view.label
        try:
            begin, lost = self._begin(store, start)
            known = self._ends.get(label, begin)
            if known.physical_offset < begin.physical_offset or what_is_lost(store, known) is not None:
                known = begin  # before which nothing is read again
            end, _ = readable_end(store, known)
            end = replace(end, mark=mark_of(store, end.physical_offset))
        except UnreadableError:
            return None
        high = self._options.row_filter.to_physical_offset
        if high is not None and high < end.physical_offset:
            end = Position(high)
        return StoreBatch(label, store, begin, end, lost)

    def _begin(self, store: Store, start: Offsets) -> tuple[Position, LostRange | None]:
        """Position at which reading a log continues, and what was lost before."""
        label = store.view.label
        if label not in start:
            return Position(max(self._options.row_filter.from_physical_offset or 0, store.log_start)), None
        position = Position.parse(start[label])
        message = what_is_lost(store, position)
        if message is None:
            return position, None
        self._tell(label, message)
        at = position.physical_offset
        if store.log_start > at:
            return Position(store.log_start), LostRange(label, at, store.log_start - at, MISSING_LOG_FILE)
        begin = position_before_cut(store, position)
        return begin, LostRange(label, begin.physical_offset, 0, REPLACED)

    def _tell(self, label: str, message: str) -> None:
        if self._options.fails_on_data_loss:
            raise DataLossError(f"{label}: {message}; option failOnDataLoss=false reads what is left")

    def _tell_missing(self, label: str) -> None:
        if self._options.on_store_missing == OnStoreMissing.FAIL:
            raise DataLossError(f"{label}: there is no store any more, or it cannot be read")


def _was_missing(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.get(MISSING))

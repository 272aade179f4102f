"""Follows the logs of stores as a stream: an offset is the position up to which each was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rmqtool.engine.segments.log_position import Position, mark_of, readable_end, what_is_lost
from rmqtool.errors import RmqtoolError, UnreadableError
from rmqtool.findings.finding import MISSING_LOG_FILE
from rmqtool.pipeline.tables.log_splits import UNREADABLE, LogTask, log_tasks
from rmqtool.pipeline.tables.message_columns import MessageBatches, SourceFile
from rmqtool.pipeline.tables.options import PLANNING_THREADS, SourceOptions
from rmqtool.pipeline.tables.table import MessagesTable, in_mode, with_judgement
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.runner import ThreadRunner
from rmqtool.store.directory import Store

REPLACED: Final = "commitlog.replaced"
"""The log is another one than the stream has read, or was cut; it is read from its start."""
Offsets = dict[str, Any]
"""Content of a checkpoint: the position in each store."""


class DataLossError(RmqtoolError):
    """Records are gone that a stream has not read, and the options say that it ends there."""


@dataclass(frozen=True)
class LostRange:
    """A range of a log that is gone before it was read."""

    store: str
    physical_offset: int
    size: int
    finding: str


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the table `messages` as the logs grow."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._target: dict[str, Position] | None = None
        self._ends: dict[str, Position] = {}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """The start of each log, or where the options begin."""
        return {label: self._begin(store, {})[0].as_json() for label, store in self._stores().items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """As the options say."""
        most = self._options.bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than the log is flushed now."""
        self._target = self._flushed(self._stores(), {})

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """End of the next batch: the end of the flushed log, or earlier, the end of a file.

        Raises:
            DataLossError: records after `start` are gone.
        """
        stores = self._stores()
        for label in start.keys() - stores.keys():
            self._tell(label, "there is no store any more, or it cannot be read")
        target = self._flushed(stores, start) if self._target is None else self._target
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        offsets = dict(start)
        for label, store in stores.items():
            begin, lost = self._begin(store, start)
            end = target.get(label, begin)
            starts = [one.start for one in store.commitlog if begin.physical_offset < one.start < end.physical_offset]
            if most is not None and end.physical_offset > begin.physical_offset + most and starts:
                # The last start of a file that is no more than so many bytes away, or else the next one.
                near = [at for at in starts if at <= begin.physical_offset + most]
                end = Position(near[-1] if near else starts[0])
            if end.physical_offset > begin.physical_offset:
                offsets[label] = replace(end, mark=mark_of(store, end.physical_offset)).as_json()
            elif lost is not None or label not in start:
                offsets[label] = begin.as_json()
        return offsets

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The parts of the logs in between, each with the range that is asked for of its store.

        Raises:
            DataLossError: records in between are gone.
        """
        stores = self._stores()
        for label in end.keys() - stores.keys():
            if end[label] != start.get(label):
                self._tell(label, "there is no store any more, or it cannot be read")
        values: list[Any] = []
        for label, store in stores.items():
            if label not in end or end[label] == start.get(label):
                continue
            begin, lost = self._begin(store, start)
            high = Position.parse(end[label])
            if lost is not None:
                values.append(lost)
            if (message := what_is_lost(store, high)) is not None:
                self._tell(label, message)
                continue  # planned before the log was replaced: the next batch begins at the new one's start
            low = begin.physical_offset
            if low < high.physical_offset:
                between = self._between(low, high.physical_offset)
                row_at = None if begin.mark is None else low  # where the options begin may be anywhere
                tasks = log_tasks(store, [between], self._options.splitting, row_at)
                values += [(task, low, high.physical_offset) for task in tasks]
        return [InputPartition(value) for value in values]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one part.

        Raises:
            DataLossError: its file was removed after the batch was planned.
        """
        if isinstance(partition.value, LostRange):
            lost = partition.value
            columns = MessageBatches(with_judgement(self._schema), SourceFile(lost.store, ""))
            row = columns.range_row(lost.physical_offset, lost.size, lost.finding, file_position=None)
            return in_mode(iter([row]), self._schema, self._options.mode)
        task, low, high = partition.value
        table = MessagesTable(replace(self._options, row_filter=self._between(low, high)))
        return in_mode(self._watched(task, table.read(task)), self._schema, self._options.mode)

    def _watched(self, task: LogTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows == 1 and batch["finding"][0].as_py() == UNREADABLE:
                for split in task:
                    if split.view.stat(split.path) is None:
                        self._tell(split.store, f"{split.path} was removed before it was read")
            yield batch

    def _between(self, low: int, high: int) -> RowFilter:
        return replace(self._options.row_filter, from_physical_offset=low, to_physical_offset=high)

    def _stores(self) -> dict[str, Store]:
        return {store.view.label: store for store in self._options.stores()}

    def _begin(self, store: Store, start: Offsets) -> tuple[Position, LostRange | None]:
        """Position at which reading a log continues, and the range that was lost before."""
        label = store.view.label
        if label not in start:
            return Position(max(self._options.row_filter.from_physical_offset or 0, store.log_start)), None
        position = Position.parse(start[label])
        message = what_is_lost(store, position)
        if message is None:
            return position, None
        self._tell(label, message)
        begin, at = store.log_start, position.physical_offset
        is_removed = begin > at
        lost = LostRange(label, at, max(0, begin - at), MISSING_LOG_FILE if is_removed else REPLACED)
        return Position(begin), lost

    def _tell(self, label: str, message: str) -> None:
        if self._options.fails_on_data_loss:
            raise DataLossError(f"{label}: {message}; option failOnDataLoss=false reads what is left")

    def _flushed(self, stores: dict[str, Store], start: Offsets) -> dict[str, Position]:
        """Flushed ends of logs; nothing before the last ones, or before the start, is read again."""
        high = self._options.row_filter.to_physical_offset

        def flushed(label: str) -> Position | None:
            known = self._ends.get(label, Position.parse(start[label]) if label in start else None)
            store = stores[label]
            try:
                if known is not None and what_is_lost(store, known) is not None:
                    known = None
                end, _ = readable_end(store, known)
                return replace(end, mark=mark_of(store, end.physical_offset))
            except UnreadableError as error:
                self._tell(label, str(error))
                return None

        ends = zip(stores, ThreadRunner(PLANNING_THREADS).map(flushed, list(stores)), strict=True)
        self._ends = {label: end for label, end in ends if end is not None}
        return {
            label: Position(high) if high is not None and high < end.physical_offset else end
            for label, end in self._ends.items()
        }

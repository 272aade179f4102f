"""Follows the logs of stores as a stream: an offset is the physical offset up to which each was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rmqtool.pipeline.log_splits import LogSplit, log_splits
from rmqtool.pipeline.options import SourceOptions
from rmqtool.pipeline.stream_position import flushed_end, log_begin
from rmqtool.pipeline.table import MessagesTable, in_mode
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.directory import Store

Offsets = dict[str, int]
"""Physical offset by store."""


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the table `messages` as the logs grow."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options, self._schema = options, schema
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """The begin of each log, or where the options begin."""
        low = self._options.row_filter.from_physical_offset or 0
        return {store.view.label: max(low, log_begin(store)) for store in self._options.stores()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """As the options say."""
        most = self._options.bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than what is flushed now."""
        self._target = self._flushed()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """Where the next batch ends: at what is flushed, or earlier, at the end of a file."""
        target = self._flushed() if self._target is None else self._target
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        offsets = dict(start)
        for store in self._options.stores():
            begin = start.get(store.view.label, log_begin(store))
            end = max(begin, target.get(store.view.label, begin))
            offsets[store.view.label] = end if most is None else _cut_short(store, begin, end, most)
        return offsets

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The parts of the logs in between."""
        parts: list[LogSplit] = []
        for store in self._options.stores():
            low, high = start.get(store.view.label, log_begin(store)), end.get(store.view.label, 0)
            if low < high:
                between = self._between(low, high)
                parts += log_splits(store, [between], self._options.splitting)
        return [InputPartition((part, start, end)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one part."""
        part, start, end = partition.value
        between = self._between(start.get(part.store, 0), end[part.store])
        table = MessagesTable(replace(self._options, row_filter=between))
        return in_mode(table.read(part, []), self._schema, self._options.mode)

    def _between(self, low: int, high: int) -> RowFilter:
        return replace(self._options.row_filter, from_physical_offset=low, to_physical_offset=high)

    def _flushed(self) -> Offsets:
        high = self._options.row_filter.to_physical_offset
        ends: dict[str, Any] = {store.view.label: flushed_end(store) for store in self._options.stores()}
        return {store: end if high is None else min(end, high) for store, end in ends.items()}


def _cut_short(store: Store, begin: int, end: int, most: int) -> int:
    """The last begin of a file that is no more than so many bytes away, or else the next one."""
    starts = [segment.start for segment in store.commitlog if begin < segment.start < end]
    near = [start for start in starts if start <= begin + most]
    if end <= begin + most or not starts:
        return end
    return near[-1] if near else starts[0]

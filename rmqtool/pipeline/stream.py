"""Follows the logs of stores as a stream: an offset is the physical offset up to which each was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from rmqtool.errors import UnreadableError
from rmqtool.formats.checkpoint import FIELDS_SIZE, parse_checkpoint
from rmqtool.pipeline.log_splits import BLOCK_SIZE, LogSplit, log_splits
from rmqtool.pipeline.options import SourceOptions
from rmqtool.pipeline.table import MessagesTable, in_mode
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments, reader_for
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Walk
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import read_range

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


def log_begin(store: Store) -> int:
    """Physical offset of the log's first byte; 0 without a log."""
    return store.commitlog[0].start if store.commitlog else 0


def flushed_end(store: Store) -> int:
    """Physical offset behind the last record that is flushed for certain; it is where a record ends or a file begins.

    Raises:
        UnreadableError: a file of the log may not be read.
    """
    if not store.commitlog:
        return 0
    plan = plan_segments(store.view.open, store.commitlog)
    limit_ms = _flushed_ms(store) if store.has_abort else None
    scan = ScanOptions(record_crc=carries_record_crc(plan.splits))
    try:
        if store.has_abort and not limit_ms:
            return plan.splits[-1].physical_offset
        for split in reversed(plan.splits):
            end = _end_in(split, limit_ms, scan, plan.data_bytes)
            if end is not None:
                return end
    finally:
        plan.close()
    return log_begin(store)


def _end_in(split: Split, limit_ms: int | None, scan: ScanOptions, data_bytes: int) -> int | None:
    """Behind the last good row in front of the first message that is too new; None where there is none."""
    walk = Walk(split, reader_for(data_bytes)(), scan.delays_ms, scan.record_crc, BLOCK_SIZE)
    end: int | None = None
    for batch in walk.batches():
        rows = batch.as_array()
        is_newer = (rows["topic_length"] > 0) & (
            rows["store_timestamp_ms"] > (JAVA_LONG_MAX if limit_ms is None else limit_ms)
        )
        newer = np.flatnonzero(is_newer)
        good = np.flatnonzero(rows["verdict"][: int(newer[0]) if newer.size else None] == Verdict.GOOD)
        if good.size:
            row = rows[good[-1]]
            end = int(row["physical_offset"]) + int(row["size"])
        if newer.size:
            return end
    return end


def _flushed_ms(store: Store) -> int | None:
    """Store time of the last flushed record; None where nothing says it."""
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None:
        return None
    try:
        with closing(store.view.open(entry.path)) as source:
            return max(0, parse_checkpoint(read_range(source, 0, FIELDS_SIZE)).commitlog_timestamp_ms)
    except UnreadableError:
        return None

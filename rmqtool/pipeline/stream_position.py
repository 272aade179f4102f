"""How far the log of a store had been flushed when somebody looked: what lies before stays what it is.

After a clean stop that is the log's end. Else it is behind the last record that is no newer than the checkpoint says of
the log (`StoreCheckpoint#getPhysicMsgTimestamp`, set by `MappedFileQueue#flush`); without a checkpoint it is the begin
of the last file, for files are flushed in their order.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np

from rmqtool.errors import UnreadableError
from rmqtool.formats.checkpoint import FIELDS_SIZE, parse_checkpoint
from rmqtool.pipeline.log_splits import BLOCK_SIZE
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments, reader_for
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Walk
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import read_range


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

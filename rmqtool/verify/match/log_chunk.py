"""A chunk of the log that was scanned: its rows, and what its records put into queues and index.

Batches are gathered until there are enough rows to be worth a comparison with the queues, then the chunk is compared
and forgotten: so memory is bounded however long a split is. 65,536 rows take 4 MB, their entries about 8 MB.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.entry_extractor import EntryExtractor
from rmqtool.engine.dispatch.index_entries import index_entries
from rmqtool.engine.dispatch.queue_entries import QueueEntries, batch_bytes
from rmqtool.scan.row_columns import kept_rows
from rmqtool.scan.walk import Batch
from rmqtool.verify.match.rows_lookup import RowsLookup
from rmqtool.verify.survey.context import QueueKey, VerifyContext
from rmqtool.verify.survey.offset_runs import Array


class ExpectedIndex(NamedTuple):
    """Index entries that the records of a chunk should have, in log order."""

    key_hashes: Array
    physical_offsets: Array
    store_timestamps_ms: Array


class LogChunk:
    """Gathers batches of one split.

    Attributes:
        left_out_bytes: of rows that are not judged, for a running broker may be writing them.
    """

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self._stretch = EntryExtractor(context.dispatch if context.crosses else None)
        self._index: list[ExpectedIndex] = []
        self.left_out_bytes = 0

    def take(self, batch: Batch) -> None:
        """Take a batch; nothing of it is needed afterwards."""
        rows = self._before_edge(batch.as_array())
        if not len(rows):
            return
        texts = batch_bytes(batch)
        self._stretch.take(rows, batch.topics, texts)
        if self._context.crosses:
            keys = index_entries(rows, batch.topics, texts, self._context.dispatch.rules)
            self._index.append(ExpectedIndex(keys.key_hashes, keys.physical_offsets, keys.store_timestamps_ms))

    def _before_edge(self, rows: Array) -> Any:
        """The rows in front of what a running broker may be writing."""
        edge = self._context.live_end
        if edge is None:
            return rows
        kept = rows["physical_offset"] + rows["size"] <= edge
        self.left_out_bytes += int(rows["size"][~kept].sum())
        return kept_rows(rows, kept)

    @property
    def is_empty(self) -> bool:
        return self._stretch.row_count == 0

    @property
    def is_full(self) -> bool:
        return self._stretch.is_full

    def lookup(self) -> RowsLookup:
        """All rows of the chunk, which lie one after the other; valid until the next batch is taken."""
        return RowsLookup(self._stretch.rows(), self._stretch.topics)

    def queues(self) -> dict[tuple[QueueKey, bool], QueueEntries]:
        """The entries of each queue, by queue and whether it is a batch queue."""
        return {((entries.topic, entries.queue_id), entries.is_batch): entries for entries in self._stretch.entries()}

    def index(self) -> ExpectedIndex:
        """The index entries."""
        columns: list[Any] = [np.concatenate(parts) for parts in zip(*self._index, strict=True)]
        return ExpectedIndex(*columns)

    def clear(self) -> None:
        """Forget the chunk."""
        self._stretch.clear()
        self._index = []

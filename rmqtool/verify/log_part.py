"""A stretch of the log that was scanned: its rows, and what its records put into queues and index.

Batches are gathered until there are enough rows to be worth a comparison with the queues, then the stretch is compared
and forgotten: so memory is bounded however long a piece is. 131,072 rows take 8 MB, their entries about 15 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rmqtool.engine.dispatch import AnyRows, QueueEntries, RecordBytes, batch_bytes, queue_entries
from rmqtool.engine.index_keys import index_entries
from rmqtool.scan.row_columns import RowColumns, RowColumnsBuilder
from rmqtool.scan.walk import Batch
from rmqtool.verify.offset_runs import Array
from rmqtool.verify.scope import Context, QueueKey

ROWS_MAX: Final = 1 << 17
COLUMNS: Final = (
    "physical_offset",
    "size",
    "queue_offset",
    "store_timestamp_ms",
    "prepared_transaction_offset",
    "tags_code",
    "verdict",
    "magic",
    "queue_id",
    "sys_flag",
    "topic_number",
    "features",
)
"""What is looked at once a stretch is whole."""
NO_TEXTS: Final = RecordBytes(np.empty(0, np.uint8), 0)
"""For rows whose queues are told by the rows alone."""


class ExpectedIndex(NamedTuple):
    """Index entries that the records of a stretch should have, in log order."""

    key_hashes: Array
    physical_offsets: Array
    store_timestamps_ms: Array


class LogPart:
    """Gathers batches of one piece.

    Attributes:
        topics: names by topic number of the piece.
        left_out_bytes: of rows that are not judged, for a running broker may be writing them.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rows = RowColumnsBuilder(COLUMNS, ROWS_MAX)
        self._queues: dict[tuple[bytes, int, bool], list[QueueEntries]] = {}
        self._entered = 0
        """Rows in front that are in `_queues`."""
        self._index: list[ExpectedIndex] = []
        self.topics: Sequence[bytes] = ()
        self.left_out_bytes = 0

    @property
    def row_count(self) -> int:
        return self._rows.count

    def take(self, batch: Batch) -> None:
        """Take a batch; nothing of it is needed afterwards."""
        rows = self._before_edge(batch.as_array())
        if not len(rows):
            return
        begin = self.row_count
        self._rows.take(rows)
        self.topics = batch.topics
        if not self._context.crosses:
            return
        texts = batch_bytes(batch)
        if rows["features"].any():
            self._enter(self._rows.rows(self._entered, begin), NO_TEXTS)
            self._enter(rows, texts)
            self._entered = self.row_count
        keys = index_entries(rows, batch.topics, texts, self._context.dispatch.rules)
        if keys.key_hashes.size:
            self._index.append(ExpectedIndex(keys.key_hashes, keys.physical_offsets, keys.store_timestamps_ms))

    def _enter(self, rows: AnyRows, texts: RecordBytes) -> None:
        """Group rows by their queues: as many at once as need nothing but the rows themselves."""
        for found in queue_entries(rows, self.topics, texts, self._context.dispatch):
            self._queues.setdefault((found.topic, found.queue_id, found.is_batch), []).append(found)

    def _before_edge(self, rows: Array) -> Array:
        """The rows in front of what a running broker may be writing."""
        edge = self._context.live_end
        if edge is None:
            return rows
        kept = rows["physical_offset"] + rows["size"] <= edge
        self.left_out_bytes += int(rows["size"][~kept].sum())
        return rows if kept.all() else rows[kept]

    @property
    def is_full(self) -> bool:
        return self.row_count >= ROWS_MAX

    def rows(self) -> RowColumns:
        """All rows of the stretch, which lie one behind the other; valid until the next batch is taken."""
        return self._rows.rows()

    def queues(self) -> dict[tuple[QueueKey, bool], QueueEntries]:
        """The entries of each queue, by queue and whether it is a batch queue."""
        if self._context.crosses:
            self._enter(self._rows.rows(self._entered), NO_TEXTS)
            self._entered = self.row_count
        return {(key[:2], key[2]): _joined(found) for key, found in self._queues.items()}

    def index(self) -> ExpectedIndex:
        """The index entries."""
        columns: list[Any] = [
            np.concatenate([found[number] for found in self._index] or [np.empty(0, np.int64)]) for number in range(3)
        ]
        return ExpectedIndex(*columns)

    def clear(self) -> None:
        """Forget the stretch."""
        self._queues, self._index, self._entered = {}, [], 0
        self._rows.clear()


def _joined(parts: list[QueueEntries]) -> QueueEntries:
    if len(parts) == 1:
        return parts[0]
    head = parts[0][:3]
    return QueueEntries(
        *head, *(np.concatenate([part[column] for part in parts]) for column in range(3, len(parts[0])))
    )

"""A chunk of the log that was scanned: its rows, by physical offset, and their entries for queues and index.

Batches are gathered until there are enough rows to be worth a comparison with the queues, then the chunk is compared
and forgotten: so memory is bounded however long a split is. 131,072 rows take 8 MB, their entries about 16 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rmqtool.engine.dispatch.index_entries import batch_entries
from rmqtool.engine.dispatch.queue_entries import EntryExtractor, QueueEntries, batch_bytes
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.queue_name import TypedQueueKey, topic_text
from rmqtool.scan.row_columns import RowColumns, by_name, kept_rows
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch
from rmqtool.verify.survey.context import VerifyContext
from rmqtool.verify.survey.queue_map import Array


class RowsLookup:
    """Looks up rows that lie one after the other; `good` says which are, `messages` numbers the good messages."""

    def __init__(self, rows: RowColumns, topics: Sequence[bytes], *, has_entries: bool = False) -> None:
        self._has_entries = has_entries
        self.rows = rows
        self.topics = topics
        self.begin = int(rows[0]["physical_offset"])
        self.end = int(rows[-1]["physical_offset"] + rows[-1]["size"])
        column = by_name(rows)
        self._starts = column["physical_offset"]
        self.good = column["verdict"] == Verdict.GOOD
        self.messages = np.flatnonzero(self.good & (column["magic"] != commitlog.MAGIC_BLANK))

    def index_at(self, physical_offset: int) -> int:
        """Number of the row that holds a physical offset."""
        return int(np.searchsorted(self._starts, physical_offset, side="right")) - 1

    def at(self, physical_offset: int) -> Any:
        """The row that holds a physical offset."""
        return self.rows[self.index_at(physical_offset)]

    def tags_codes(self, physical_offsets: Array) -> Array:
        """Tags codes that dispatch puts into the queues for the records that begin at these physical offsets."""
        at = np.searchsorted(self._starts, physical_offsets)
        return np.asarray(by_name(self.rows)["tags_code"][at])

    def topic(self, row: Any) -> str:
        return topic_text(self.topics[int(row["topic_number"])])

    def describe(self, row: Any) -> str:
        """A row in a few words."""
        if row["verdict"] == Verdict.STALE:
            return "a record of an older log after the end of the commit log"
        if row["verdict"] != Verdict.GOOD:
            return "a damaged range of the log"
        if row["magic"] == commitlog.MAGIC_BLANK:
            return "a header of DLedger" if self._has_entries else "the blank at a file's end"
        kind = system_flag.transaction(int(row["sys_flag"]))
        label = "" if kind == "none" else f" of type {kind}"
        return f"a record{label} of {self.topic(row)}/{int(row['queue_id'])} at queue offset {int(row['queue_offset'])}"


def is_message(row: Any) -> bool:
    """True if a row is a good message."""
    return bool(row["verdict"] == Verdict.GOOD and row["magic"] != commitlog.MAGIC_BLANK)


class ExpectedIndex(NamedTuple):
    """Index entries that the records of a chunk should have, in log order."""

    key_hashes: Array
    physical_offsets: Array
    store_timestamps_ms: Array


class LogChunk:
    """Gathers batches of one split; rows that a running broker may be writing are left out, and their bytes counted."""

    def __init__(self, context: VerifyContext) -> None:
        self._context = context
        self.extractor = EntryExtractor(context.dispatch if context.crosses else None)
        self._index: list[ExpectedIndex] = []
        self.left_out_bytes = 0
        self._is_past_flush = self._has_entries = False
        self._bad_ranges: list[tuple[Batch, Any]] = []
        """With a running broker: those at the end so far, which are on the disk if later ones are."""

    def take(self, batch: Batch) -> None:
        """Take a batch; nothing of it is needed afterwards."""
        rows = self._before_edge(batch.as_array())
        if not len(rows):
            return
        if self._context.live_ms is not None:
            if not (rows["verdict"] == Verdict.GOOD).any():
                self._bad_ranges.append((batch, rows))
                self.left_out_bytes += int(rows["size"].sum())
                return
            for bad_batch, bad_rows in self._bad_ranges:
                self.left_out_bytes -= int(bad_rows["size"].sum())
                self._add(bad_batch, bad_rows)
            self._bad_ranges.clear()
        self._add(batch, rows)

    def _add(self, batch: Batch, rows: Any) -> None:
        self._has_entries = batch.split.has_entries
        self.extractor.take(rows, batch.topics, batch_bytes(batch))
        if self._context.crosses:
            keys = batch_entries(batch, rows, self._context.index_rules)
            self._index.append(ExpectedIndex(keys.key_hashes, keys.physical_offsets, keys.store_timestamps_ms))

    def _before_edge(self, rows: Array) -> Any:
        """The rows before those that a running broker may be writing."""
        edge, limit_ms = self._context.live_end, self._context.live_ms
        if edge is None:
            return rows
        is_before = rows["physical_offset"] + rows["size"] <= edge
        if limit_ms is not None:
            is_newer = (rows["topic_length"] > 0) & (rows["store_timestamp_ms"] > limit_ms)
            newer = 0 if self._is_past_flush else int(is_newer.argmax()) if is_newer.any() else len(rows)
            self._is_past_flush = newer < len(rows)
            is_before[newer:] = False
        self.left_out_bytes += int(rows["size"][~is_before].sum())
        return kept_rows(rows, is_before)

    def lookup(self) -> RowsLookup:
        """All rows of the chunk, which lie one after the other; valid until the next batch is taken."""
        return RowsLookup(self.extractor.rows(), self.extractor.topics, has_entries=self._has_entries)

    def queues(self) -> dict[TypedQueueKey, QueueEntries]:
        """The entries of each queue, by queue and whether it is a batch queue."""
        return {(entries.topic, entries.queue_id, entries.is_batch): entries for entries in self.extractor.entries()}

    def index(self) -> ExpectedIndex:
        columns: list[Any] = [np.concatenate(parts) for parts in zip(*self._index, strict=True)]
        return ExpectedIndex(*columns)

    def clear(self) -> None:
        self.extractor.clear()
        self._index = []

"""What a chunk of the log puts into its queues, gathered until there are enough rows to be worth grouping them.

A batch of the scan holds a few thousand rows, so that each of many queues gets a few dozen of them at a time; what is
done queue by queue is done many times as fast for tens of thousands at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from rmqtool.engine.dispatch.queue_entries import (
    NO_TEXTS,
    AnyRows,
    DispatchSettings,
    QueueEntries,
    RowBytes,
    Rows,
    joined_entries,
    queue_entries,
)
from rmqtool.formats.queue_name import TypedQueueKey
from rmqtool.memory import THREAD_BYTES, memory_budget
from rmqtool.scan.plain_rows import RowColumnsBuilder
from rmqtool.scan.row_columns import RowColumns, dispatched_rows

ROWS_MAX: Final = 1 << 17
"""Rows of a full chunk; they take 8 MB, their entries about as much."""
ROW_BYTES: Final = 2048
"""What a row of a full chunk takes where it is compared, if each is of another queue; of few queues, a quarter."""


class EntryExtractor:
    """Gathers rows of one split of the log. With `settings` None their queues are not asked for."""

    def __init__(self, settings: DispatchSettings | None) -> None:
        self._settings = settings
        budget = memory_budget()
        threads = budget.threads(os.cpu_count() or 1, THREAD_BYTES)
        self._rows_max = budget.share(ROWS_MAX * ROW_BYTES, 2 * threads) // ROW_BYTES
        self._rows = RowColumnsBuilder(self._rows_max)
        self._queues: dict[TypedQueueKey, list[QueueEntries]] = {}
        self._grouped = 0
        """Rows in front that are in `_queues`."""
        self.topics: Sequence[bytes] = ()

    @property
    def row_count(self) -> int:
        return self._rows.count

    @property
    def is_full(self) -> bool:
        return self.row_count >= self._rows_max

    def take(self, rows: Rows, topics: Sequence[bytes], texts: RowBytes) -> None:
        """Take rows; nothing of them is needed afterwards.

        Args:
            topics: names by topic number, the same as of the rows before, and more.
            texts: the bytes that the rows lie in.
        """
        begin = self.row_count
        has_features = self._rows.take(rows)
        self.topics = topics
        if self._settings is not None and has_features:
            self._group(self._rows.rows(self._grouped, begin), NO_TEXTS)
            self._group(rows, texts)
            self._grouped = self.row_count

    def rows(self) -> RowColumns:
        """All rows of the chunk, one after the other; valid until the next ones are taken."""
        return self._rows.rows()

    def plain_messages(self) -> RowColumns | None:
        """The rows that have one entry each, which is all that they say; None where a row has several, or another one.

        Valid until the next rows are taken.
        """
        rows = self.rows()
        return None if rows["features"].any() else dispatched_rows(rows)

    def entries(self) -> list[QueueEntries]:
        """The entries of each queue, each queue once."""
        self._group(self._rows.rows(self._grouped), NO_TEXTS)
        self._grouped = self.row_count
        return [parts[0] if len(parts) == 1 else joined_entries(parts) for parts in self._queues.values()]

    def clear(self) -> None:
        """Forget the chunk."""
        self._queues, self._grouped = {}, 0
        self._rows.clear()

    def _group(self, rows: AnyRows, texts: RowBytes) -> None:
        assert self._settings is not None, "nobody wanted to know the queues"
        for entries in queue_entries(rows, self.topics, texts, self._settings):
            self._queues.setdefault((entries.topic, entries.queue_id, entries.is_batch), []).append(entries)

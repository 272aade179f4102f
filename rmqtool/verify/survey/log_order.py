"""The units of a queue database in the order of the log: a chunk of the log is compared with all queues at once.

Each of a million queues has a unit or none in a chunk. Asking queue by queue takes as long as there are queues times
chunks; here the units lie in buckets, each of a range of the log, in an unnamed temporary file.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final

import numpy as np

from rmqtool.errors import WriteError
from rmqtool.formats.queue_name import QueueName
from rmqtool.memory import memory_budget
from rmqtool.scan.row_columns import RowColumns
from rmqtool.store.databases.queue_database import QueueDatabase, QueueRows, StoredEnds, row_type
from rmqtool.store.source import reason
from rmqtool.verify.survey.queue_map import Array

BUCKET_ROWS: Final = 1 << 16
BUCKETS_MAX: Final = 1 << 13
BLOCK_ROWS: Final = 1 << 20
BLOCK_ROW_BYTES: Final = 256
"""Memory for a row of a block while the block is sorted, which copies it several times."""
_STORED: Final = row_type()
_ROW: Final = np.dtype([("queue", "i4"), *((name, _STORED[name].newbyteorder("=")) for name in _STORED.names or ())])
_NOT_LOOKED_UP: Final = -2
_NO_ROWS: Final = QueueRows(-1, 0, 0, -1)


class _KnownTopics(threading.local):
    """The numbers of queues by the topic numbers of the split that a thread is reading."""

    def __init__(self) -> None:
        self._topics: Sequence[bytes] = ()
        self._numbers: dict[int, Array] = {}

    def numbers(self, order: LogOrder, topics: Sequence[bytes], queue_id: int, topic_numbers: Array) -> Array:
        """Numbers of queues with one id; each topic is looked up once."""
        if topics is not self._topics:
            self._topics, self._numbers = topics, {}
        known = self._numbers.get(queue_id, np.empty(0, np.int32))
        if len(known) < len(topics):
            known = np.concatenate([known, np.full(len(topics) - len(known), _NOT_LOOKED_UP, np.int32)])
            self._numbers[queue_id] = known
        for number in np.unique(topic_numbers[known[topic_numbers] == _NOT_LOOKED_UP]).tolist():
            known[number] = order.number(topics[number], queue_id)
        return known[topic_numbers]


class LogOrder:
    """Units of a database that count, by where they point to; WriteError if the temporary file does not take them.

    `newest` is physical offset and size of the newest record of the log that has a unit; -1 and 0 without one.
    """

    def __init__(self, database: QueueDatabase, log_begin: int, log_end: int) -> None:
        self.newest = (-1, 0)
        self._made_of = database, log_begin, log_end
        self._database = database
        self._names = list(database.units)
        queues = database.units.values()
        self._first_rows = np.fromiter((queue.first_row for queue in queues), np.int64, len(queues))
        maxima = (database.ends.get(name, StoredEnds()).maximum for name in self._names)
        self._ends = np.fromiter((-1 if end is None else end.queue_offset for end in maxima), np.int64, len(queues)) + 1
        self._block_rows = memory_budget().share(BLOCK_ROWS * BLOCK_ROW_BYTES, 8) // BLOCK_ROW_BYTES
        row_count = sum(queue.unit_count for queue in queues)
        bucket_count = min(BUCKETS_MAX, row_count // BUCKET_ROWS + 1)
        self._edges = np.linspace(log_begin, max(log_begin, log_end), bucket_count + 1).astype(np.int64)
        self._known_topics = _KnownTopics()
        self._rows: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._rows.close)
        counts = np.zeros(bucket_count + 2, np.int64)
        for rows in self._blocks(row_count):
            counts += np.bincount(self._buckets(rows), minlength=len(counts))
            inside = rows[rows["physical_offset"] < log_end]
            if len(inside):
                last = inside[int(inside["physical_offset"].argmax())]
                self.newest = max(self.newest, (int(last["physical_offset"]), int(last["record_size"])))
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        try:
            self._write(row_count)
        except OSError as error:
            raise WriteError(f"temporary file: {reason(error)}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere, it is made again."""
        return LogOrder, self._made_of

    def queues_into(self, begin: int, end: int) -> list[QueueName]:
        """Queues that have a unit which points into [begin, end) of the log."""
        numbers = [np.unique(rows["queue"]) for rows in self._pointing_into(begin, end)]
        return [self._names[number] for number in np.unique(np.concatenate(numbers)).tolist()] if numbers else []

    def agrees(self, begin: int, end: int, messages: RowColumns, topics: Sequence[bytes]) -> bool:
        """True if the units that point into [begin, end) are just those of messages in the order of the log, one for
        each.
        """
        blocks, count = [np.empty(0, _ROW)], 0
        for rows in self._pointing_into(begin, end):
            blocks.append(rows)
            count += len(rows)
            if count > messages.size:
                return False
        units = np.concatenate(blocks)
        units = units[np.argsort(units["physical_offset"], kind="stable")]
        pairs = (
            ("physical_offset", "physical_offset"), ("queue_offset", "queue_offset"), ("record_size", "size"),
            ("tags_code", "tags_code"), ("store_timestamp_ms", "store_timestamp_ms"),
        )  # fmt: skip
        if not all(np.array_equal(units[name], messages[column]) for name, column in pairs):
            return False
        return np.array_equal(units["queue"], self._numbers(messages, topics))

    def _numbers(self, messages: RowColumns, topics: Sequence[bytes]) -> Array:
        """Numbers of the messages' queues; -1 where the database has no unit of it, or nobody knows its name."""
        ids = messages["queue_id"]
        numbers = np.empty(messages.size, np.int64)
        for queue_id in np.unique(ids).tolist():
            of_queue = np.flatnonzero(ids == queue_id)
            topic_numbers = messages["topic_number"][of_queue]
            numbers[of_queue] = self._known_topics.numbers(self, topics, queue_id, topic_numbers)
        return numbers

    def number(self, topic: bytes, queue_id: int) -> int:
        """Number of a queue; see `_numbers`."""
        try:
            name = topic.decode("utf-8"), queue_id
        except UnicodeDecodeError:  # which string it is to a broker, is looked at queue by queue
            return -1
        first_row = self._database.units.get(name, _NO_ROWS).first_row
        return int(np.searchsorted(self._first_rows, first_row)) if first_row >= 0 else -1

    def _blocks(self, row_count: int) -> Iterator[Array]:
        """All units that count, with the numbers of their queues."""
        for first in range(0, row_count, self._block_rows):
            raw = self._database.all_rows(first, min(self._block_rows, row_count - first))
            rows = np.empty(len(raw), _ROW)
            for name in raw.dtype.names or ():
                rows[name] = raw[name]
            rows["queue"] = np.searchsorted(self._first_rows, np.arange(first, first + len(raw)), side="right") - 1
            yield rows[rows["queue_offset"] < self._ends[rows["queue"]]]

    def _buckets(self, rows: Array) -> Array:
        """The bucket of each row: the first one is before the log, the last one after it."""
        return np.searchsorted(self._edges, rows["physical_offset"], side="right").astype(np.uint16)

    def _write(self, row_count: int) -> None:
        free = self._starts[:-1].copy()
        for rows in self._blocks(row_count):
            buckets = self._buckets(rows)
            order = np.argsort(buckets, kind="stable")
            in_order = rows[order]
            numbers, firsts, counts = np.unique(buckets[order], return_index=True, return_counts=True)
            for number, first, count in zip(numbers.tolist(), firsts.tolist(), counts.tolist(), strict=True):
                self._rows.seek(int(free[number]) * _ROW.itemsize)
                self._rows.write(in_order[first : first + count].tobytes())
                free[number] += count
        self._rows.flush()

    def _pointing_into(self, begin: int, end: int) -> Iterator[Array]:
        low, high = np.searchsorted(self._edges, [begin, end - 1], side="right").tolist()
        first, stop = int(self._starts[low]), int(self._starts[high + 1])
        for at in range(first, stop, self._block_rows):
            size = min(self._block_rows, stop - at) * _ROW.itemsize
            rows = np.frombuffer(os.pread(self._rows.fileno(), size, at * _ROW.itemsize), _ROW)
            places = rows["physical_offset"]
            inside = rows[(places >= begin) & (places < end)]
            if len(inside):
                yield inside

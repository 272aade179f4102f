"""The rows of a queue database as a broker would have written them from the log, kept in a temporary file.

Broker: `RocksDBConsumeQueueStore#putMessagePosition0`. Of several records with one queue offset the last one has the
unit, and a queue's end is the one that was put last.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.formats.consumequeue import UNIT as FILE_UNIT
from rmqtool.formats.queue_name import QueueKey, topic_text
from rmqtool.quantities import OFFSETS_END
from rmqtool.repair.derived.gap_queue_writer import GAP_UNITS_MAX, RecordOffsets
from rmqtool.repair.derived.kept_units import KeptUnits
from rmqtool.repair.derived.request import RemovedTopics
from rmqtool.store.databases.queue_database import ROW_SIZE, StoredEnd, row_type

Rows = NDArray[Any]


@dataclass
class QueueRowsBuilder:
    """What came of one queue so far."""

    parts: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of rows, and how many follow each other."""
    first: int = 0
    """The queue offset of the first record."""
    last: int = -1
    """The highest queue offset."""
    is_in_order: bool = True
    end: StoredEnd | None = None
    cuts: list[tuple[int, int]] = field(default_factory=list)
    """After how many rows the queue went on at an earlier place, and at which."""
    row_count: int = 0


class DatabaseRows:
    """All units of a database that is being built.

    Attributes:
        queues: by topic and queue id.
        dispatched: end of the last record that has a unit.
        again: where in the log topics begin again of which a queue does, by topic.
        gap_units: units that stand for messages that the log does not have.
        unfilled: messages that the log does not have, and for which no unit can stand.
    """

    def __init__(self, log: RecordOffsets, removed: RemovedTopics | None = None, kept: KeptUnits | None = None) -> None:
        """Take rows; see `GapPreservingQueueWriter` for which of several records has a place.

        Args:
            removed: what was removed of topics.
            kept: has what the queues had before.
        """
        self._removed, self._kept = removed or RemovedTopics(), kept
        self.again: dict[str, int] = {}
        self.queues: dict[QueueKey, QueueRowsBuilder] = {}
        self.dispatched = 0
        self.gap_units = 0
        self.unfilled = 0
        self._log = log
        self._rows: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._count = 0
        weakref.finalize(self, self._rows.close)

    def put(self, entries: QueueEntries) -> None:
        """Enter records of one queue, in the order of the log.

        Raises:
            OSError: the temporary file does not take them.
        """
        rows = np.empty(len(entries.queue_offsets), row_type())
        rows["queue_offset"], rows["physical_offset"] = entries.queue_offsets, entries.physical_offsets
        rows["record_size"], rows["tags_code"] = entries.record_sizes, entries.tags_codes
        rows["store_timestamp_ms"] = entries.store_timestamps_ms
        rows = rows[rows["queue_offset"] >= 0]
        key = (entries.topic, entries.queue_id)
        removed_before = self._removed.end(topic_text(entries.topic))
        if removed_before:
            rows = rows[(rows["physical_offset"] >= removed_before) | self._are_kept(key, rows)]
        for part in np.split(rows, np.flatnonzero(np.diff(rows["queue_offset"].astype(np.int64)) != 1) + 1):
            if len(part):
                self._enter(key, part)

    def _enter(self, key: QueueKey, rows: Rows) -> None:
        """Enter records with consecutive queue offsets."""
        queue = self.queues.get(key)
        first = int(rows["queue_offset"][0])
        if queue is not None and first <= queue.last:
            is_kept = self._are_kept(key, rows)
            others = self._kept_at(key, first, len(rows))
            is_older = (others >= 0) & (others < rows["physical_offset"]) & (rows["queue_offset"] <= queue.last)
            if (is_older & ~is_kept).any() or not (len(rows) > 1 or is_kept[0]):
                rows = rows[~(is_older | (rows["queue_offset"] <= queue.last)) | is_kept]
            else:
                queue.cuts.append((queue.row_count, first))
                queue.last = first - 1
                if first <= queue.first:
                    topic = topic_text(key[0])
                    self.again[topic] = min(int(rows["physical_offset"][0]), self.again.get(topic, OFFSETS_END))
        if not len(rows):
            return
        queue = self.queues.setdefault(key, QueueRowsBuilder(first=first))
        queue.row_count += len(rows)
        places = np.concatenate([[queue.last], rows["queue_offset"]])
        queue.is_in_order &= bool((places[1:] > places[:-1]).all())
        queue.last = int(places.max())
        queue.end = StoredEnd(int(rows["physical_offset"][-1]), int(rows["queue_offset"][-1]))
        self.dispatched = max(self.dispatched, int((rows["physical_offset"] + rows["record_size"]).max()))
        queue.parts.append((self._count, len(rows)))
        self._count += len(rows)
        self._rows.write(rows.tobytes())

    def units(self, key: QueueKey) -> Iterator[Rows]:
        """The units of a queue in the order of their queue offsets, those of tombstones dead, gaps filled."""
        queue = self.queues[key]
        self._rows.flush()
        parts: Iterable[Rows] = (self._read(*part) for part in queue.parts)
        if not queue.is_in_order or queue.cuts:
            rows = np.concatenate(list(parts))
            stays = np.ones(len(rows), np.bool_)
            for count, place in queue.cuts:
                stays[:count] &= rows["queue_offset"][:count] < place
            rows = rows[stays][::-1]
            _, at = np.unique(rows["queue_offset"].astype(np.int64), return_index=True)
            parts = (rows[at],)
        following: int | None = None
        for rows in parts:
            yield from self._filled(self._without_tombstones(rows), following)
            following = int(rows["queue_offset"][-1]) + 1

    def _kept_at(self, key: QueueKey, first: int, count: int) -> NDArray[np.int64]:
        if self._kept is None:
            return np.full(count, -1, np.int64)
        return self._kept.physical_offsets(f"consumequeue/{topic_text(key[0])}/{key[1]}", first, count)

    def _are_kept(self, key: QueueKey, rows: Rows) -> NDArray[np.bool_]:
        """Which records the queue has at their own places."""
        places = rows["queue_offset"].astype(np.int64)
        if not places.size or self._kept is None:
            return np.zeros(places.size, np.bool_)
        kept = np.zeros(places.size, np.bool_)
        for part in np.split(np.arange(places.size), np.flatnonzero(np.diff(places) != 1) + 1):
            units = self._kept_at(key, int(places[part[0]]), part.size)
            kept[part] = units == rows["physical_offset"][part]
        return kept

    def _read(self, first: int, count: int) -> Rows:
        return np.frombuffer(os.pread(self._rows.fileno(), count * ROW_SIZE, first * ROW_SIZE), row_type())

    def _without_tombstones(self, rows: Rows) -> Rows:
        if not self._log.tombstones:
            return rows
        rows = rows.copy()
        for number, place in enumerate(rows["physical_offset"].tolist()):
            unit = self._log.dead_unit(place, in_front=False) if place in self._log.tombstones else None
            if unit is not None:
                for name in FILE_UNIT.dtype.names or ():
                    rows[name][number] = unit[name][0]
        return rows

    def _filled(self, rows: Rows, following: int | None) -> Iterator[Rows]:
        """The rows, with dead units for queue offsets that are missing between them: 5.5.0 fails at a missing unit."""
        places = rows["queue_offset"].astype(np.int64)
        before = np.concatenate([[places[0] if following is None else following], places[:-1] + 1])
        start = 0
        for number in np.flatnonzero(places > before).tolist():
            yield rows[start:number]
            start = number
            count = int(places[number] - before[number])
            unit = self._log.dead_unit(int(rows["physical_offset"][number]), in_front=False)
            if unit is None or count > GAP_UNITS_MAX:
                self.unfilled += count
                continue
            gap = np.empty(count, row_type())
            gap["queue_offset"] = np.arange(before[number], places[number])
            gap["store_timestamp_ms"] = rows["store_timestamp_ms"][number]
            for name in FILE_UNIT.dtype.names or ():
                gap[name] = unit[name][0]
            self.gap_units += count
            yield gap
        yield rows[start:]


FRAME_ROWS: Final = 8192

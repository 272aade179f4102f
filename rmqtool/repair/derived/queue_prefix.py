"""What existing queues have before the log's first record, which a build from the log keeps and continues.

Where the start of the log has expired, filler among these units becomes a unit of an expired message: nothing else is
known of it. In a window of a larger log they are left exactly as they are, and have to reach up to the window's
records.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.derived_writer import DerivedSizes, DerivedWriter, QueueEnds
from rmqtool.engine.dispatch.queue_writer import BatchQueueWriter, QueueEnd
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, FILLER_UNIT, UNIT, UNIT_SIZE, unit_format
from rmqtool.formats.tombstone import DEAD_BEFORE, DEAD_SIZE
from rmqtool.store.directory import QueueFiles, Segment, Store
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.sink import FileSink
from rmqtool.store.source import read_range

Units = NDArray[Any]
Key = tuple[str, int, bool]
"""Topic, queue id, whether it is a batch queue."""


@dataclass(frozen=True)
class _Reach:
    """How far a queue reaches below a window: its next queue offset, and where its last unit points to (-1 without)."""

    queue_offset: int = 0
    physical_offset: int = -1
    is_broken: bool = False


class QueuePrefixes:
    """Copies the starts of queues into what is built."""

    def __init__(self, store: Store, sizes: DerivedSizes, minimum: int, *, is_window: bool) -> None:
        """Read nothing yet.

        Args:
            minimum: physical offset at which the log begins.
            is_window: whether it continues below that.
        """
        self._store = store
        self._sizes = sizes
        self._minimum = minimum
        self._is_window = is_window
        self._reached: dict[Key, _Reach] = {}

    def ends(self, sink: FileSink, topic: str, queue_id: int, is_batch: bool) -> QueueEnds:
        """Where a queue continues after its start, which is copied.

        Raises:
            UnreadableError, WriteError: the queue cannot be read, or its start not be written.
        """
        self._reached[topic, queue_id, is_batch] = _Reach()
        queues = self._store.batch_queues if is_batch else self._store.queues
        queue = queues.get((topic, queue_id))
        if queue is None or self._minimum == 0:
            return QueueEnds(QueueEnd())
        return QueueEnds(self._copied(sink, queue, is_batch=is_batch))

    def keep_others(self, sink: FileSink, wants: Callable[[str, int], bool]) -> None:
        """Queues of which the log has no record any more keep their units, and with them their next queue offset.

        Raises:
            UnreadableError, WriteError: see `ends`.
        """
        if self._minimum == 0:
            return
        for is_batch, queues in ((False, self._store.queues), (True, self._store.batch_queues)):
            for (topic, queue_id), queue in queues.items():
                if (topic, queue_id, is_batch) not in self._reached and wants(topic, queue_id):
                    self._copied(sink, queue, is_batch=is_batch)

    def needs(self, writer: DerivedWriter) -> int | None:
        """Physical offset from which on the log must be known, for a queue does not reach up to its first record here.

        None where all do; 0 where nothing tells it.
        """
        needed_offsets: list[int] = []
        first = {
            (topic, queue_id, isinstance(queue, BatchQueueWriter)): queue.first_queue_offset
            for topic, queue_id, queue in writer.queues()
        }
        for key, reach in self._reached.items():
            begins = first.get(key)
            if reach.is_broken or (begins is not None and begins > reach.queue_offset):
                needed_offsets.append(max(0, reach.physical_offset))
        return min(needed_offsets, default=None)

    def _copied(self, sink: FileSink, queue: QueueFiles, *, is_batch: bool) -> QueueEnd:
        """Copy the units that point below the log; where they end. Filler alone tells nothing, and is left out."""
        size = self._sizes.batch if is_batch else self._sizes.queue
        end, last, copied, is_known = QueueEnd(), None, list[str](), self._is_window
        for segment in _well_named(queue, size):
            if end.last_start is not None and segment.start != end.last_start + size:
                break  # files are missing in between: what is before the gap is no use
            units = self._units(segment, size, is_batch=is_batch)
            rest = np.flatnonzero(~self._is_below(units))
            head = units[: int(rest[0])] if rest.size else units
            if not head.size:
                break
            is_known |= self._without_filler(head, is_batch=is_batch)
            path = f"{queue.directory}/{segment_name(segment.start)}"
            sink.create(path, size)
            sink.write_at(path, 0, head.tobytes())
            copied.append(path)
            end, last = QueueEnd(segment.start, segment.start + head.nbytes), head[-1]
            if head.nbytes < size:
                break
        if self._is_window:
            self._reached[queue.topic, queue.queue_id, is_batch] = self._reach(queue, end, last, is_batch=is_batch)
        if is_known:
            return end
        for path in copied:
            sink.remove(path)
        return QueueEnd()

    def _units(self, segment: Segment, size: int, *, is_batch: bool) -> Units:
        form = unit_format(is_batch=is_batch).dtype
        with closing(self._store.view.open(segment.path)) as source:
            raw = read_range(source, 0, min(size, segment.size) // form.itemsize * form.itemsize)
        return np.frombuffer(raw, form).copy()

    def _is_below(self, units: Units, least: int = 0) -> Units:
        """Which units are valid and point into [least, start of the log)."""
        offsets = units["physical_offset"]
        return np.asarray((offsets >= least) & (offsets < self._minimum) & (units["record_size"] > 0))

    def _without_filler(self, head: Units, *, is_batch: bool) -> bool:
        """Give filler the form of an expired message's unit, but not in a window; whether there is anything else."""
        if is_batch or self._is_window:
            return bool(head.size)
        filler = head == np.array([FILLER_UNIT], UNIT.dtype)
        head[filler] = (self._minimum - DEAD_BEFORE, DEAD_SIZE, 0)
        return not filler.all()

    def _reach(self, queue: QueueFiles, end: QueueEnd, last: Any, *, is_batch: bool) -> _Reach:
        """How far a queue reaches whose start ends there, with this unit."""
        size = self._sizes.batch if is_batch else self._sizes.queue
        unit_size = BATCH_UNIT_SIZE if is_batch else UNIT_SIZE
        pointed = int(last["physical_offset"]) if last is not None else -1
        behind = end.end // unit_size
        segments = _well_named(queue, size)
        for segment in segments:
            # A unit after the start, yet for a record below the window: between them some are missing.
            units = self._units(segment, size, is_batch=is_batch)
            units = units[max(0, behind - segment.start // unit_size) :]
            if self._is_below(units, pointed + 1).any():
                return _Reach(0, pointed, is_broken=True)
        if is_batch:
            behind = int(last["base_queue_offset"]) + int(last["batch_size"]) if last is not None else 0
        elif last is None and segments:
            behind = segments[0].start // unit_size
        return _Reach(behind, pointed)


def _well_named(queue: QueueFiles, size: int) -> list[Segment]:
    """The files of a queue without those whose names are no multiple of the size: their units tell no queue offset."""
    return [segment for segment in queue.segments if size and segment.start % size == 0]

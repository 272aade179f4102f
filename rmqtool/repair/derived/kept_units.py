"""Units that the queues of a store have, and that a build keeps.

Consumers get what these lead to, at these queue offsets. So where several records claim a place, the unit tells which
one has it; and where the log lacks a message, the queue's own units stay if each leads to a record that belongs there.

Units of light queues stay where the log no longer tells which queues a record named beside its own: properties tell
them, and nothing protects the properties of records without a checksum of their own. Without such a unit all later
messages of the light queue would move up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.queues.stored_units import StoredUnits
from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE, UNIT, UNIT_SIZE
from rmqtool.formats.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from rmqtool.store.directory import Store
from rmqtool.store.source import read_range

KEPT_MAX: Final = 10_000
"""Units of one gap whose records are looked at."""
_Fits = Callable[[Record | None, int, int], bool]
"""Whether a unit may lead to a record, by the unit's physical offset and size."""


class KeptUnits(StoredUnits):
    """Looks up what a store's queues have at some places, and what of it is right."""

    def __init__(self, store: Store, rules: BrokerRules, log_end: int | None = None) -> None:
        """`log_end` is where the log is to end; None: where it ends now."""
        super().__init__(store)
        self._rules, self._log_end = rules, log_end

    def of_batch_queue(self, directory: str) -> NDArray[np.int64]:
        """Where the units of a batch queue lead to."""
        _, topic, queue_id = directory.split("/")
        queue = self._store.batch_queues.get((topic, int(queue_id)))
        parts = [np.empty(0, np.int64)]
        for segment in queue.segments if queue is not None else ():
            with suppress(UnreadableError), closing(self._store.view.open(segment.path)) as source:
                raw = read_range(source, 0, segment.size // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE)
                units = np.frombuffer(raw, BATCH_UNIT.dtype)
                parts.append(units["physical_offset"][units["batch_size"] > 0].astype(np.int64))
        return np.concatenate(parts)

    def of_own_records(self, directory: str, places: tuple[int, int]) -> NDArray[Any] | None:
        """The units of a queue at stream positions; None unless each leads to a whole record that says its place."""
        _, topic, queue_id = directory.split("/")
        try:
            units = self._units(directory, *places)
            if units is None:
                return None
            with OpenFiles(self._store.view) as files:
                log, place = Log(self._store, self._rules, files), places[0] // UNIT_SIZE
                for number, (at, size) in enumerate(units[["physical_offset", "record_size"]].tolist()):
                    record = read_record(log, at) if self._log_end is None or at < self._log_end else None
                    if record is None or (record.physical_offset, record.size) != (at, size):
                        return None
                    claim = record.topic, str(record.queue_id), record.queue_offset
                    if claim != (topic, queue_id, place + number) or record.body_crc_ok is not True:
                        return None
        except UnreadableError:
            return None
        return units

    def of_light_queue(self, directory: str, places: tuple[int, int], physical: tuple[int, int]) -> NDArray[Any] | None:
        """The units of a light queue for a gap; None unless each leads to a whole record that names no further queue.

        Args:
            places: stream positions at which the gap begins and ends.
            physical: physical offsets of the records before and after the gap; the units lead to others in between.
        """
        is_light = directory.split("/")[1].startswith(LMQ_PREFIX)
        return self._in_between(directory, places, physical, _tells_nothing) if is_light else None

    def of_wrong_headers(
        self, directory: str, places: tuple[int, int], physical: tuple[int, int]
    ) -> NDArray[Any] | None:
        """The units of a queue for a gap; None unless each leads to a whole record, whatever its header says of itself.

        Consumers get these there today, and where they are left out, each later message of the queue moves up.

        Args:
            places, physical: see `of_light_queue`.
        """
        return self._in_between(directory, places, physical, _is_whole)

    def _in_between(
        self, directory: str, places: tuple[int, int], physical: tuple[int, int], fits: _Fits
    ) -> NDArray[Any] | None:
        """The units of a gap, if each leads to a record that fits, and they are in the order of the log."""
        try:
            units = self._units(directory, *places)
            if units is None:
                return None
            offsets = [physical[0], *units["physical_offset"].tolist(), physical[1]]
            if any(one >= two for one, two in pairwise(offsets)):
                return None
            with OpenFiles(self._store.view) as files:
                log = Log(self._store, self._rules, files)
                pairs = zip(offsets[1:-1], units["record_size"].tolist(), strict=True)
                return units if all(fits(read_record(log, at), at, size) for at, size in pairs) else None
        except UnreadableError:
            return None

    def _units(self, directory: str, begin: int, end: int) -> NDArray[Any] | None:
        queue = self._queues.get(directory) if end - begin <= KEPT_MAX * UNIT_SIZE else None
        parts: list[bytes] = []
        for segment in queue.segments if queue is not None else ():
            low, high = max(begin, segment.start), min(end, segment.end)
            if low < high:
                with closing(self._store.view.open(segment.path)) as source:
                    parts.append(read_range(source, low - segment.start, high - low))
        raw = b"".join(parts)
        return np.frombuffer(raw, UNIT.dtype) if len(raw) == end - begin and len(raw) % UNIT_SIZE == 0 else None


def _is_whole(record: Record | None, physical_offset: int, size: int) -> bool:
    """Whether a record is where a unit leads, as long as that says, and its body is what was sent."""
    return (
        record is not None
        and (record.physical_offset, record.size) == (physical_offset, size)
        and record.body_crc_ok is True
    )


def _tells_nothing(record: Record | None, physical_offset: int, size: int) -> bool:
    """Whether a whole record does not tell which queues it named beside its own."""
    return (
        record is not None
        and _is_whole(record, physical_offset, size)
        and not {MULTI_DISPATCH, MULTI_QUEUE_OFFSET} <= record.properties.keys()
    )

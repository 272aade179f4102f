"""Units of light queues that stay where the log no longer tells which queues a record named beside its own.

Properties tell them, and nothing protects the properties of records without a checksum of their own. Without such a
unit all later messages of the light queue would move up.
"""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.multi_dispatch import LMQ_PREFIX
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.formats.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET
from rmqtool.store.directory import Store
from rmqtool.store.source import read_range

KEPT_MAX: Final = 10_000
"""Units of one gap whose records are looked at."""


class KeptUnits:
    """Looks up what a store's light queues have in a gap."""

    def __init__(self, store: Store, rules: BrokerRules) -> None:
        self._store, self._rules = store, rules
        self._queues = {
            queue.directory: queue for name, queue in store.queues.items() if name[0].startswith(LMQ_PREFIX)
        }

    def between(self, directory: str, places: tuple[int, int], physical: tuple[int, int]) -> NDArray[Any] | None:
        """The units of a light queue for a gap; None unless each leads to a whole record that names no further queue.

        Args:
            places: stream positions at which the gap begins and ends.
            physical: physical offsets of the records before and after the gap; the units lead to others in between.
        """
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
                return units if all(_tells_nothing(read_record(log, at), at, size) for at, size in pairs) else None
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


def _tells_nothing(record: Record | None, physical_offset: int, size: int) -> bool:
    """Whether a whole record does not tell which queues it named beside its own."""
    return (
        record is not None
        and (record.physical_offset, record.size) == (physical_offset, size)
        and record.body_crc_ok is True
        and not {MULTI_DISPATCH, MULTI_QUEUE_OFFSET} <= record.properties.keys()
    )

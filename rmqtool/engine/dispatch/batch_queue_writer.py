"""Writes one batch consume queue: units in the order of the log, wherever the queue ends.

Broker: `BatchConsumeQueue#putMessagePositionInfoWrapper`, `#putBatchMessagePositionInfo`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rmqtool.engine.dispatch.queue_entries import QueueEntries
from rmqtool.engine.dispatch.queue_writer import QueueEnd, UnitWriter
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE
from rmqtool.store.sink import FileSink

_UNIT: Final = BATCH_UNIT.dtype
NOT_COMPACTED: Final = -1


class BatchQueueWriter(UnitWriter):
    """One queue of 46-byte units. Its end's physical offset is the begin of the last record, not the end.

    Left out, and counted as `ignored`, is what is known already, or has numbers that mean nothing.
    """

    def __init__(self, sink: FileSink, directory: str, file_size: int, end: QueueEnd | None = None) -> None:
        """See `UnitWriter`."""
        super().__init__(sink, directory, file_size, BATCH_UNIT_SIZE, end)

    def put(self, entries: QueueEntries) -> None:
        """Enter records, in log order.

        Raises:
            WriteError: the sink does not take it.
        """
        begins = entries.physical_offsets
        if self.first_queue_offset is None and begins.size:
            self.first_queue_offset = int(entries.queue_offsets[0])
        sound = (entries.queue_offsets >= 0) & (entries.batch_sizes >= 0)
        # Each that is entered raises the mark for those behind it; one below the mark changes nothing.
        marks = np.maximum.accumulate(np.concatenate([[self._physical_offset], np.where(sound, begins, -1)]))
        entered = sound & (begins > marks[:-1])
        count = int(entered.sum())
        self.ignored += begins.size - count
        units = np.zeros(count, _UNIT)
        units["physical_offset"] = begins[entered]
        units["record_size"] = entries.record_sizes[entered]
        units["tags_code"] = entries.tags_codes[entered]
        units["store_timestamp_ms"] = entries.store_timestamps_ms[entered]
        units["base_queue_offset"] = entries.queue_offsets[entered]
        units["batch_size"] = entries.batch_sizes[entered]
        units["compacted_offset"] = NOT_COMPACTED
        at = 0
        while at < count:
            room = self._file_for(0) + self._file_size - self._end
            written = min(count - at, room // BATCH_UNIT_SIZE)
            if written <= 0:
                self.ignored += count - at  # the file is not full, and takes no unit any more
                return
            self._write(self._end, units[at : at + written])
            self._end += written * BATCH_UNIT_SIZE
            at += written
            self._physical_offset = int(units["physical_offset"][at - 1])

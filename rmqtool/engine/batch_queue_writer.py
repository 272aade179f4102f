"""Writes one batch consume queue: units in the order of the log, wherever the queue ends.

Broker: `BatchConsumeQueue#putMessagePositionInfoWrapper`, `#putBatchMessagePositionInfo`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rmqtool.engine.dispatch import QueueEntries
from rmqtool.engine.queue_writer import QueueEnd
from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE
from rmqtool.store.kinds import segment_name
from rmqtool.store.sink import FileSink

_UNIT: Final = BATCH_UNIT.dtype
NOT_COMPACTED: Final = -1


class BatchQueueWriter:
    """One queue of 46-byte units. Its end's physical offset is the begin of the last record, not the end.

    Attributes:
        ignored: entries that were left out: known already, or with numbers that mean nothing.
        first_queue_offset: that of the first record that was put; None before it.
    """

    def __init__(self, sink: FileSink, directory: str, file_size: int, end: QueueEnd | None = None) -> None:
        """Go on at an end, or begin a queue; no file is made before the first entry.

        Args:
            directory: path of the queue in the store.
            file_size: bytes of a full file, a multiple of 46.
        """
        assert file_size > 0, file_size
        assert file_size % BATCH_UNIT_SIZE == 0, file_size
        end = end or QueueEnd()
        self._sink = sink
        self._directory = directory
        self._file_size = file_size
        self._last_start = end.last_start
        self._end = end.end
        self._physical_offset = end.physical_offset
        self.ignored = 0
        self.first_queue_offset: int | None = None

    @property
    def end(self) -> QueueEnd:
        """Where writing goes on."""
        return QueueEnd(self._last_start, self._end, self._physical_offset)

    @property
    def last_path(self) -> str | None:
        """The file that is written to; None before the first one is made."""
        return None if self._last_start is None else self._path(self._last_start)

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
            start = self._file_with_room()
            written = min(count - at, (start + self._file_size - self._end) // BATCH_UNIT_SIZE)
            self._sink.write_at(self._path(start), self._end - start, units[at : at + written].tobytes())
            self._end += written * BATCH_UNIT_SIZE
            at += written
            self._physical_offset = int(units["physical_offset"][at - 1])

    def _file_with_room(self) -> int:
        if self._last_start is None or self._end >= self._last_start + self._file_size:
            self._last_start = self._end = 0 if self._last_start is None else self._last_start + self._file_size
            self._sink.create(self._path(self._end), self._file_size)
        return self._last_start

    def _path(self, start: int) -> str:
        return f"{self._directory}/{segment_name(start)}"

"""A file consume queue as the broker has it after load: its end, its minimum, its units.

Broker: `ConsumeQueue#recover`, `#correctMinOffset`, `#getIndexBuffer`, `#rollNextFile`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.engine.queues.extension import QueueExtension
from rmqtool.engine.queues.loaded_files import READ_UNITS, LoadedFiles, minimum_position
from rmqtool.engine.queues.offset_by_time import boundary_offset, nearest_offset
from rmqtool.engine.queues.unit import PLAIN, Boundary, QueueUnit, whole_units
from rmqtool.engine.rules.algorithms import TimeLookup
from rmqtool.engine.rules.versions import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.formats.consumequeue import UNIT_SIZE, extension_position, is_extension_address
from rmqtool.store.directory import Segment


class FileQueue:
    """A loaded consume queue of 20-byte units."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        loaded: LoadedFiles,
        rules: BrokerRules,
        log_minimum: int,
        extension: QueueExtension | None = None,
        minimum: int | None = None,
    ) -> None:
        """Take a queue's files.

        Args:
            log_minimum: first physical offset of the commitlog.
            minimum: stream position of the first readable unit, where it is known.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.unit_size = UNIT_SIZE
        self.loaded = loaded
        self._extension = extension
        self._rules = rules
        self._log_minimum = log_minimum
        self._minimum = minimum

    @property
    def max_queue_offset(self) -> int:
        """Queue offset after the last unit."""
        return self.loaded.end // UNIT_SIZE

    @property
    def min_queue_offset(self) -> int:
        return self.min_stream_position // UNIT_SIZE

    @property
    def min_stream_position(self) -> int:
        """Bytes from the queue's start to the first unit that counts as readable.

        Raises:
            UnreadableError: a file cannot be read.
        """
        if self._minimum is None:
            self._minimum = minimum_position(self.loaded, self._rules, self._log_minimum)
        return self._minimum

    def units_from(self, queue_offset: int) -> Iterator[QueueUnit] | None:
        position = queue_offset * UNIT_SIZE
        if position < self.min_stream_position:
            return None
        segment = self.loaded.segment_at(position)
        if segment is None or position % self.loaded.file_size >= self.loaded.length(segment):
            return None
        return self._units(segment, position % self.loaded.file_size, queue_offset)

    def unit_at(self, queue_offset: int) -> QueueUnit | None:
        """The unit of a queue offset; None where the broker gives none."""
        return next(self.units_from(queue_offset) or iter(()), None)

    def next_file_queue_offset(self, queue_offset: int) -> int:
        units = self.loaded.file_size // UNIT_SIZE
        return queue_offset + units - queue_offset % units

    def last_record(self) -> tuple[int, int] | None:
        """Physical offset and size of the record of the last unit; None without units."""
        position = self.loaded.last_unit_position()
        return self.raw_unit(*position)[:2] if position is not None else None

    def offset_by_time(self, log: Log, timestamp_ms: int, boundary: Boundary) -> int:
        """The queue offset of a time; see `Queue`."""
        if self._rules.time_lookup is TimeLookup.NEAREST:
            return nearest_offset(self, log, timestamp_ms)
        return min(
            max(boundary_offset(self, log, timestamp_ms, boundary), self.min_queue_offset), self.max_queue_offset
        )

    def extension_end(self) -> int | None:
        """Stream position after the unit of the extension that the queue's last address leads to; None without one.

        Units of expired messages count too (`ConsumeQueueExt#truncateByMaxAddress`).
        """
        if self._extension is None:
            return None
        for segment in reversed(self.loaded.segments):
            for position in range(self.loaded.length(segment) - UNIT_SIZE, -1, -UNIT_SIZE):
                tags_code = self.raw_unit(segment, position)[2]
                unit = self._extension.unit(tags_code) if is_extension_address(tags_code) else None
                if unit is not None:
                    return extension_position(tags_code) + unit.size
        return None

    def raw_unit(self, segment: Segment, position: int) -> tuple[int, int, int]:
        """Physical offset, record size and tags code at a position of a file."""
        physical_offset, record_size, tags_code = PLAIN.unpack(self.loaded.read(segment, position, UNIT_SIZE))
        return int(physical_offset), int(record_size), int(tags_code)

    def _units(self, segment: Segment, position: int, queue_offset: int) -> Iterator[QueueUnit]:
        while block := whole_units(self.loaded.read(segment, position, READ_UNITS * UNIT_SIZE), UNIT_SIZE):
            position += len(block)
            for physical_offset, record_size, tags_code in PLAIN.iter_unpack(block):
                extension = None
                if self._extension is not None and is_extension_address(tags_code):
                    extension = self._extension.unit(tags_code)
                yield QueueUnit(queue_offset, physical_offset, record_size, tags_code, 1, extension)
                queue_offset += 1

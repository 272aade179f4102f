"""A file consume queue as the broker has it after load: its end, its minimum, its units.

Broker: `ConsumeQueue#recover`, `#correctMinOffset`, `#getIndexBuffer`, `#rollNextFile`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from rmqtool.engine.algorithms import MinOffsetSearch
from rmqtool.engine.extension import QueueExtension
from rmqtool.engine.open_files import OpenFiles
from rmqtool.engine.queue_files import LoadedFiles
from rmqtool.engine.queue_unit import PLAIN, QueueUnit, valid_unit_count
from rmqtool.engine.versions import BrokerRules
from rmqtool.formats.consumequeue import UNIT_SIZE, is_extension_address
from rmqtool.store.directory import QueueFiles, Segment

READ_UNITS: Final = 4096
"""Units that are read ahead while iterating."""


class FileQueue:
    """A loaded consume queue of 20-byte units."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        found: QueueFiles | None,
        file_size: int,
        files: OpenFiles,
        rules: BrokerRules,
        log_minimum: int,
        extension: QueueExtension | None = None,
    ) -> None:
        """Load the queue.

        Args:
            found: its files; None for a queue that the broker makes on being asked.
            file_size: bytes of a full file.
            log_minimum: first physical offset of the commitlog.

        Raises:
            UnreadableError: a file cannot be read.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.unit_size = UNIT_SIZE
        self.loaded = LoadedFiles(found, file_size, UNIT_SIZE, files, valid_unit_count)
        self._extension = extension
        self._rules = rules
        self._log_minimum = log_minimum

    @property
    def max_queue_offset(self) -> int:
        """Queue offset behind the last unit."""
        return self.loaded.end // UNIT_SIZE

    @property
    def min_queue_offset(self) -> int:
        return self.min_stream_position // UNIT_SIZE

    @cached_property
    def min_stream_position(self) -> int:
        """Bytes from the queue's begin to the first unit that counts as readable.

        Raises:
            UnreadableError: a file cannot be read.
        """
        if self._rules.min_offset_search is MinOffsetSearch.LINEAR:
            return self._linear_minimum()
        return self._binary_minimum()

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

    def raw_unit(self, segment: Segment, position: int) -> tuple[int, int, int]:
        """Physical offset, record size and tags code at a position of a file."""
        physical_offset, record_size, tags_code = PLAIN.unpack(self.loaded.read(segment, position, UNIT_SIZE))
        return int(physical_offset), int(record_size), int(tags_code)

    def _units(self, segment: Segment, position: int, queue_offset: int) -> Iterator[QueueUnit]:
        while block := self.loaded.read(segment, position, READ_UNITS * UNIT_SIZE):
            position += len(block)
            for physical_offset, record_size, tags_code in PLAIN.iter_unpack(block):
                extension = None
                if self._extension is not None and is_extension_address(tags_code):
                    extension = self._extension.unit(tags_code)
                yield QueueUnit(queue_offset, physical_offset, record_size, tags_code, 1, extension)
                queue_offset += 1

    def _linear_minimum(self) -> int:
        first = self.loaded.first
        if first is None:
            return 0
        position = 0
        while block := self.loaded.read(first, position, READ_UNITS * UNIT_SIZE):
            for index, (physical_offset, _, _) in enumerate(PLAIN.iter_unpack(block)):
                if physical_offset >= self._log_minimum:
                    return first.start + position + index * UNIT_SIZE
            position += len(block)
        return 0

    def _binary_minimum(self) -> int:
        first, last = self.loaded.first, self.loaded.last
        if first is None or last is None or self.loaded.end <= 0:
            return 0
        last_length = self.loaded.length(last)
        # Where the last file holds no unit, old versions ask for one before its begin and fail to load.
        if last_length and self.raw_unit(last, last_length - UNIT_SIZE)[0] < self._log_minimum:
            return last.start + last_length
        length = self.loaded.length(first)
        if not length:
            return 0
        if first.start == 0 and self.raw_unit(first, 0)[0] >= self._log_minimum:
            return 0
        low, high = 0, length - UNIT_SIZE
        while high - low > UNIT_SIZE:
            middle = (low + high) // 2 // UNIT_SIZE * UNIT_SIZE
            physical_offset = self.raw_unit(first, middle)[0]
            if physical_offset >= self._log_minimum:
                high = middle
                low = middle if physical_offset == self._log_minimum else low
            else:
                low = middle
        for position in range(low, high + 1, UNIT_SIZE):
            if self.raw_unit(first, position)[0] >= self._log_minimum:
                return first.start + position
        return 0

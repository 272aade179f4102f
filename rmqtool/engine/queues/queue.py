"""A loaded queue of any kind, as everything above sees it: bounds, units by offset, an offset by time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from rmqtool.engine.queues.unit import Boundary, QueueUnit

if TYPE_CHECKING:
    from rmqtool.engine.queues.loaded_files import LoadedFiles
    from rmqtool.engine.segments.log import Log


class Queue(ABC):
    """A loaded queue of any kind: its bounds, its units by offset and by time.

    Attributes:
        unit_size: bytes of a unit in the broker's calculations.
        loaded: its files; None of a queue that is kept in a database.
    """

    topic: str
    queue_id: int
    unit_size: ClassVar[int]
    loaded: LoadedFiles | None

    @property
    @abstractmethod
    def min_queue_offset(self) -> int: ...
    @property
    @abstractmethod
    def max_queue_offset(self) -> int: ...

    @abstractmethod
    def units_from(self, queue_offset: int, max_count: int | None = None) -> Iterator[QueueUnit] | None:
        """Units from this offset to the end of the one file it lies in; None where nothing can be read there.

        Args:
            max_count: units that a pull asks for; a queue of files gives more, if it has them.

        Raises:
            UnreadableError: the broker fails at a unit that is missing, or cannot be read.
        """

    def unit_at(self, queue_offset: int) -> QueueUnit | None:
        """The unit that holds this offset; None where nothing can be read there."""
        return next(self.units_from(queue_offset) or iter(()), None)

    def next_file_queue_offset(self, queue_offset: int) -> int:  # noqa: ARG002 - asked of every queue
        """First queue offset of the file after the one that holds this offset; 0 where the broker does not know it.

        Broker: `BatchConsumeQueue#rollNextFile`, `RocksDBConsumeQueue#rollNextFile`.
        """
        return 0

    @abstractmethod
    def last_record(self) -> tuple[int, int] | None:
        """Physical offset and size of the record of the last unit; None without units."""

    @abstractmethod
    def offset_by_time(self, log: Log, timestamp_ms: int, boundary: Boundary) -> int:
        """The queue offset of a time; versions without boundaries take the nearest unit, whatever the boundary.

        Raises:
            UnreadableError: the disk does not give units or records.
        """

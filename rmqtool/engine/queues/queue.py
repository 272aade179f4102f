"""A loaded queue of any kind, as everything above sees it: bounds, units by offset, an offset by time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from rmqtool.engine.queues.unit import Boundary, QueueUnit

if TYPE_CHECKING:
    from rmqtool.engine.queues.loaded_files import LoadedFiles
    from rmqtool.engine.segments.log import Log


class Queue(Protocol):
    """A loaded queue of any kind: its bounds, its units by offset and by time."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def unit_size(self) -> int: ...
    @property
    def loaded(self) -> LoadedFiles | None:
        """Its files; None of a queue that is kept in a database."""

    @property
    def min_queue_offset(self) -> int: ...
    @property
    def max_queue_offset(self) -> int: ...

    def units_from(self, queue_offset: int, max_count: int | None = None) -> Iterator[QueueUnit] | None:
        """Units from this offset to the end of the one file it lies in; None where nothing can be read there.

        Args:
            max_count: units that a pull asks for; a queue of files gives more, if it has them.

        Raises:
            UnreadableError: the broker fails at a unit that is missing, or cannot be read.
        """

    def unit_at(self, queue_offset: int) -> QueueUnit | None:
        """The unit that holds this offset; None where nothing can be read there."""

    def next_file_queue_offset(self, queue_offset: int) -> int:
        """First queue offset of the file after the one that holds this offset."""

    def last_record(self) -> tuple[int, int] | None:
        """Physical offset and size of the record of the last unit; None without units."""

    def offset_by_time(self, log: Log, timestamp_ms: int, boundary: Boundary) -> int:
        """The queue offset of a time; versions without boundaries take the nearest unit, whatever the boundary.

        Raises:
            UnreadableError: the disk does not give units or records.
        """

"""What a pull sees of a queue: units, whatever files they come from, and how many of a run of bytes are valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rmqtool.formats import consumequeue

if TYPE_CHECKING:
    from rmqtool.engine.queues.loaded_files import LoadedFiles
    from rmqtool.engine.segments.log import Log

PLAIN: Final = Struct(consumequeue.UNIT.struct_code)
BATCH: Final = Struct(consumequeue.BATCH_UNIT.struct_code)
_OFFSET_AT: Final = consumequeue.UNIT.position("physical_offset")
_SIZE_AT: Final = consumequeue.UNIT.position("record_size")
_BASE_AT: Final = consumequeue.BATCH_UNIT.position("base_queue_offset")
_COUNT_AT: Final = consumequeue.BATCH_UNIT.position("batch_size")
_IS_NEGATIVE: Final = bytes(value >> 7 for value in range(256))
"""Translates the first byte of a number into its sign."""


def whole_units(block: bytes, unit_size: int) -> bytes:
    """The units of a block that was read, which ends within one where a file has an odd length or place."""
    return block[: len(block) - len(block) % unit_size]


class Extension(NamedTuple):
    """A unit of the queue's extension."""

    size: int
    tags_code: int
    store_timestamp_ms: int
    bitmap_length: int = 0


class QueueUnit(NamedTuple):
    """A unit of a queue; `message_count` is above 1 in batch queues only."""

    queue_offset: int
    physical_offset: int
    record_size: int
    stored_tags_code: int
    """As it stands in the unit, which may be an address in the extension."""
    message_count: int = 1
    extension: Extension | None = None

    @property
    def tags_code(self) -> int | None:
        """The code to filter by; None where it stands in an extension that cannot be read."""
        if self.extension is not None:
            return self.extension.tags_code
        return None if consumequeue.is_extension_address(self.stored_tags_code) else self.stored_tags_code


class Boundary(Enum):
    """Which unit is meant where several have a time, or none."""

    LOWER = "LOWER"
    """The first one that is not earlier."""
    UPPER = "UPPER"
    """The last one that is not later."""


class UnitKind(NamedTuple):
    """The units of one kind of file queue."""

    form: Struct
    valid_count: Callable[[bytes], int]
    """How many units a block begins with before the first one that recovery refuses."""
    size: int
    """Bytes of a unit."""


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


def valid_unit_count(block: bytes) -> int:
    """How many units a block begins with before the first invalid one (`ConsumeQueue#recover`).

    Bytes of many units are judged at once: a queue file has 300,000 of them, and the broker looks at three files.
    """
    size = consumequeue.UNIT_SIZE
    count = len(block) // size
    whole = block[: count * size]
    count = min(count, _first_negative(whole, _OFFSET_AT, size, count))
    count = min(count, _first_negative(whole, _SIZE_AT, size, count))
    return _first_zero(whole, _SIZE_AT, 4, size, count)


def valid_batch_unit_count(block: bytes) -> int:
    """The same for batch units (`BatchConsumeQueue#recover`)."""
    size = consumequeue.BATCH_UNIT_SIZE
    count = len(block) // size
    whole = block[: count * size]
    for position in (_OFFSET_AT, _SIZE_AT, _BASE_AT, _COUNT_AT):
        count = _first_negative(whole, position, size, count)
    count = _first_zero(whole, _SIZE_AT, 4, size, count)
    return _first_zero(whole, _COUNT_AT, 2, size, count)


def _first_negative(block: bytes, position: int, unit_size: int, count: int) -> int:
    """Number of the first unit whose integer at this position is negative; `count` if there is none before it."""
    number = block[position::unit_size].translate(_IS_NEGATIVE).find(1, 0, count)
    return count if number < 0 else number


def _first_zero(block: bytes, position: int, width: int, unit_size: int, count: int) -> int:
    """Number of the first unit whose integer at this position is zero; `count` if there is none before it."""
    lowest = block[position + width - 1 :: unit_size]
    number = lowest.find(0, 0, count)
    while number >= 0:
        at = number * unit_size + position
        if not any(block[at : at + width]):
            return number
        number = lowest.find(0, number + 1, count)
    return count


PLAIN_UNITS: Final = UnitKind(PLAIN, valid_unit_count, PLAIN.size)
BATCH_UNITS: Final = UnitKind(BATCH, valid_batch_unit_count, BATCH.size)

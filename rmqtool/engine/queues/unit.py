"""Units of a queue as a pull sees them, from files of any kind, and the number of valid ones in a run of bytes."""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from rmqtool.formats import consumequeue

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
    """Choice of the unit where several have a time, or none."""

    LOWER = "LOWER"
    """The first one that is not earlier."""
    UPPER = "UPPER"
    """The last one that is not later."""


class UnitKind(NamedTuple):
    """The units of one kind of file queue."""

    form: Struct
    size: int
    """Bytes of a unit."""
    signed: tuple[int, ...]
    """Positions of the numbers that are never negative."""
    counted: tuple[tuple[int, int], ...]
    """Positions and widths of those of them that are never zero either."""

    def valid_count(self, block: bytes) -> int:
        """Number of units at the start of a block before the first one that recovery refuses.

        Broker: `ConsumeQueue#recover`, `BatchConsumeQueue#recover`. Bytes of many units are judged at once: a queue
        file has 300,000 of them, and the broker looks at three files.
        """
        count = len(block) // self.size
        whole = block[: count * self.size]
        for position in self.signed:
            negative = whole[position :: self.size].translate(_IS_NEGATIVE).find(1, 0, count)
            count = count if negative < 0 else negative
        for position, width in self.counted:
            count = _first_zero(whole, position, width, self.size, count)
        return count


def _first_zero(block: bytes, position: int, width: int, unit_size: int, count: int) -> int:
    """Number of the first unit whose integer at this position is zero; `count` without one."""
    lowest = block[position + width - 1 :: unit_size]
    number = lowest.find(0, 0, count)
    while number >= 0:
        at = number * unit_size + position
        if not any(block[at : at + width]):
            return number
        number = lowest.find(0, number + 1, count)
    return count


PLAIN_UNITS: Final = UnitKind(PLAIN, PLAIN.size, (_OFFSET_AT, _SIZE_AT), ((_SIZE_AT, 4),))
BATCH_UNITS: Final = UnitKind(
    BATCH, BATCH.size, (_OFFSET_AT, _SIZE_AT, _BASE_AT, _COUNT_AT), ((_SIZE_AT, 4), (_COUNT_AT, 2))
)

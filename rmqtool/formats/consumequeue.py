"""Units of the consume queues: plain (20 bytes), extension, and batch (46 bytes).

Broker: `ConsumeQueue`, `ConsumeQueueExt.CqExtUnit`, `BatchConsumeQueue`.
"""

from typing import Final

from construct import Bytes, Int16sb, Int32sb, Int64sb, Rebuild, Struct

from rmqtool.formats.layout import Format

UNIT: Final = Format(
    "consumequeue-unit",
    "ConsumeQueue unit",
    "ConsumeQueue#putMessagePositionInfo",
    Struct(
        "physical_offset" / Int64sb * "where the record starts in the commit log",
        "record_size" / Int32sb * "bytes of the whole record (broker: body size)",
        "tags_code" / Int64sb * "hash of the tag, a delivery time in SCHEDULE_TOPIC_XXXX, or an extension address",
    ),
    "Queue offset q is at byte 20*q of the queue; a unit counts while physical_offset >= 0 and record_size > 0.",
)
UNIT_SIZE: Final = 20
DEFAULT_FILE_UNITS: Final = 300_000
"""Units of a queue file where the broker's configuration says nothing."""
assert UNIT.size == UNIT_SIZE

FILLER_UNIT: Final = (0, 0x7FFFFFFF, 0)
"""Stands before the first real unit of a queue that begins inside a file (broker: `ConsumeQueue#fillPreBlank`)."""

EXTENSION_ADDRESS_MAX: Final = -2147483649
"""From here down a tags_code is an extension address (`ConsumeQueueExt#isExtAddr`); no 32-bit hash is so low."""
EXTENSION_ADDRESS_BASE: Final = -(2**63)

EXTENSION_UNIT: Final = Format(
    "consumequeue-ext-unit",
    "ConsumeQueueExt unit",
    "ConsumeQueueExt.CqExtUnit#write",
    Struct(
        "size"
        / Rebuild(Int16sb, lambda context: 20 + len(context.filter_bitmap))
        * "bytes of this unit; -1 ends the file",
        "tags_code" / Int64sb * "the real tags code",
        "store_timestamp_ms" / Int64sb * "of the record",
        "bitmap_length" / Rebuild(Int16sb, lambda context: len(context.filter_bitmap)) * "bytes of the bitmap",
        "filter_bitmap" / Bytes(lambda context: max(0, context.bitmap_length)) * "which consumer groups' filters match",
    ),
    "Its position in the extension minus 2**63 is the tags_code of the consume queue unit.",
)
EXTENSION_HEAD_SIZE: Final = 20
EXTENSION_END_OF_FILE: Final = -1
EXTENSION_END_SIZE: Final = 4
"""Bytes that a file keeps free for its end mark (`ConsumeQueueExt.END_BLANK_DATA_LENGTH`)."""

BATCH_UNIT: Final = Format(
    "batchconsumequeue-unit",
    "BatchConsumeQueue unit",
    "BatchConsumeQueue#putBatchMessagePositionInfo",
    Struct(
        "physical_offset" / Int64sb * "where the record starts in the commit log",
        "record_size" / Int32sb * "bytes of the whole record",
        "tags_code" / Int64sb * "hash of the tag",
        "store_timestamp_ms" / Int64sb * "of the record",
        "base_queue_offset" / Int64sb * "queue offset of the first message inside",
        "batch_size" / Int16sb * "messages inside, at least 1",
        "compacted_offset" / Int32sb * "written as -1",
        "reserved" / Int32sb * "written as 0",
    ),
    "Units are appended one after the other; the position does not show the queue offset.",
)
BATCH_UNIT_SIZE: Final = 46
assert BATCH_UNIT.size == BATCH_UNIT_SIZE


def is_extension_address(tags_code: int) -> bool:
    """True if a unit's tags code is an address in the queue's extension files."""
    return tags_code <= EXTENSION_ADDRESS_MAX


def extension_position(tags_code: int) -> int:
    """Stream position in the extension of an address."""
    return tags_code - EXTENSION_ADDRESS_BASE


def unit_format(*, is_batch: bool) -> Format:
    """The format of a queue's units."""
    return BATCH_UNIT if is_batch else UNIT

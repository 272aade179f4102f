"""Keys and values of consume queues in RocksDB: units, the ends of each queue, and how far the log was dispatched.

Broker: `RocksDBConsumeQueueTable`, `RocksDBConsumeQueueOffsetTable`.
"""

from struct import Struct as Packer
from typing import Final, NamedTuple

from construct import Bytes, Int32sb, Int64sb, Rebuild, Struct

from rmqtool.formats.layout import Format
from rmqtool.formats.queue_name import QueueKey

SEPARATOR: Final = b"\x01"
MAXIMUM: Final = b"max"
MINIMUM: Final = b"min"
CHECKPOINT_TOPIC: Final = b"CHECKPOINT_TOPIC"
"""Not a topic: its queue 0 has the end of the last record that was dispatched."""
UNIT_FAMILY: Final = "default"
OFFSET_FAMILY: Final = "offset"


UNIT_KEY: Final = Format(
    "rocksdb-unit-key",
    "RocksDB queue: key of a unit",
    "RocksDBConsumeQueueTable#buildCQKeyByteBuffer",
    Struct(
        "topic_length" / Rebuild(Int32sb, lambda context: len(context.topic)) * "bytes of the topic",
        "after_length" / Bytes(1) * "always 01",
        "topic" / Bytes(lambda context: max(0, context.topic_length)) * "UTF-8",
        "after_topic" / Bytes(1) * "always 01",
        "queue_id" / Int32sb * "queue of the topic",
        "after_queue" / Bytes(1) * "always 01; 00 and 02 limit the range that deletes a queue",
        "queue_offset" / Int64sb * "which message of the queue",
    ),
    "In the column family `default`, ordered bytewise: units of one queue follow each other.",
)
UNIT: Final = Format(
    "rocksdb-unit",
    "RocksDB queue: unit",
    "RocksDBConsumeQueueTable#buildCQValueByteBuffer",
    Struct(
        "physical_offset" / Int64sb * "where the record starts in the commit log",
        "record_size" / Int32sb * "bytes of the whole record (broker: body size)",
        "tags_code" / Int64sb * "hash of the tag",
        "store_timestamp_ms" / Int64sb * "of the record",
    ),
    "A unit counts only if its queue offset is between the queue's `min` and `max`.",
)
OFFSET_KEY: Final = Format(
    "rocksdb-offset-key",
    "RocksDB queue: key of an end",
    "RocksDBConsumeQueueOffsetTable#buildOffsetKeyByteBuffer",
    Struct(
        "topic_length" / Rebuild(Int32sb, lambda context: len(context.topic)) * "bytes of the topic",
        "after_length" / Bytes(1) * "always 01",
        "topic" / Bytes(lambda context: max(0, context.topic_length)) * "UTF-8; CHECKPOINT_TOPIC is not a topic",
        "after_topic" / Bytes(1) * "always 01",
        "end" / Bytes(3) * "`max`: the last unit; `min`: the first one",
        "after_end" / Bytes(1) * "always 01",
        "queue_id" / Int32sb * "queue of the topic; 0 of CHECKPOINT_TOPIC",
    ),
    "In the column family `offset`.",
)
OFFSET: Final = Format(
    "rocksdb-offset",
    "RocksDB queue: first or last unit",
    "RocksDBConsumeQueueOffsetTable#buildOffsetValueByteBuffer",
    Struct(
        "physical_offset" / Int64sb * "where the unit's record starts in the commit log",
        "queue_offset" / Int64sb * "of that unit: the next message gets `max` + 1",
    ),
    "`min` is missing or out of date until a client asks for it: the broker then looks for the first unit that is not "
    "before the start of the log.",
)
DISPATCHED: Final = Format(
    "rocksdb-dispatched",
    "RocksDB queue: end of dispatched log",
    "RocksDBConsumeQueueOffsetTable#appendMaxPhyOffset",
    Struct("physical_offset" / Int64sb * "a start dispatches the log from here on"),
    "The value of CHECKPOINT_TOPIC, queue 0, `max`.",
)
UNIT_SIZE: Final = 28
assert UNIT.size == UNIT_SIZE
assert OFFSET.size == 16
assert DISPATCHED.size == 8

_INT: Final = Packer(">i")
_LONG: Final = Packer(">q")


class OffsetKey(NamedTuple):
    """A key of the offset family."""

    topic: bytes
    queue_id: int
    is_maximum: bool


def queue_prefix(topic: bytes, queue_id: int) -> bytes:
    """Prefix of the keys of all units of a queue."""
    return _INT.pack(len(topic)) + SEPARATOR + topic + SEPARATOR + _INT.pack(queue_id) + SEPARATOR


def unit_key(topic: bytes, queue_id: int, queue_offset: int) -> bytes:
    """The key of a unit."""
    return queue_prefix(topic, queue_id) + _LONG.pack(queue_offset)


def offset_key(topic: bytes, queue_id: int, *, is_maximum: bool) -> bytes:
    """The key of a queue's last or first unit."""
    end = MAXIMUM if is_maximum else MINIMUM
    return _INT.pack(len(topic)) + SEPARATOR + topic + SEPARATOR + end + SEPARATOR + _INT.pack(queue_id)


DISPATCHED_KEY: Final = offset_key(CHECKPOINT_TOPIC, 0, is_maximum=True)


def parse_queue_prefix(prefix: bytes) -> QueueKey | None:
    """Topic and queue id that a unit's key begins with; None where it is no such key."""
    topic, queue_id = prefix[5:-6], int.from_bytes(prefix[-5:-1], "big", signed=True)
    return (topic, queue_id) if len(prefix) >= 11 and queue_prefix(topic, queue_id) == prefix else None


def parse_offset_key(key: bytes) -> OffsetKey | None:
    """A key of the offset family; None where it is none."""
    if len(key) < 14:
        return None
    parsed = OffsetKey(key[5:-9], int.from_bytes(key[-4:], "big", signed=True), key[-8:-5] == MAXIMUM)
    return parsed if offset_key(parsed.topic, parsed.queue_id, is_maximum=parsed.is_maximum) == key else None

"""Keys and values of `kvStore/`: messages that pop consumers hold, where a broker keeps them in RocksDB.

Broker: `PopConsumerRecord`, `PopConsumerRocksdbStore` (`popConsumerKVServiceEnable`).
"""

from struct import Struct as Packer
from typing import Final, NamedTuple

from construct import Bytes, Int32sb, Int64sb, Struct

from rmqtool.formats.layout import Format, size_before

POP_FAMILY: Final = "popState"
_SEPARATOR: Final = b"@"
_TAIL: Final = Packer(">icq")


POP_KEY: Final = Format(
    "rocksdb-pop-key",
    "RocksDB pop consumption: key",
    "PopConsumerRecord#getKeyBytes",
    Struct(
        "revive_timestamp_ms" / Int64sb * "from when on the broker delivers the message again",
        "names" / Bytes(size_before("names", _TAIL.size)) * "`consumer group@topic@`",
        "queue_id" / Int32sb * "queue of the topic",
        "after_queue_id" / Bytes(1) * "always `@`",
        "queue_offset" / Int64sb * "of the message that a consumer received",
    ),
    "In the column family `popState`: one row for each message that a consumer received and has not acknowledged; an "
    "acknowledgement deletes the row. The value is a JSON object: `rocksdb-pop`.",
)
VALUE_DOCS: Final = (
    ("popTime", "milliseconds: when the consumer received the message"),
    ("groupId", "the consumer's group"),
    ("topicId", "the topic of the queue that it was received from, which may be a retry topic"),
    ("queueId", "queue of that topic"),
    ("retryFlag", "0: the topic itself, 1: a retry topic `%RETRY%group_topic`, 2: one `%RETRY%group+topic`"),
    ("invisibleTime", "milliseconds after the pop time until the broker delivers the message again"),
    ("offset", "queue offset of the message"),
    ("attemptTimes", "how often the broker has put off the delivery because it failed"),
    ("attemptId", "the client's number of its request; only in order"),
    ("suspend", "the consumer gave the message back: the next delivery does not count as a retry"),
)
"""Field of a value, and what it means."""

_LONG: Final = Packer(">q")


class PopKeyRow(NamedTuple):
    """Content of a key."""

    revive_timestamp_ms: int
    group: bytes
    topic: bytes
    queue_id: int
    queue_offset: int


def parse_pop_key(key: bytes) -> PopKeyRow | None:
    """A key of the column family; None where it is none."""
    if len(key) < _LONG.size + _TAIL.size:
        return None
    group, separator, rest = key[_LONG.size : -_TAIL.size].partition(_SEPARATOR)
    queue_id, after, queue_offset = _TAIL.unpack(key[-_TAIL.size :])
    if not (group and separator and len(rest) > 1 and rest[-1:] == after == _SEPARATOR):
        return None
    (revive_timestamp_ms,) = _LONG.unpack(key[: _LONG.size])
    return PopKeyRow(revive_timestamp_ms, group, rest[:-1], queue_id, queue_offset)


def pop_key(row: PopKeyRow) -> bytes:
    """The key of a message that a consumer received."""
    names = b"".join((row.group, _SEPARATOR, row.topic, _SEPARATOR))
    return _LONG.pack(row.revive_timestamp_ms) + names + _TAIL.pack(row.queue_id, _SEPARATOR, row.queue_offset)

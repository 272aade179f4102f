"""Keys and values of the configuration in `config/rdb`, where a broker runs with `configManagerVersion=v2`.

Broker: `ConfigHelper`, `ConsumerOffsetManagerV2`, `TopicConfigManagerV2`, `SubscriptionGroupManagerV2`.
"""

import struct
from struct import Struct as Packer
from typing import Final, NamedTuple

from construct import Bytes, Int8sb, Int16sb, Int32sb, Int64sb, Rebuild, Struct

from rmqtool.formats.layout import Format

OFFSETS_TABLE: Final = 1
TOPICS_TABLE: Final = 3
GROUPS_TABLE: Final = 4
VERSION_RECORD: Final = 1
DATA_RECORD: Final = 2
_VERSION_NAME: Final = b"data_version"
_JSON: Final = 1

NAME_KEY: Final = Format(
    "rocksdb-config-key",
    "RocksDB configuration: key of a topic or group",
    "ConfigHelper#keyBufOf",
    Struct(
        "prefix" / Int8sb * "always 1",
        "table" / Int16sb * "3: topics; 4: subscription groups",
        "record" / Int8sb * "2: data; 1: the table's version, whose key ends in `data_version` without a length",
        "name_length" / Rebuild(Int16sb, lambda context: len(context.name)) * "bytes of the name",
        "name" / Bytes(lambda context: max(0, context.name_length)) * "UTF-8",
    ),
    "The value is one byte, 1 for JSON, and the JSON that `topics.json` or `subscriptionGroup.json` has for the name.",
)
OFFSET_KEY: Final = Format(
    "rocksdb-config-offset-key",
    "RocksDB configuration: key of a consumer offset",
    "ConsumerOffsetManagerV2#keyOfConsumerOffset",
    Struct(
        "prefix" / Int8sb * "always 1",
        "table" / Int16sb * "1: consumer offsets",
        "record" / Int8sb * "2: data",
        "group_length" / Rebuild(Int16sb, lambda context: len(context.group)) * "bytes of the group",
        "group" / Bytes(lambda context: max(0, context.group_length)) * "UTF-8",
        "after_group" / Bytes(1) * "always 01",
        "topic_length" / Rebuild(Int16sb, lambda context: len(context.topic)) * "bytes of the topic",
        "topic" / Bytes(lambda context: max(0, context.topic_length)) * "UTF-8",
        "after_topic" / Bytes(1) * "always 01",
        "queue_id" / Int32sb * "queue of the topic",
    ),
)
OFFSET: Final = Format(
    "rocksdb-config-offset",
    "RocksDB configuration: consumer offset",
    "ConsumerOffsetManagerV2#commitOffset",
    Struct("queue_offset" / Int64sb * "the next message of the group"),
)
VERSION: Final = Format(
    "rocksdb-config-version",
    "RocksDB configuration: version of a table",
    "ConfigHelper#stampDataVersion",
    Struct(
        "state_version" / Int64sb * "of the store's state machine",
        "timestamp" / Int64sb * "when it was written, ms",
        "counter" / Int64sb * "changes so far",
    ),
)
assert VERSION.size == 24

_HEAD: Final = Packer(">bhb")
_LENGTH: Final = Packer(">h")
_OFFSET: Final = Packer(OFFSET.struct_code)
_VERSION: Final = Packer(VERSION.struct_code)
_QUEUE: Final = Packer(">i")


class ConfigRow(NamedTuple):
    """A row of `config/rdb`; a missing field is None.

    Attributes:
        name: the topic or group of a topic or group, the group of an offset.
        json: the text of a topic or group.
        version: state version, timestamp and counter of a table.
    """

    table: int
    name: bytes | None = None
    topic: bytes | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    json: bytes | None = None
    version: tuple[int, int, int] | None = None


def parse_config_row(key: bytes, value: bytes) -> ConfigRow | None:
    """A row as its table has it; None where it is none of these tables."""
    try:
        prefix, table, record = _HEAD.unpack(key[: _HEAD.size])
        rest = key[_HEAD.size :]
        if prefix != 1:
            return None
        if record == VERSION_RECORD and rest == _VERSION_NAME:
            state_version, timestamp, counter = _VERSION.unpack(value)
            return ConfigRow(table, version=(state_version, timestamp, counter))
        name, rest = _named(rest)
        if record != DATA_RECORD or name is None:
            return None
        if table in (TOPICS_TABLE, GROUPS_TABLE) and not rest and value[:1] == bytes((_JSON,)):
            return ConfigRow(table, name, json=value[1:])
        if table != OFFSETS_TABLE or rest[:1] != b"\x01":
            return None
        topic, rest = _named(rest[1:])
        (queue_id,), (queue_offset,) = _QUEUE.unpack(rest[1:]), _OFFSET.unpack(value)
        return ConfigRow(table, name, topic, queue_id, queue_offset) if topic and rest[:1] == b"\x01" else None
    except struct.error:
        return None


def _named(data: bytes) -> tuple[bytes | None, bytes]:
    """A name with its length before it, and the bytes after it."""
    (length,) = _LENGTH.unpack(data[: _LENGTH.size])
    end = _LENGTH.size + length
    return (data[_LENGTH.size : end] if length >= 0 and end <= len(data) else None), data[max(0, end) :]

"""Records of the commitlog: messages in both versions and all host forms, and the blank that ends a file.

Broker: `MessageExtEncoder#encode`, `CommitLog.DefaultAppendMessageCallback#doAppend`,
`CommitLog#checkMessageAndReturnSize`,
https://github.com/apache/rocketmq/blob/develop/store/src/main/java/org/apache/rocketmq/store/CommitLog.java
"""

from typing import Final

from construct import Bytes, Int8sb, Int16sb, Int32sb, Int64sb, Rebuild, Struct, this

from rmqtool.formats import system_flag
from rmqtool.formats.layout import Format

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
MESSAGE_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
MAGIC_NAMES: Final = {MAGIC_V1: "v1", MAGIC_V2: "v2", MAGIC_BLANK: "blank"}
MAGIC_BYTES: Final = {magic: magic.to_bytes(4, "big", signed=True) for magic in MAGIC_NAMES}

V4_HOST_SIZE: Final = 8
V6_HOST_SIZE: Final = 20
V6_EXTRA: Final = V6_HOST_SIZE - V4_HOST_SIZE
BLANK_SIZE_MIN: Final = 8
"""A record is never put closer than this to the end of its file (broker: END_FILE_MIN_BLANK_LENGTH)."""
TOPIC_LENGTH_MAX_V1: Final = 127
PROPERTIES_LENGTH_MAX: Final = 32767


def _host(size: int) -> Struct:
    return Struct(
        "address" / Bytes(size - 4) * "IP address, network order",
        "port" / Int32sb * "TCP port",
    )


def message_struct(sys_flag: int = 0, magic: int = MAGIC_V1) -> Struct:
    """The Struct of a message record for given sysFlag (host families) and magic (width of the topic length)."""
    born_host = _host(V6_HOST_SIZE if sys_flag & system_flag.BORN_HOST_V6 else V4_HOST_SIZE)
    store_host = _host(V6_HOST_SIZE if sys_flag & system_flag.STORE_HOST_V6 else V4_HOST_SIZE)
    topic_length = Int16sb if magic == MAGIC_V2 else Int8sb
    return Struct(
        "size" / Int32sb * "bytes of the whole record, this field included",
        "magic" / Int32sb * "DAA320A7 version 1, DAA320AB version 2 (from 5.1.0)",
        "body_crc" / Int32sb * "CRC-32 of the stored body with the top bit cleared; 0 and unchecked for an empty body",
        "queue_id" / Int32sb * "queue of the topic",
        "flag" / Int32sb * "the application's own value",
        "queue_offset" / Int64sb * "number of the message in its queue; 0 for PREPARED and ROLLBACK",
        "physical_offset" / Int64sb * "position of this record in the commit log",
        "sys_flag" / Int32sb * "bits: compression, transaction type, host families, inner batch",
        "born_timestamp_ms" / Int64sb * "the client's clock",
        "born_host" / born_host * "the client's address",
        "store_timestamp_ms" / Int64sb * "the broker's clock, taken under the put lock",
        "store_host" / store_host * "the broker's address",
        "reconsume_times" / Int32sb * "how often the message was sent back by consumers",
        "prepared_transaction_offset" / Int64sb * "physical offset of the half message; 0 if none",
        "body_length"
        / Rebuild(Int32sb, lambda context: len(context.body))
        * "bytes of the body; a value below 1 is taken as 0",
        "body" / Bytes(lambda context: max(0, context.body_length)) * "as received, possibly compressed",
        "topic_length"
        / Rebuild(topic_length, lambda context: len(context.topic))
        * "bytes of the topic, 1 byte in version 1, 2 in version 2",
        "topic" / Bytes(this.topic_length) * "UTF-8",
        "properties_length"
        / Rebuild(Int16sb, lambda context: len(context.properties))
        * "bytes of the properties; a value below 1 is taken as 0",
        "properties"
        / Bytes(lambda context: max(0, context.properties_length))
        * "name 01 value 02 ...; see `properties`",
    )


_VARIANTS: Final = {
    (magic, hosts): message_struct(hosts, magic)
    for magic in MESSAGE_MAGICS
    for hosts in (0, system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6, system_flag.HOSTS_V6)
}

MESSAGE_V1: Final = Format(
    "message-v1",
    "Commit log message record, version 1, both hosts IPv4",
    "MessageExtEncoder#encode",
    _VARIANTS[MAGIC_V1, 0],
    "An IPv6 host (sysFlag 0x10 born, 0x20 store) makes its field 20 bytes and moves what follows by 12.",
)
MESSAGE_V2: Final = Format(
    "message-v2",
    "Commit log message record, version 2, both hosts IPv4",
    "MessageExtEncoder#encode",
    _VARIANTS[MAGIC_V2, 0],
    (
        "Written from 5.1.0 on for topics longer than 127 characters; for brokers before 5.1.0 it is the end of the "
        "commit log."
    ),
)
BLANK: Final = Format(
    "blank",
    "Commit log end-of-file blank",
    "CommitLog.DefaultAppendMessageCallback#doAppend",
    Struct(
        "size" / Int32sb * "all bytes that are left in the file, at least 8",
        "magic" / Int32sb * "CBD43194",
    ),
    "Only these 8 bytes are written; what follows up to the end of the file is zero or old.",
)

# Positions in a record of version 1 or 2 with IPv4 hosts; the fields up to the first host are there in every record.
MAGIC_AT: Final = MESSAGE_V1.position("magic")
BODY_CRC_AT: Final = MESSAGE_V1.position("body_crc")
QUEUE_OFFSET_AT: Final = MESSAGE_V1.position("queue_offset")
PHYSICAL_OFFSET_AT: Final = MESSAGE_V1.position("physical_offset")
SYS_FLAG_AT: Final = MESSAGE_V1.position("sys_flag")
BORN_HOST_AT: Final = MESSAGE_V1.position("born_host.address")
STORE_TIMESTAMP_AT: Final = MESSAGE_V1.position("store_timestamp_ms")
STORE_HOST_AT: Final = MESSAGE_V1.position("store_host.address")
BODY_LENGTH_AT: Final = MESSAGE_V1.position("body_length")

HEAD_SIZE: Final = BODY_LENGTH_AT + 4
"""Bytes before the body with both hosts IPv4."""
HEAD_SIZE_MAX: Final = HEAD_SIZE + 2 * V6_EXTRA
"""Size of the header with both hosts IPv6."""
RECORD_SIZE_MIN: Final = HEAD_SIZE + 1 + 2
"""A version 1 record with empty body, topic and properties."""


def message_variant(magic: int, sys_flag: int) -> Struct:
    """The ready-made Struct for a record with this magic and sysFlag."""
    return _VARIANTS[magic, sys_flag & system_flag.HOSTS_V6]


def head_size(sys_flag: int) -> int:
    """Bytes before the body."""
    return HEAD_SIZE + host_extra(sys_flag, system_flag.BORN_HOST_V6) + host_extra(sys_flag, system_flag.STORE_HOST_V6)


def host_extra(sys_flag: int, host_bit: int) -> int:
    """Bytes by which an IPv6 host moves the fields after it."""
    return V6_EXTRA if sys_flag & host_bit else 0

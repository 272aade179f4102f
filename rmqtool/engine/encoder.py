"""The one encoder: a message, its place and its queue offset in; the bytes of its record out.

Broker: `MessageExtEncoder#encode`, `CommitLog.DefaultAppendMessageCallback#doAppend`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.properties import RECORD_CRC
from rmqtool.formats.record_crc import CRC_MASK, PROPERTY_SIZE, record_crc_property

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform
    from zlib import crc32

V4_SIZE: Final = commitlog.V4_HOST_SIZE


def _head(born_size: int, store_size: int) -> Struct:
    """The fields in front of the body, hosts as raw bytes."""
    codes = []
    for field in commitlog.MESSAGE_V1.fixed_fields:
        if field.name.endswith(".address"):
            codes.append(f"{born_size if field.name.startswith('born') else store_size}s")
        elif not field.name.endswith(".port"):
            codes.append(str(field.code))
    return Struct(">" + "".join(codes))


HEADS: Final = {(born, store): _head(born, store) for born in (8, 20) for store in (8, 20)}
_PROPERTIES_LENGTH: Final = Struct(">h")


def record_size(body_length: int, topic_length: int, properties_length: int, *, is_v2: bool, hosts_length: int) -> int:
    """Bytes of the record (`MessageExtEncoder#calMsgLength`)."""
    return (
        commitlog.HEAD_SIZE
        - 2 * V4_SIZE
        + hosts_length
        + body_length
        + (2 if is_v2 else 1)
        + topic_length
        + 2
        + properties_length
    )


def host_flags(born_host: bytes, store_host: bytes) -> int:
    """The sysFlag bits that announce IPv6 hosts."""
    born = system_flag.BORN_HOST_V6 if len(born_host) != V4_SIZE else 0
    return born | (system_flag.STORE_HOST_V6 if len(store_host) != V4_SIZE else 0)


def encode_record(
    size: int,
    is_v2: bool,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    topic: bytes,
    properties: bytes,
    record_crc: bool,
) -> bytes:
    """One record. `size` counts all of it; with `record_crc` the properties end in room for that property."""
    head = HEADS[len(born_host), len(store_host)].pack(
        size,
        commitlog.MAGIC_V2 if is_v2 else commitlog.MAGIC_V1,
        crc32(body) & CRC_MASK if body else 0,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    length = len(topic)
    topic_length = length.to_bytes(2, "big") if is_v2 else bytes((length,))
    properties_length = len(properties) + (PROPERTY_SIZE if record_crc else 0)
    record = b"".join((head, body, topic_length, topic, _PROPERTIES_LENGTH.pack(properties_length), properties))
    return record + record_crc_property(record) if record_crc else record


def without_record_crc(text: bytes) -> bytes:
    """The property text without a `__CRC32#` property that a client sent (`MessageUtils#deleteProperty`)."""
    name = RECORD_CRC.encode() + b"\x01"
    parts = [part for part in text.split(b"\x02") if not part.startswith(name)]
    return b"\x02".join(parts)


def encode_blank(room: int) -> bytes:
    """The header of an end-of-file blank that takes all the room left."""
    return bytes(commitlog.BLANK.struct.build({"size": room, "magic": commitlog.MAGIC_BLANK}))

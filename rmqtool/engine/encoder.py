"""The one encoder: fields of records, their places and queue offsets in; the bytes of the records out.

Broker: `MessageExtEncoder#encode`, `CommitLog.DefaultAppendMessageCallback#doAppend`. Records are encoded many at a
time: heads as one array, bodies and texts joined in between, so that a message costs about a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import chain
from typing import Any, Final

import numpy as np

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.java_text import decode_java_utf8, java_length
from rmqtool.formats.properties import RECORD_CRC
from rmqtool.formats.record_crc import CRC_MASK, PROPERTY_SIZE, record_crc_property
from rmqtool.scan.checksum import crc32

V4_SIZE: Final = commitlog.V4_HOST_SIZE
FIXED_SIZE: Final = commitlog.HEAD_SIZE - 2 * V4_SIZE + 2
"""Bytes of a record beside its hosts, body, topic with its length, and properties."""


@dataclass(slots=True)
class RecordColumns:
    """Records that lie side by side, one list per field. Hosts are 8 or 20 bytes, `topics` are made by `topic_part`."""

    topics: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    properties: list[bytes] = field(default_factory=list)
    queue_ids: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)
    sys_flags: list[int] = field(default_factory=list)
    born_timestamps_ms: list[int] = field(default_factory=list)
    born_hosts: list[bytes] = field(default_factory=list)
    store_timestamps_ms: list[int] = field(default_factory=list)
    store_hosts: list[bytes] = field(default_factory=list)
    reconsume_times: list[int] = field(default_factory=list)
    prepared_transaction_offsets: list[int] = field(default_factory=list)
    with_record_crc: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.topics)

    def part(self, start: int, stop: int) -> RecordColumns:
        """A run of the records."""
        if start == 0 and stop == len(self):
            return self
        return RecordColumns(*(getattr(self, column.name)[start:stop] for column in fields(self)))


def topic_part(topic: bytes, *, writes_v2: bool) -> bytes:
    """A topic with its length in front: one byte, or two for a topic of more than 127 characters (version 2)."""
    is_v2 = writes_v2 and len(topic) > commitlog.TOPIC_LENGTH_MAX_V1 and _is_long(topic)
    return len(topic).to_bytes(2 if is_v2 else 1, "big") + topic


def record_size(topic_part_length: int, body_length: int, properties_length: int, hosts_length: int) -> int:
    """Bytes of a record (`MessageExtEncoder#calMsgLength`)."""
    return FIXED_SIZE + hosts_length + body_length + topic_part_length + properties_length


def host_flags(born_host: bytes, store_host: bytes) -> int:
    """The sysFlag bits that announce IPv6 hosts."""
    born = system_flag.BORN_HOST_V6 if len(born_host) != V4_SIZE else 0
    return born | (system_flag.STORE_HOST_V6 if len(store_host) != V4_SIZE else 0)


def encode_records(columns: RecordColumns, physical_offset: int) -> bytes:
    """The bytes of the records, the first of which lies at a physical offset; one after the other, in one file."""
    count = len(columns)
    crc_lengths = np.fromiter(columns.with_record_crc, np.int64, count) * PROPERTY_SIZE
    properties = _lengths(columns.properties) + crc_lengths
    hosts = _lengths(columns.born_hosts) + _lengths(columns.store_hosts)
    sizes = FIXED_SIZE + hosts + _lengths(columns.bodies) + _lengths(columns.topics) + properties
    ends = np.cumsum(sizes)
    heads = _heads(columns, sizes, physical_offset + ends - sizes)
    lengths = properties.astype(">i2").tobytes()
    property_lengths = [lengths[at : at + 2] for at in range(0, 2 * count, 2)]
    parts = zip(heads, columns.bodies, columns.topics, property_lengths, columns.properties, strict=True)
    if not crc_lengths.any():
        return b"".join(chain.from_iterable(parts))
    records = [b"".join(part) for part in parts]
    return b"".join(
        record + record_crc_property(record) if wanted else record
        for record, wanted in zip(records, columns.with_record_crc, strict=True)
    )


def without_record_crc(text: bytes) -> bytes:
    """The property text without a `__CRC32#` property that a client sent (`MessageUtils#deleteProperty`)."""
    name = RECORD_CRC.encode() + b"\x01"
    parts = [part for part in text.split(b"\x02") if not part.startswith(name)]
    return b"\x02".join(parts)


def encode_blank(room: int) -> bytes:
    """The header of an end-of-file blank that takes all the room left."""
    return bytes(commitlog.BLANK.struct.build({"size": room, "magic": commitlog.MAGIC_BLANK}))


def _heads(columns: RecordColumns, sizes: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> list[bytes]:
    """The fields in front of the bodies, of each record."""
    families = {
        host_flags(born, store) for born, store in set(zip(columns.born_hosts, columns.store_hosts, strict=True))
    }
    if len(families) == 1:
        return _heads_of(columns, sizes, places, families.pop(), slice(None))
    of_rows = np.array([host_flags(*hosts) for hosts in zip(columns.born_hosts, columns.store_hosts, strict=True)])
    heads: list[bytes] = [b""] * len(columns)
    for family in families:
        chosen = np.flatnonzero(of_rows == family)
        for index, head in zip(chosen, _heads_of(columns, sizes, places, family, chosen), strict=True):
            heads[index] = head
    return heads


def _heads_of(
    columns: RecordColumns, sizes: np.ndarray[Any, Any], places: np.ndarray[Any, Any], family: int, chosen: Any
) -> list[bytes]:
    dtype = _head_dtype(family)
    widths = np.fromiter(map(_is_v2_part, columns.topics), np.bool_, len(columns))
    crcs = np.fromiter((crc32(body) & CRC_MASK if body else 0 for body in columns.bodies), np.int64, len(columns))
    values_of: dict[str, Any] = {
        "size": sizes,
        "magic": np.where(widths, commitlog.MAGIC_V2, commitlog.MAGIC_V1),
        "body_crc": crcs,
        "queue_id": columns.queue_ids,
        "flag": columns.flags,
        "queue_offset": columns.queue_offsets,
        "physical_offset": places,
        "sys_flag": columns.sys_flags,
        "born_timestamp_ms": columns.born_timestamps_ms,
        "born_host": columns.born_hosts,
        "store_timestamp_ms": columns.store_timestamps_ms,
        "store_host": columns.store_hosts,
        "reconsume_times": columns.reconsume_times,
        "prepared_transaction_offset": columns.prepared_transaction_offsets,
        "body_length": _lengths(columns.bodies),
    }
    heads = np.empty(len(sizes[chosen]), dtype)
    for name, values in values_of.items():
        heads[name] = _values(values, dtype[name])[chosen]
    raw, step = heads.tobytes(), dtype.itemsize
    return [raw[at : at + step] for at in range(0, len(raw), step)]


def _values(values: Any, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    # Hosts of another family are cut here; their rows are not among the chosen ones.
    return (
        values
        if isinstance(values, np.ndarray)
        else np.array(values, kind.newbyteorder("=") if kind.kind == "i" else kind)
    )


def _lengths(texts: Sequence[bytes]) -> np.ndarray[Any, Any]:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def _is_v2_part(part: bytes) -> bool:
    """Whether a topic's length takes two bytes: in one byte it would be the length of the rest."""
    return len(part) - 1 != part[0]


@cache
def _is_long(topic: bytes) -> bool:
    return java_length(decode_java_utf8(topic)) > commitlog.TOPIC_LENGTH_MAX_V1


@cache
def _head_dtype(family: int) -> np.dtype[Any]:
    """The fields in front of the body, hosts as raw bytes."""
    born = commitlog.V6_HOST_SIZE if family & system_flag.BORN_HOST_V6 else V4_SIZE
    store = commitlog.V6_HOST_SIZE if family & system_flag.STORE_HOST_V6 else V4_SIZE
    columns: list[tuple[str, str]] = []
    for declared in commitlog.MESSAGE_V1.fixed_fields:
        name, _, part = declared.name.partition(".")
        if part == "address":
            columns.append((name, f"S{born if name == 'born_host' else store}"))
        elif not part:
            columns.append((name, f">i{declared.size}"))
    return np.dtype(columns)

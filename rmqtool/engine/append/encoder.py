"""The one encoder: fields of records, their places and queue offsets in; the bytes of the records out.

Broker: `MessageExtEncoder#encode`, `CommitLog.DefaultAppendMessageCallback#doAppend`. Records are encoded many at a
time: headers as one array, bodies and texts joined in between, so that a message costs about a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.java_text import decode_java_utf8, java_length
from rmqtool.formats.record_crc import CRC_MASK, PROPERTY_SIZE, record_crc_property
from rmqtool.scan.checksum import crc32

V4_SIZE: Final = commitlog.V4_HOST_SIZE
FIXED_SIZE: Final = commitlog.HEAD_SIZE - 2 * V4_SIZE + 2
"""Bytes of a record beside its hosts, body, topic with its length, and properties."""
HOST_BITS: Final = system_flag.HOSTS_V6

Int64s = NDArray[np.int64]
Integers = Sequence[int] | Int64s
Lengths = TypeVar("Lengths", int, Int64s)


class RecordFields(NamedTuple):
    """One record. Its hosts are 8 or 20 bytes, its sysFlag has their bits, its topic is made by `topic_part`."""

    topic: bytes
    body: bytes
    properties: bytes
    queue_id: int
    flag: int
    queue_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    with_record_crc: bool


@dataclass(slots=True)
class RecordColumns:
    """Records that lie side by side, one sequence per field of `RecordFields`, in its order."""

    topics: Sequence[bytes]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    queue_ids: Integers
    flags: Integers
    queue_offsets: Integers
    sys_flags: Integers
    born_timestamps_ms: Integers
    born_hosts: Sequence[bytes]
    store_timestamps_ms: Integers
    store_hosts: Sequence[bytes]
    reconsume_times: Integers
    prepared_transaction_offsets: Integers
    with_record_crc: Sequence[bool] | NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.topics)

    def part(self, start: int, stop: int) -> RecordColumns:
        """A run of the records."""
        if start == 0 and stop == len(self):
            return self
        return RecordColumns(*(getattr(self, column.name)[start:stop] for column in fields(self)))

    def sizes(self) -> Int64s:
        """Bytes of each record."""
        flags = np.asarray(self.sys_flags, np.int64)
        wide_count = (flags // system_flag.BORN_HOST_V6 & 1) + (flags // system_flag.STORE_HOST_V6 & 1)
        hosts = 2 * V4_SIZE + wide_count * commitlog.V6_EXTRA
        return record_size(lengths_of(self.topics), lengths_of(self.bodies), self.properties_lengths(), hosts)

    def properties_lengths(self) -> Int64s:
        """Bytes of each property block, the record's own CRC included."""
        return lengths_of(self.properties) + np.asarray(self.with_record_crc, np.int64) * PROPERTY_SIZE


def topic_part(topic: bytes, *, writes_v2: bool) -> bytes:
    """A topic with its length in front: one byte, or two for a topic of more than 127 characters (version 2)."""
    length_max = commitlog.TOPIC_LENGTH_MAX_V1
    is_v2 = writes_v2 and len(topic) > length_max and java_length(decode_java_utf8(topic)) > length_max
    return len(topic).to_bytes(2 if is_v2 else 1, "big") + topic


def record_size(
    topic_part_length: Lengths, body_length: Lengths, properties_length: Lengths, hosts_length: Lengths
) -> Lengths:
    """Bytes of a record, or of each of many (`MessageExtEncoder#calMsgLength`)."""
    return FIXED_SIZE + hosts_length + body_length + topic_part_length + properties_length


def host_flags(born_length: Lengths, store_length: Lengths) -> Lengths:
    """The sysFlag bits that announce IPv6 hosts."""
    wide = commitlog.V6_HOST_SIZE
    return born_length // wide * system_flag.BORN_HOST_V6 + store_length // wide * system_flag.STORE_HOST_V6


def encode_records(columns: RecordColumns, sizes: Int64s, physical_offset: int) -> bytearray:
    """The bytes of adjacent records in one file, the first one at a physical offset.

    Args:
        sizes: `columns.sizes()`.
    """
    count = len(columns)
    heads = _heads(columns, sizes, physical_offset + np.cumsum(sizes) - sizes)
    raw = columns.properties_lengths().astype(">i2").tobytes()
    properties_lengths = [raw[at : at + 2] for at in range(0, 2 * count, 2)]
    parts = zip(heads, columns.bodies, columns.topics, properties_lengths, columns.properties, strict=True)
    if not np.any(columns.with_record_crc):
        return bytearray().join(chain.from_iterable(parts))
    records = [b"".join(part) for part in parts]
    return bytearray().join(
        record + record_crc_property(record) if has_crc else record
        for record, has_crc in zip(records, columns.with_record_crc, strict=True)
    )


def encode_blank(room: int) -> bytes:
    """The header of an end-of-file blank that takes all the room left."""
    return bytes(commitlog.BLANK.struct.build({"size": room, "magic": commitlog.MAGIC_BLANK}))


def _heads(columns: RecordColumns, sizes: Int64s, places: Int64s) -> list[bytes]:
    families = np.asarray(columns.sys_flags) & HOST_BITS
    distinct_families = np.unique(families).tolist()
    if len(distinct_families) == 1:
        return _heads_of(columns, sizes, places, distinct_families[0], slice(None))
    heads: list[bytes] = [b""] * len(columns)
    for family in distinct_families:
        chosen = np.flatnonzero(families == family)
        for index, head in zip(chosen, _heads_of(columns, sizes, places, family, chosen), strict=True):
            heads[index] = head
    return heads


def _heads_of(columns: RecordColumns, sizes: Int64s, places: Int64s, family: int, chosen: Any) -> list[bytes]:
    dtype = _head_dtype(family)
    # A length of two bytes, read as one byte, is not the length of the rest.
    magic_of = {
        part: commitlog.MAGIC_V1 if len(part) - 1 == part[0] else commitlog.MAGIC_V2 for part in set(columns.topics)
    }
    values_of: dict[str, Any] = {
        "size": sizes,
        "magic": [magic_of[part] for part in columns.topics],
        "body_crc": np.fromiter(map(crc32, columns.bodies), np.int64, len(columns)) & CRC_MASK,
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
        "body_length": lengths_of(columns.bodies),
    }
    heads = np.empty(len(sizes[chosen]), dtype)
    for name, values in values_of.items():
        heads[name] = _values(values, dtype[name])[chosen]
    raw, step = heads.tobytes(), dtype.itemsize
    return [raw[at : at + step] for at in range(0, len(raw), step)]


def _values(values: Any, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if isinstance(values, np.ndarray):
        return values
    if kind.kind == "i":
        return np.array(values, kind.newbyteorder("="))
    # Hosts of another family are cut here; their rows are not among the chosen ones.
    return np.array(values, kind) if len(set(values)) > 1 else np.full(len(values), values[0], kind)


def lengths_of(texts: Sequence[bytes]) -> Int64s:
    """Bytes of each text."""
    return np.fromiter(map(len, texts), np.int64, len(texts))


@cache
def _head_dtype(family: int) -> np.dtype[Any]:
    """The fields before the body, hosts as raw bytes."""
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

"""One record, decoded as the broker decodes it for delivery; the body is read on demand, up to a limit.

Broker: `MessageDecoder#decode`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from struct import Struct
from typing import Final

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log, RecordLocation
from rmqtool.errors import UnreadableError
from rmqtool.formats import commitlog, properties, system_flag
from rmqtool.formats.commitlog import MESSAGE_MAGICS, SYS_FLAG_AT
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.layout import fields_of
from rmqtool.formats.message_id import host_text, offset_message_id
from rmqtool.formats.record_crc import CRC_MASK
from rmqtool.formats.system_flag import HOSTS_V6

TAIL_SIZE_MAX: Final = 2 + 32767 + 2 + commitlog.PROPERTIES_LENGTH_MAX
"""Bytes in which topic and properties lie, whatever their lengths claim."""
PORT_MAX: Final = 65535
CRC_BLOCK: Final = 1 << 20
_READ_AT_ONCE: Final = 512
"""Bytes of a record that are read at first; most small ones lie in them."""


@dataclass(frozen=True)
class SingleRecord:
    """The bytes of one record, read like a log; `read_at` gives (position in it, length)."""

    rules: BrokerRules
    read_at: Callable[[int, int], bytes]

    def read(self, place: RecordLocation, start: int, length: int) -> bytes:
        del place
        return self.read_at(start, length) if length > 0 else b""


@dataclass(frozen=True)
class Record:
    """A decoded message record; times in ms, lengths in bytes.

    What reads the body raises UnreadableError where the disk does not give it.
    """

    place: RecordLocation
    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    """Offset by the record itself, which need not be its actual one."""
    sys_flag: int
    born_timestamp_ms: int
    born_address: bytes
    store_timestamp_ms: int
    store_address: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_position: int
    """Bytes from the record's start to its body."""
    body_length: int
    topic_raw: bytes
    topic: str
    """As brokers decode it: bytes that are not UTF-8 are replaced."""
    properties_raw: bytes
    _log: Log | SingleRecord = field(repr=False, compare=False)

    @cached_property
    def born_host(self) -> str:
        return host_text(self.born_address)

    @cached_property
    def store_host(self) -> str:
        return host_text(self.store_address)

    @cached_property
    def message_id(self) -> str:
        """The broker's id: store host and the physical offset that the record says of itself."""
        return offset_message_id(self.store_address, self.physical_offset)

    @cached_property
    def properties(self) -> Mapping[str, str]:
        return self._log.rules.property_decoder.decode(self.properties_raw)

    @property
    def tags(self) -> str | None:
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys it is indexed under."""
        return tuple(key for key in self.properties.get(properties.KEYS, "").split(" ") if key)

    @property
    def unique_key(self) -> str | None:
        return self.properties.get(properties.UNIQUE_KEY)

    @property
    def is_decodable(self) -> bool:
        """True if a broker decodes it; Java rejects an address with an impossible port."""
        return all(0 <= int(host.rpartition(":")[2]) <= PORT_MAX for host in (self.born_host, self.store_host))

    @property
    def transaction(self) -> str:
        return system_flag.transaction(self.sys_flag)

    @property
    def compression(self) -> str | None:
        return system_flag.compression(self.sys_flag)

    def body(self, length_max: int) -> bytes:
        """The stored body, its first `length_max` bytes."""
        return self._log.read(self.place, self.body_position, min(self.body_length, length_max))

    @cached_property
    def body_crc_ok(self) -> bool:
        """True if the body has the CRC of the record; always for an empty one."""
        if self.body_length == 0:
            return True
        computed = 0
        for start in range(0, self.body_length, CRC_BLOCK):
            length = min(CRC_BLOCK, self.body_length - start)
            computed = zlib.crc32(self._log.read(self.place, self.body_position + start, length), computed)
        return computed & CRC_MASK == self.body_crc


def _head(hosts: int) -> tuple[Struct, tuple[str, ...]]:
    """Struct and field names of everything before the body."""
    fields = [
        head_field
        for head_field in fields_of(commitlog.message_struct(hosts))
        if head_field.position is not None and head_field.size is not None
    ]
    code = "".join(head_field.code or "" for head_field in fields)
    return Struct(f">{code}"), tuple(head_field.name for head_field in fields)


_HEADS: Final = {hosts: _head(hosts) for hosts in (0, system_flag.BORN_HOST_V6, system_flag.STORE_HOST_V6, HOSTS_V6)}


def read_record(log: Log, physical_offset: int) -> Record | None:
    """The record at a physical offset; None where none can be decoded.

    Nothing is compared with the place: neither the record's own physical offset nor a CRC.

    Raises:
        UnreadableError: the disk does not give its bytes.
    """
    place = log.place(physical_offset)
    return None if place is None else decode_record(log, place)


def decode_record(log: Log | SingleRecord, place: RecordLocation) -> Record | None:
    """The record that begins at a place; None where none can be decoded.

    Raises:
        UnreadableError: the disk does not give its bytes.
    """
    try:  # all of a small record, and at least the part before the body
        start = log.read(place, 0, _READ_AT_ONCE)
    except UnreadableError:  # what follows the header may lie in a bad sector
        start = log.read(place, 0, commitlog.HEAD_SIZE_MAX)
    if len(start) < commitlog.RECORD_SIZE_MIN:
        return None
    sys_flag = int.from_bytes(start[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big", signed=True)
    head_struct, names = _HEADS[sys_flag & HOSTS_V6 if log.rules.ipv6_hosts else 0]
    if len(start) < head_struct.size:
        return None
    head = dict(zip(names, head_struct.unpack_from(start), strict=True))
    magic = head["magic"]
    if magic not in MESSAGE_MAGICS or not 0 < head["size"] <= place.readable_length:
        return None
    body_length = max(0, head["body_length"])
    tail_at = head_struct.size + body_length
    if head["size"] <= len(start):
        tail = start[tail_at : head["size"]]
    else:
        tail = log.read(place, tail_at, min(TAIL_SIZE_MAX, head["size"] - tail_at))
    parts = _tail(tail, 2 if magic == commitlog.MAGIC_V2 else 1)
    if parts is None or tail_at + parts[2] != head["size"]:
        return None
    return Record(
        place=place,
        size=head["size"],
        magic=magic,
        body_crc=head["body_crc"],
        queue_id=head["queue_id"],
        flag=head["flag"],
        queue_offset=head["queue_offset"],
        physical_offset=head["physical_offset"],
        sys_flag=sys_flag,
        born_timestamp_ms=head["born_timestamp_ms"],
        born_address=head["born_host.address"] + head["born_host.port"].to_bytes(4, "big", signed=True),
        store_timestamp_ms=head["store_timestamp_ms"],
        store_address=head["store_host.address"] + head["store_host.port"].to_bytes(4, "big", signed=True),
        reconsume_times=head["reconsume_times"],
        prepared_transaction_offset=head["prepared_transaction_offset"],
        body_position=head_struct.size,
        body_length=body_length,
        topic_raw=parts[0],
        topic=decode_java_utf8(parts[0]),
        properties_raw=parts[1],
        _log=log,
    )


def _tail(tail: bytes, topic_length_size: int) -> tuple[bytes, bytes, int] | None:
    """Topic, properties, and the bytes that they take with their lengths; None where they do not fit."""
    if len(tail) < topic_length_size:
        return None
    topic_length = int.from_bytes(tail[:topic_length_size], "big", signed=True)
    topic_end = topic_length_size + topic_length
    if topic_length < 0 or len(tail) < topic_end + 2:
        return None
    properties_length = max(0, int.from_bytes(tail[topic_end : topic_end + 2], "big", signed=True))
    end = topic_end + 2 + properties_length
    if len(tail) < end:
        return None
    return tail[topic_length_size:topic_end], tail[topic_end + 2 : end], end

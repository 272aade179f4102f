"""Hosts and the two kinds of message id: the broker's (place in the log) and the client's (unique key).

Broker: `MessageDecoder#createMessageId`, `MessageDecoder#decodeMessageId`.
Client: `MessageClientIDSetter#createUniqID`.
"""

from __future__ import annotations

import ipaddress
import re
import string
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from construct import Bytes, Int16sb, Int32sb, Int64sb, Struct

from rmqtool.formats.layout import Format

OFFSET_MESSAGE_ID: Final = Format(
    "offset-message-id",
    "Offset message id (IPv4)",
    "MessageDecoder#createMessageId",
    Struct(
        "address" / Bytes(4) * "store host; 16 bytes for IPv6",
        "port" / Int32sb * "store port",
        "physical_offset" / Int64sb * "where the record starts",
    ),
    "Written as upper-case hex: 32 characters for IPv4, 56 for IPv6.",
)
UNIQUE_KEY: Final = Format(
    "client-unique-key",
    "Client unique key (IPv4)",
    "MessageClientIDSetter#createUniqID",
    Struct(
        "address" / Bytes(4) * "client host; 16 bytes for IPv6",
        "process_id" / Int16sb * "low 16 bits",
        "class_loader_hash" / Int32sb * "tells apart clients in one process",
        "month_milliseconds" / Int32sb * "since the first of the month, 00:00 in the client's zone",
        "counter" / Int16sb * "low 16 bits of a counter",
    ),
    "Written as upper-case hex, 32 or 56 characters, in property UNIQ_KEY. "
    "It may be missing, and two messages may have the same.",
)
V4_ID_LENGTH: Final = 32
V6_ID_LENGTH: Final = 56
_PRINTED: Final = re.compile(r"(?<![0-9A-Za-z])(?:0[xX])?([0-9A-Fa-f]{56}|[0-9A-Fa-f]{32})(?![0-9A-Za-z])")
HEX_DIGITS: Final = frozenset(string.hexdigits)


@dataclass(frozen=True)
class OffsetMessageId:
    """A decoded offset message id."""

    host: str
    physical_offset: int


def host_text(raw: bytes) -> str:
    """`ip:port`, or `[ip6]:port`, of a host field of 8 or 20 bytes."""
    port = int.from_bytes(raw[-4:], "big", signed=True)
    address = address_text(raw[:-4])
    return f"{address}:{port}" if len(raw) == 8 else f"[{address}]:{port}"


def address_text(raw: bytes) -> str:
    """Text of a 4- or 16-byte address."""
    return ".".join(map(str, raw)) if len(raw) == 4 else str(ipaddress.IPv6Address(raw))


def host_bytes(text: str) -> bytes:
    """The host field (8 or 20 bytes) of `ip:port` or `[ip6]:port`.

    Raises:
        ValueError: the text is no such host.
    """
    address, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"not a host with a port: {text!r}")
    if not -(1 << 31) <= int(port) < 1 << 31:
        raise ValueError(f"no port: {port!r}")
    bracketed = address.startswith("[") and address.endswith("]")
    ip = ipaddress.IPv6Address(address[1:-1]) if bracketed else ipaddress.IPv4Address(address)
    return ip.packed + int(port).to_bytes(4, "big", signed=True)


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """The broker's id of a record: hex of the store host field and the physical offset."""
    return (store_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_message_id(text: str) -> OffsetMessageId:
    """Decode an offset message id of 32 or 56 hex characters.

    Raises:
        ValueError: the text is no such id.
    """
    if len(text) not in (V4_ID_LENGTH, V6_ID_LENGTH):
        raise ValueError(f"a message id has 32 or 56 hex characters, this one {len(text)}")
    if not HEX_DIGITS.issuperset(text):  # bytes.fromhex would skip spaces
        raise ValueError(f"not hexadecimal: {text!r}")
    raw = bytes.fromhex(text)
    return OffsetMessageId(host_text(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True))


def create_unique_key(address: bytes, now: datetime, counter: int) -> str:
    """A unique key as a client, or a broker from 5.0.0 on, makes one; process and class loader are 0.

    Args:
        address: 4 or 16 bytes.
    """
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    milliseconds = int((now - month).total_seconds() * 1000)
    return (address + bytes(6) + milliseconds.to_bytes(4, "big") + (counter & 0xFFFF).to_bytes(2, "big")).hex().upper()


def message_ids(text: str) -> tuple[str, ...]:
    """The ids in the output of a client, a console or a log: quoted, named (`msgId=...`), or several of one batch.

    A text without any hexadecimal number of an id's length is an id of its own: a producer may give any.
    """
    printed = _PRINTED.findall(text)
    ids = tuple(dict.fromkeys(form for match in printed for form in (match, match.upper())))
    return ids or (text.strip().strip("\"'[](),;"),)

"""One frame of the remoting protocol: bytes to a command and back.

Broker: `RemotingCommand#encode`, `RemotingCommand#decode`, `RocketMQSerializable`, `NettyDecoder`. A frame is the
length of what follows (4 bytes), one byte for the header's form (0 JSON, 1 binary), the header's length (3 bytes), the
header, and the body. Headers are written as JSON, which every version reads, and read in both forms.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rmqtool.errors import FrameError

FRAME_MAX: Final = 16 << 20
"""Bytes of a frame, its length included: brokers and clients refuse longer ones (`frameMaxLength`)."""
LENGTH_SIZE: Final = 4
_PREFIX_SIZE: Final = 8
_JSON_FORM: Final = 0
_BINARY_FORM: Final = 1
_RESPONSE_BIT: Final = 1


@dataclass(frozen=True)
class Command:
    """A request or an answer.

    Attributes:
        number: pairs an answer with its request (`opaque`).
        fields: the header's own ones (`extFields`), values as text.
    """

    code: int
    number: int
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str = ""
    is_response: bool = False


class _Header(msgspec.Struct):
    """The header as JSON; other fields are not needed."""

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    extFields: dict[str, str | None] | None = None  # noqa: N815 - the protocol's name


_READ_HEADER: Final = msgspec.json.Decoder(_Header)


def encode_frame(command: Command) -> bytes:
    """The bytes of a request.

    Raises:
        FrameError: they are too many.
    """
    header = msgspec.json.encode(
        {
            "code": command.code,
            "language": "PYTHON",
            "version": 0,
            "opaque": command.number,
            "flag": _RESPONSE_BIT if command.is_response else 0,
            "remark": command.remark or None,
            "extFields": {
                # Without half surrogate pairs, which UTF-8 has no bytes for; Java writes ? for one.
                name: value.encode("utf-8", "replace").decode()
                for name, value in command.fields.items()
            },
            "serializeTypeCurrentRPC": "JSON",
        }
    )
    size = _PREFIX_SIZE + len(header) + len(command.body)
    if size > FRAME_MAX:
        raise FrameError(f"a request of {size:,} bytes is longer than brokers take ({FRAME_MAX:,})")
    return b"".join((struct.pack(">II", size - LENGTH_SIZE, _JSON_FORM << 24 | len(header)), header, command.body))


def frame_length(prefix: bytes) -> int:
    """Bytes that follow the four of the length.

    Raises:
        FrameError: no frame has this length.
    """
    length = int.from_bytes(prefix, "big", signed=True)
    if not LENGTH_SIZE <= length <= FRAME_MAX - LENGTH_SIZE:
        raise FrameError(f"a frame of {length:,} bytes: this is not RocketMQ's remoting protocol")
    return length


def decode_frame(frame: bytes) -> Command:
    """The command of a frame; `frame` is the part after its length, at least 4 bytes.

    Raises:
        FrameError: it is none.
    """
    form, header_length = frame[0], int.from_bytes(frame[1:4], "big")
    header, body = frame[4 : 4 + header_length], frame[4 + header_length :]
    if len(header) < header_length:
        raise FrameError(f"a frame of {len(frame)} bytes with a header of {header_length}")
    try:
        if form == _JSON_FORM:
            read = _READ_HEADER.decode(header)
            fields = {name: value for name, value in (read.extFields or {}).items() if value is not None}
            return Command(read.code, read.opaque, fields, body, read.remark or "", bool(read.flag & _RESPONSE_BIT))
        if form == _BINARY_FORM:
            return _of_binary(header, body)
    except (msgspec.MsgspecError, RecursionError, struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"a header that cannot be read ({error})") from error
    raise FrameError(f"a header of form {form}, which is neither JSON (0) nor binary (1)")


def _of_binary(header: bytes, body: bytes) -> Command:
    code, _language, _version, number, flag = struct.unpack_from(">hbhii", header)
    at = struct.calcsize(">hbhii")
    remark, at = _text(header, at, 4)
    length = int.from_bytes(_part(header, at, 4), "big", signed=True)
    at, end = at + 4, at + 4 + max(0, length)
    _part(header, at, end - at)
    fields: dict[str, str] = {}
    while at < end:
        name, at = _text(header, at, 2)
        fields[name], at = _text(header, at, 4)
    return Command(code, number, fields, body, remark, bool(flag & _RESPONSE_BIT))


def _text(header: bytes, at: int, length_size: int) -> tuple[str, int]:
    """A text with its length before it, and its end."""
    length = max(0, int.from_bytes(_part(header, at, length_size), "big", signed=True))
    at += length_size
    return _part(header, at, length).decode(), at + length


def _part(header: bytes, at: int, length: int) -> bytes:
    part = header[at : at + length]
    if len(part) < length:
        raise struct.error(f"it ends before byte {at + length}")
    return part

"""Annotated bytes: every byte of a record or unit beside the name and the value of its field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import SYS_FLAG_AT
from rmqtool.formats.layout import Field, fields_of
from rmqtool.formats.message_id import address_text
from rmqtool.report.text import columns_of, counted, cropped, escaped
from rmqtool.times import time_text

BYTES_SHOWN_MAX: Final = 1024
"""Bytes of one field, or of a bad range, that are shown where no limit is given: its two ends."""
_LINE_BYTES: Final = 16
"""Bytes of the widest line: the ends are whole lines."""
VALUE_LINES_MAX: Final = 3
"""Words of a value that get a line each where they do not fit beside the name."""
_WIDE: Final = 120
_MAGIC_NAMES: Final = {
    commitlog.MAGIC_V1: "message v1",
    commitlog.MAGIC_V2: "message v2",
    commitlog.MAGIC_BLANK: "blank",
}
Read = Callable[[int, int], bytes]
"""Gives (position, length) bytes of a structure, fewer where it ends."""


@dataclass(frozen=True)
class HexField:
    """A field with its bytes, from the start of the record or unit: the first ones of `length`, as many as are to be
    shown, and the last ones where it is longer.
    """

    name: str
    position: int
    content: bytes
    length: int
    value: str
    tail: bytes = b""
    is_integer: bool = False

    @property
    def left_out(self) -> int:
        """Bytes between its two ends."""
        return self.length - len(self.content) - len(self.tail)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "position": self.position,
            "length": self.length,
            "hex": self.content.hex(),
            "hex_end": self.tail.hex() if self.tail else None,
            "value": self.value or None,
        }


def parts_of(read: Read, length: int, fields: Sequence[Field], limit: int = BYTES_SHOWN_MAX) -> list[HexField]:
    """The parts of a structure, whose fields are as declared; bytes outside them are named as such, so none is left
    out.

    A field of variable length takes what the last length before it says; `read` gives (position, length) bytes.
    """
    parts: list[HexField] = []
    at, declared_length = 0, 0
    for field in fields:
        size = min(max(0, declared_length) if field.size is None else field.size, length - at)
        is_properties = field.name == "properties"
        whole = is_properties or field.size is not None
        content, tail = (read(at, size), b"") if whole else _ends(read, at, size, limit)
        if field.is_integer and field.name.endswith("_length"):
            declared_length = int.from_bytes(content, "big", signed=True)
        if is_properties and size:
            parts += _properties(content, at)
        elif size:
            parts.append(HexField(field.name, at, content, size, _value(field, content), tail, field.is_integer))
        at += size
    if at < length:
        content, tail = _ends(read, at, length - at, limit)
        parts.append(HexField("(beyond the fields)", at, content, length - at, "", tail))
    return parts


def message_parts(read: Read, length: int, limit: int = BYTES_SHOWN_MAX) -> list[HexField]:
    """The parts of a message record, in the form that its magic and host flags give it."""
    magic = int.from_bytes(read(4, 4), "big", signed=True)
    sys_flag = int.from_bytes(read(SYS_FLAG_AT, 4), "big")
    return parts_of(read, length, fields_of(commitlog.message_variant(magic, sys_flag)), limit)


def bare_parts(read: Read, length: int, limit: int = BYTES_SHOWN_MAX) -> list[HexField]:
    """One part for a range that has no fields."""
    content, tail = _ends(read, 0, length, limit)
    return [HexField("bytes", 0, content, length, "", tail)]


def hex_field(name: str, position: int, row: Mapping[str, Any]) -> HexField:
    """A field from the result of `HexField.as_json`."""
    content, tail = bytes.fromhex(row["hex"]), bytes.fromhex(row["hex_end"] or "")
    return HexField(name, position, content, row["length"], row["value"] or "", tail)


def hex_fields(parts: Sequence[HexField], width: int, start: int = 0) -> dict[str, Any]:
    """Fields of a row for `--hex`: `bytes` for programs, and the lines that a table shows."""
    return {"bytes": [part.as_json() for part in parts], "bytes_text": list(hex_lines(parts, width, start))}


def hex_lines(parts: Iterable[HexField], width: int, start: int = 0) -> Iterator[str]:
    """Lines for a terminal: position, bytes, ASCII, field, value; from 120 columns on a line has 16 bytes, else 8."""
    step = _LINE_BYTES if width >= _WIDE else _LINE_BYTES // 2
    label_width = max(16, width - (8 + 2 + 2 + 3 * step - 1 + 2 + step + 2))
    for part in parts:
        yield from _lines(part.content, start + part.position, step, _labels(part, label_width))
        if part.left_out > 0:
            yield f"  {'':8}  ... {counted(part.left_out, 'byte')} of {part.name} left out ..."
        if part.tail:
            yield from _lines(part.tail, start + part.position + part.length - len(part.tail), step, ())


def _lines(content: bytes, begin: int, step: int, labels: Sequence[str]) -> Iterator[str]:
    for line in range(max(-(-len(content) // step), len(labels), 1)):
        chunk = content[line * step : (line + 1) * step]
        place = f"{begin + line * step:x}" if chunk or not line else ""
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in chunk)
        label = labels[line] if line < len(labels) else ""
        yield f"  {place:>8}  {chunk.hex(' '):<{3 * step - 1}}  {text:<{step}}  {label}".rstrip()


def _ends(read: Read, at: int, length: int, limit: int) -> tuple[bytes, bytes]:
    """First and last bytes of a range, `limit` in all; the whole range as its first bytes if it is short."""
    if length <= limit:
        return read(at, length), b""
    first = min(-(-limit // (2 * _LINE_BYTES)) * _LINE_BYTES, limit)
    last = limit - first
    return read(at, first), read(at + length - last, last) if last else b""


def _labels(part: HexField, width: int) -> list[str]:
    """Name and value on one line if they fit, else the value below the name in a few lines."""
    whole = f"{part.name} = {part.value}" if part.value else part.name
    if columns_of(whole) <= width or not part.value:
        return [cropped(whole, width)]
    words = part.value.split(" ")
    if len(words) > VALUE_LINES_MAX or any(columns_of(word) > width for word in words):
        return [cropped(part.name, width), cropped(part.value, width)]
    return [cropped(part.name, width), *words]


def _properties(content: bytes, position: int) -> list[HexField]:
    """The property block, a part for each property with its separators."""
    parts = []
    at = 0
    for segment in content.split(b"\x02"):
        split = content[at : at + len(segment) + 1]
        if split:
            name, _, value = segment.partition(b"\x01")
            label = f"properties.{escaped(name.decode('utf-8', 'backslashreplace'))}" if name else "properties"
            shown = escaped(value.decode("utf-8", "backslashreplace"))
            parts.append(HexField(label, position + at, split, len(split), shown))
        at += len(segment) + 1
    return parts


def _value(field: Field, content: bytes) -> str:
    if not field.is_integer:
        if field.name.endswith("address") and len(content) in (4, 16):
            return address_text(content)
        return escaped(content.decode("utf-8", "backslashreplace")) if field.name == "topic" else ""
    number = int.from_bytes(content, "big", signed=True)
    if field.name == "magic":
        return f"{content.hex().upper()} {_MAGIC_NAMES.get(number, '')}".rstrip()
    if field.name == "sys_flag":
        return f"{number:#x}"
    if field.name.endswith("_timestamp_ms"):
        return f"{number} {time_text(number)}"
    return str(number)

"""Turns a declared construct Struct into everything else.

That is field positions, struct codes, numpy dtype and documentation rows. A structure is written down
once, as a `construct.Struct` whose fields carry a doc text; nothing here repeats a size or a position.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import construct

if TYPE_CHECKING:
    import numpy

INTEGER_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
"""Bytes of a signed integer to its code in `struct` (all RocketMQ integers are signed and big-endian)."""


@dataclass(frozen=True)
class Field:
    """One declared field.

    `position` is None after the first field of variable length, `size` (bytes) is None where it varies.
    """

    name: str
    position: int | None
    size: int | None
    code: str | None
    doc: str

    @property
    def is_integer(self) -> bool:
        return self.code is not None and self.code in "bhiq"


@dataclass(frozen=True)
class Format:
    """A declared on-disk structure with what a person needs to know about it."""

    name: str
    title: str
    source: str
    """Broker class and method that writes it."""
    struct: construct.Struct
    about: str = ""

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields in order of the file."""
        return fields_of(self.struct)

    @cached_property
    def fixed_fields(self) -> tuple[Field, ...]:
        """The leading fields whose position is known without reading the record."""
        return tuple(field for field in self.fields if field.position is not None and field.size is not None)

    @cached_property
    def size(self) -> int | None:
        """Size in bytes; None if it varies."""
        return size_of(self.struct)

    def position(self, name: str) -> int:
        """Position in bytes of a field before everything that varies."""
        (field,) = (field for field in self.fixed_fields if field.name == name)
        assert field.position is not None
        return field.position

    @cached_property
    def struct_code(self) -> str:
        """The fixed fields as a format string of the `struct` module."""
        return ">" + "".join(field.code or "" for field in self.fixed_fields)

    @cached_property
    def dtype(self) -> numpy.dtype[Any]:
        """The fixed fields as a packed numpy dtype, big-endian."""
        import numpy as np

        return np.dtype(
            [(field.name, f">i{field.size}" if field.is_integer else f"V{field.size}") for field in self.fixed_fields]
        )


def fields_of(struct: construct.Struct) -> tuple[Field, ...]:
    """The fields of a Struct with their positions, as far as those are fixed; nested Structs become dotted names."""
    fields: list[Field] = []
    position: int | None = 0
    for name, declared, doc in _flat(struct, ""):
        size = size_of(declared)
        code = f"{size}s" if size is not None else None
        if isinstance(declared, construct.FormatField):
            code = INTEGER_CODES[declared.length]
        fields.append(Field(name, position, size, code, doc))
        position = None if position is None or size is None else position + size
    return tuple(fields)


def size_of(declared: Any) -> int | None:
    """Size in bytes of a declaration, None if it depends on the data."""
    try:
        return int(declared.sizeof())
    except construct.SizeofError:
        return None


def size_before(name: str, tail_size: int) -> Callable[[Any], int]:
    """Size of a field without a length of its own, which `tail_size` bytes follow to the end of the data."""

    def size(context: Any) -> int:
        if name in context:  # is built
            return len(context[name])
        stream: io.BytesIO = context._io  # noqa: SLF001 - construct's own name
        position = stream.tell()
        end = stream.seek(0, io.SEEK_END)
        stream.seek(position)
        return max(0, end - position - tail_size)

    return size


def _flat(struct: construct.Struct, prefix: str) -> list[tuple[str, Any, str]]:
    rows: list[tuple[str, Any, str]] = []
    for member in struct.subcons:
        inner = member
        while isinstance(inner, construct.Renamed | construct.Rebuild):
            inner = inner.subcon
        if isinstance(inner, construct.Struct):
            rows += _flat(inner, f"{prefix}{member.name}.")
        else:
            rows.append((prefix + member.name, inner, member.docs))
    return rows

"""The declared formats as rows, and as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Final

from rmqtool.formats.catalog import FORMATS
from rmqtool.formats.layout import Field, Format
from rmqtool.formats.text_formats import TEXT_FORMATS, TextFormat
from rmqtool.report.rows import DumpRow
from rmqtool.report.text import field_lines

LAYOUT_FIELDS: Final = ("format", "position", "size", "type", "name", "doc")
LIST_FIELDS: Final = ("name", "title", "size", "source")
AnyFormat = Format | TextFormat
ALL_FORMATS: Final[tuple[AnyFormat, ...]] = (*FORMATS, *TEXT_FORMATS)
_DOC_WIDTH_MIN: Final = 24
_DOC_INDENT: Final = 10
_TYPES: Final = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def list_rows() -> Iterator[DumpRow]:
    """One row for each format."""
    for declared in ALL_FORMATS:
        yield {"name": declared.name, "title": declared.title, "size": _size(declared), "source": declared.source}


def layout_rows(declared: AnyFormat) -> Iterator[DumpRow]:
    """One row for each field of a format."""
    if isinstance(declared, TextFormat):
        for name, doc in declared.fields:
            row = {"format": declared.name, "position": None, "size": None, "type": declared.kind}
            yield row | {"name": name, "doc": doc}
        return
    for field in declared.fields:
        yield {
            "format": declared.name,
            "position": field.position,
            "size": field.size,
            "type": type_of(field),
            "name": field.name,
            "doc": field.doc,
        }


def layout_object(declared: AnyFormat) -> dict[str, Any]:
    """A format as one object, its fields inside."""
    return {
        "name": declared.name,
        "title": declared.title,
        "source": declared.source,
        "size": _size(declared),
        "about": declared.about,
        "fields": [{name: row[name] for name in LAYOUT_FIELDS[1:]} for row in layout_rows(declared)],
    }


def type_of(field: Field) -> str:
    """int8 to int64, or bytes."""
    return _TYPES.get(field.size or 0, "bytes") if field.is_integer else "bytes"


def list_lines(width: int | None) -> Iterator[str]:
    """The list of formats as text; in a narrow terminal without the broker's class."""
    names = max(len(declared.name) for declared in ALL_FORMATS)
    titles = max(len(declared.title) for declared in ALL_FORMATS)
    wide = width is None or width >= names + titles + 60
    for declared in ALL_FORMATS:
        size = str(_size(declared) or "varies")
        text = f"{declared.title:<{titles}}  {declared.source}" if wide else declared.title
        yield from field_lines(f"{declared.name:<{names}}  {size:>6}", text, names + 8, None if wide else width)


def layout_lines(declared: AnyFormat, width: int) -> Iterator[str]:
    """One format as text, its doc texts wrapped to the terminal."""
    size = "size varies" if _size(declared) is None else f"{_size(declared)} bytes"
    yield from textwrap.wrap(f"{declared.name}: {declared.title}, {size}", width)
    yield from textwrap.wrap(f"written by {declared.source}", width)
    yield from textwrap.wrap(declared.about, width) if declared.about else ()
    yield ""
    if isinstance(declared, TextFormat):
        indent = max(len(name) for name, _ in declared.fields) + 2
        indent = indent if width - indent >= _DOC_WIDTH_MIN else _DOC_INDENT
        yield f"{'name':<{indent}}meaning"
        for name, doc in declared.fields:
            yield from textwrap.wrap(f"{name:<{indent}}{doc}", width, subsequent_indent=" " * indent)
        return
    names = max(len(field.name) for field in declared.fields)
    begins = 8 + 2 + 5 + 2 + 5 + 2 + names + 2
    # Beside the field, or below it where that leaves no room.
    indent = begins if width - begins >= _DOC_WIDTH_MIN else _DOC_INDENT
    heading = f"position   size  type   {'name':<{names}}"
    yield f"{heading}  meaning" if indent == begins else heading.rstrip()
    for field in declared.fields:
        position = "" if field.position is None else str(field.position)
        length = "" if field.size is None else str(field.size)
        begin = f"{position:>8}  {length:>5}  {type_of(field):<5}  {field.name:<{names}}  "
        docs = textwrap.wrap(field.doc, width - indent) or [""]
        if indent != begins:
            docs = ["", *docs]
        yield (begin + docs[0]).rstrip()
        yield from (" " * indent + line for line in docs[1:])


def _size(declared: AnyFormat) -> int | None:
    return declared.size if isinstance(declared, Format) else None

"""The declared formats as rows, as text for a terminal, and as the documentation page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rmqtool.formats.catalog import FORMATS
from rmqtool.formats.layout import Field, Format
from rmqtool.formats.system_flag import BIT_DOCS
from rmqtool.report.rows import DumpRow
from rmqtool.report.text import cropped

LAYOUT_FIELDS: Final = ("format", "position", "size", "type", "name", "doc")
LIST_FIELDS: Final = ("name", "title", "size", "source")
_TYPES: Final = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}

PAGE_HEAD: Final = """\
# Formats

Every structure in a broker's store, field by field; made by `python -m rmqtool.report.docs` from the declarations
that the tool reads with. `rmqtool formats NAME` shows one of them on the terminal.

All integers are signed and big-endian. Positions and sizes are bytes; a position behind something of variable length
depends on the data and is left out.
"""


def list_rows() -> Iterator[DumpRow]:
    """One row for each format."""
    for declared in FORMATS:
        yield {"name": declared.name, "title": declared.title, "size": declared.size, "source": declared.source}


def layout_rows(declared: Format) -> Iterator[DumpRow]:
    """One row for each field of a format."""
    for field in declared.fields:
        yield {
            "format": declared.name,
            "position": field.position,
            "size": field.size,
            "type": type_of(field),
            "name": field.name,
            "doc": field.doc,
        }


def layout_object(declared: Format) -> dict[str, Any]:
    """A format as one object, its fields inside."""
    return {
        "name": declared.name,
        "title": declared.title,
        "source": declared.source,
        "size": declared.size,
        "about": declared.about,
        "fields": [{name: row[name] for name in LAYOUT_FIELDS[1:]} for row in layout_rows(declared)],
    }


def type_of(field: Field) -> str:
    """int8 to int64, or bytes."""
    return _TYPES.get(field.size or 0, "bytes") if field.is_integer else "bytes"


def list_lines(width: int) -> Iterator[str]:
    """The list of formats as text; in a narrow terminal without the broker's class."""
    names = max(len(declared.name) for declared in FORMATS)
    titles = max(len(declared.title) for declared in FORMATS)
    wide = width >= names + titles + 60
    for declared in FORMATS:
        size = "varies" if declared.size is None else str(declared.size)
        line = f"{declared.name:<{names}}  {size:>6}  {declared.title:<{titles}}"
        yield cropped((f"{line}  {declared.source}" if wide else line).rstrip(), width)


def layout_lines(declared: Format, width: int) -> Iterator[str]:
    """One format as text, its doc texts wrapped to the terminal."""
    import textwrap

    size = "size varies" if declared.size is None else f"{declared.size} bytes"
    yield f"{declared.name}: {declared.title}, {size}"
    yield f"written by {declared.source}"
    yield from textwrap.wrap(declared.about, width) if declared.about else ()
    yield ""
    names = max(len(field.name) for field in declared.fields)
    yield f"position   size  type   {'name':<{names}}  meaning"
    for field in declared.fields:
        position = "" if field.position is None else str(field.position)
        length = "" if field.size is None else str(field.size)
        begin = f"{position:>8}  {length:>5}  {type_of(field):<5}  {field.name:<{names}}  "
        docs = textwrap.wrap(field.doc, max(20, width - len(begin))) or [""]
        yield (begin + docs[0]).rstrip()
        yield from (" " * len(begin) + line for line in docs[1:])


def page() -> str:
    """The documentation page of all formats."""
    parts = [PAGE_HEAD]
    parts += [_section(declared) for declared in FORMATS]
    rows = [(f"`{bit:#05x}`", f"`{name}`", doc) for bit, name, doc in BIT_DOCS]
    parts.append(
        "## Bits of sys_flag\n\nBroker: `MessageSysFlag`.\n\n" + _table(("Bits", "Broker's name", "Meaning"), rows)
    )
    return "\n".join(parts)


def _section(declared: Format) -> str:
    size = "size varies" if declared.size is None else f"{declared.size} bytes"
    about = f"\n\n{declared.about}" if declared.about else ""
    rows = [
        (
            "" if field.position is None else str(field.position),
            "" if field.size is None else str(field.size),
            type_of(field),
            f"`{field.name}`",
            field.doc,
        )
        for field in declared.fields
    ]
    table = _table(("Position", "Size", "Type", "Field", "Meaning"), rows)
    return f"## {declared.name}\n\n{declared.title}, {size}. Broker: `{declared.source}`.{about}\n\n{table}"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)

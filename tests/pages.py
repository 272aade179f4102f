"""The pages of docs/ that follow from declarations: `python -m tests.pages` writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from rmqtool.findings.finding import FindingType
from rmqtool.findings.registry import CATALOG
from rmqtool.formats.catalog import FORMATS
from rmqtool.formats.layout import Format
from rmqtool.formats.system_flag import BIT_DOCS
from rmqtool.formats.text_formats import TEXT_FORMATS
from rmqtool.report.layouts import type_of
from tests.verify.unprotected_fields import TABLE

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
FINDINGS_HEAD: Final = """# Findings

Everything that `rmqtool verify` reports about a store. *Error*: data is lost or cannot be read. *Warning*: derived data
is wrong and can be rebuilt, or a broker would do something that you should know. *Note*: expected. If a repair names no
command, no command of this version makes it. The page is made by `python -m tests.pages`
from the catalog in `rmqtool/verify`.
"""

FORMATS_HEAD: Final = """\
# Formats

Every structure in a broker's store, field by field. `rmqtool formats NAME` shows one of them on the terminal. Made by
`python -m tests.pages` from the declarations with which rmqtool reads.

All integers are signed and big-endian. Positions and sizes are bytes. A position after a field of variable length
depends on the data and is left out.

Text comes after the binary structures: [JSON objects and lines](#text).
"""

TEXT_HEAD: Final = """
## Text

JSON objects, and files of lines. Brokers write them with a library, and read a laxer grammar than JSON's own.
`rmqtool dump` shows `config/*.json` as a broker reads them, and `--pop` and `--transactions` what the bodies mean.
"""

UNPROTECTED_HEAD: Final = """# Unprotected fields

Tests flip each bit of a store, one at a time, and run `rmqtool verify`. It finds every flip, except those in these
fields.

| File | Field | Bits | Why |
| --- | --- | --- | --- |
"""


def findings_page() -> str:
    """Everything that verify can say, from its catalog."""
    parts = [FINDINGS_HEAD]
    for place, entries in groupby(CATALOG, lambda entry: entry.id.partition(".")[0]):
        parts.append(f"## `{place}`\n")
        parts.extend(map(_finding, entries))
    return "\n".join(parts)


def _finding(entry: FindingType) -> str:
    lines = [f"### {entry.id}", "", f"{entry.severity.value.capitalize()}. {entry.meaning}", "", "What brokers do:", ""]
    lines += [f"- {versions}: {text}" for versions, text in entry.brokers]
    command = f" (`rmqtool {entry.repair} STORE`)" if entry.repair else ""
    lines += ["", f"Repair: {entry.remedy}{command}."]
    if entry.upstream:
        threads = ", ".join(
            f"[{thread}](https://github.com/{thread.replace('#', '/issues/')})" for thread in entry.upstream
        )
        lines += ["", f"Reported: {threads}"]
    return "\n".join([*lines, ""])


def formats_page() -> str:
    """The documentation page of all formats."""
    parts = [FORMATS_HEAD]
    parts += [_format(declared) for declared in FORMATS]
    rows = [(f"`{bit:#05x}`", f"`{name}`", doc) for bit, name, doc in BIT_DOCS]
    parts.append(
        "## Bits of sys_flag\n\nBroker: `MessageSysFlag`.\n\n" + _table(("Bits", "Broker's name", "Meaning"), rows)
    )
    parts.append(TEXT_HEAD)
    for text in TEXT_FORMATS:
        about = f"\n\n{text.about}" if text.about else ""
        table = _table(("Field", "Meaning"), [(f"`{name}`", doc) for name, doc in text.fields])
        parts.append(f"### {text.name}\n\n{text.title}. Broker: `{text.source}`.{about}\n\n{table}")
    return "\n".join(parts)


def _format(declared: Format) -> str:
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


def unprotected_page() -> str:
    """The fields in which verify cannot find a flipped bit."""
    return UNPROTECTED_HEAD + "".join(f"| `{row.file}` | {row.field} | {row.bits} | {row.why} |\n" for row in TABLE)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "findings.md": findings_page,
    "formats.md": formats_page,
    "unprotected-fields.md": unprotected_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")

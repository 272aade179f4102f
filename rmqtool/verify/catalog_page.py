"""Writes docs/findings.md from the catalogue: `python -m rmqtool.verify.catalog_page [FILE]`."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import Final

from rmqtool.verify.catalog import CATALOG
from rmqtool.verify.entry import Entry

_HEAD: Final = """# Findings

Everything that `rmqtool verify` can say about a store, from the catalogue in `rmqtool/verify`. *Error*: data is lost or
cannot be read. *Warning*: derived data is wrong and can be made anew, or a broker would do something that you should
know of. *Note*: expected. Where a way to mend it names no command, no command of this version does it.
"""


def page() -> str:
    """The page, as Markdown."""
    parts = [_HEAD]
    for place, entries in groupby(CATALOG, lambda entry: entry.id.partition(".")[0]):
        parts.append(f"## {place}\n")
        parts.extend(map(_section, entries))
    return "\n".join(parts)


def _section(entry: Entry) -> str:
    lines = [f"### {entry.id}", "", f"{entry.severity.value.capitalize()}. {entry.meaning}", "", "What brokers do:", ""]
    lines += [f"- {versions}: {text}" for versions, text in entry.brokers]
    command = f" (`rmqtool {entry.repair} STORE`)" if entry.repair else ""
    lines += ["", f"What mends it: {entry.remedy}{command}."]
    if entry.upstream:
        threads = ", ".join(
            f"[{thread}](https://github.com/{thread.replace('#', '/issues/')})" for thread in entry.upstream
        )
        lines += ["", f"Reported: {threads}"]
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> None:
    """Write the page to a file, by default that of the project."""
    Path(arguments[0] if arguments else "docs/findings.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

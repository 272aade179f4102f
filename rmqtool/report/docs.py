"""Writes docs/formats.md anew: `python -m rmqtool.report.docs [FILE]`."""

from __future__ import annotations

import sys
from pathlib import Path

from rmqtool.report.layouts import page


def main(arguments: list[str]) -> None:
    """Write the page of all formats to a file, by default that of the project."""
    Path(arguments[0] if arguments else "docs/formats.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

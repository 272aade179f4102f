"""The terminal that a command writes to: its width, whether it shows colors, and one result shown there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.report.writers import ObjectFormat, OutputFormat, json_text, row_writer

_TEXT_WIDTH: Final = 80
"""Columns of text where no terminal has a width."""


@dataclass(frozen=True)
class Screen:
    """Where the result goes.

    Attributes:
        width: columns of text, which is wrapped.
        table_width: columns of a table, from which more is left out; None where nothing is, in a pipe or file.
    """

    width: int
    table_width: int | None
    color: bool

    @property
    def shows_all(self) -> bool:
        """Whether nothing is left out for want of room."""
        return self.table_width is None


def screen() -> Screen:
    """The screen of standard output: a terminal, or what the variable COLUMNS says; else a pipe or file."""
    is_terminal = sys.stdout.isatty()
    if not is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
        return Screen(_TEXT_WIDTH, None, color=False)
    width = shutil.get_terminal_size((_TEXT_WIDTH, 24)).columns
    color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Screen(width, width, color)


def write_rows(rows: Iterable[dict[str, Any]], output: OutputFormat, fields: Sequence[str]) -> None:
    """Print rows to standard output."""
    writer = row_writer(output.value, sys.stdout, fields, width=screen().table_width)
    for row in rows:
        writer.write(row)
    writer.close()


def show_object(result: dict[str, Any], lines_of: Callable[..., Iterable[str]], form: ObjectFormat) -> None:
    """Print one result to standard output, as JSON or as lines, made from it and a width, with `color` or without."""
    if form is ObjectFormat.TABLE:
        terminal = screen()
        text = "".join(f"{line}\n" for line in lines_of(result, terminal.width, color=terminal.color))
    else:
        text = json_text(result, indent=2 if form is ObjectFormat.JSON else None) + "\n"
    sys.stdout.write(text)

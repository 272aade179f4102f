"""What a command knows of the terminal it writes to: its width and whether it shows colours."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Screen:
    """Where the result goes."""

    width: int
    colour: bool


def screen() -> Screen:
    """The screen of standard output; without a terminal 80 columns (or COLUMNS), and no colour."""
    width = shutil.get_terminal_size((80, 24)).columns
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Screen(width, colour)

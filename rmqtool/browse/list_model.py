"""Content of a list on the screen: lines by their number, read when they come into sight."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from rmqtool.report.text import columns_of

Row = TypeVar("Row")
BAD: Final = "bad"
FAINT: Final = "faint"
STRONG: Final = "strong"
PLAIN: Final = ""


class Line(NamedTuple):
    """A line of a list.

    Attributes:
        text: may be anything; the screen escapes it.
        style: one of the styles of this file.
    """

    text: str
    style: str = PLAIN


class ListModel(Protocol):
    """The lines of a list."""

    def count(self) -> int:
        """Number of lines, as far as it is known."""

    def heading(self, width: int) -> str | None:
        """Line above the list; None without one."""

    def line(self, row: int, width: int) -> Line | None:
        """A line; None where it is still to be read."""

    def is_read(self, first: int, count: int) -> bool:
        """True if all lines of a range can be shown."""

    def read(self, first: int, count: int) -> None:
        """Read a range; called in a thread of its own, one call at a time, and never raises for what is in a store."""


class ReadyList:
    """A list whose lines are there already."""

    def is_read(self, first: int, count: int) -> bool:
        del first, count
        return True

    def read(self, first: int, count: int) -> None:
        """Nothing is left to be read."""


class Lines(ReadyList):
    """A list of lines."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines

    def count(self) -> int:
        return len(self.lines)

    def heading(self, width: int) -> str | None:
        del width
        return None

    def line(self, row: int, width: int) -> Line | None:
        del width
        return self.lines[row]


class Pages(Generic[Row]):
    """The rows that were read last, in pages of a fixed length; older ones are forgotten."""

    ROWS: Final = 64
    PAGES_MAX: Final = 64

    def __init__(self) -> None:
        self._pages: OrderedDict[int, Sequence[Row]] = OrderedDict()

    def row(self, number: int) -> Row | None:
        """A row; None where its page is not there."""
        page = self._pages.get(number // self.ROWS)
        within = number % self.ROWS
        return page[within] if page is not None and within < len(page) else None

    def missing(self, first: int, count: int) -> list[int]:
        """Numbers of the pages that a range needs and that are not there."""
        numbers = range(first // self.ROWS, (first + max(count, 1) - 1) // self.ROWS + 1)
        return [number for number in numbers if number not in self._pages]

    def put(self, page: int, rows: Sequence[Row]) -> None:
        """Take a page, and forget the oldest one where there are too many."""
        self._pages[page] = rows
        while len(self._pages) > self.PAGES_MAX:
            self._pages.popitem(last=False)


def wrapped(text: str, width: int) -> list[str]:
    """Escaped text in lines of at most so many columns, cut anywhere."""
    if text.isascii():
        return [text[at : at + width] for at in range(0, len(text), width)] or [""]
    lines, start, used = [], 0, 0
    for at, character in enumerate(text):
        columns = columns_of(character)
        if used + columns > width and at > start:
            lines.append(text[start:at])
            start, used = at, 0
        used += columns
    return [*lines, text[start:]]

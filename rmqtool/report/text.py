"""Text that came out of a store, made safe for a terminal: nothing that moves a cursor, hides or turns text round.

Whatever Unicode does not call printable is escaped: control codes (terminal sequences begin with one), direction marks,
zero-width characters, half surrogates, unassigned ones. Spaces other than the plain one are escaped too.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator
from typing import Final

ELLIPSIS: Final = "…"
_PLAIN: Final = "\x1b[0m"
_STYLES: Final = {"bad": "\x1b[1;31m", "good": "\x1b[1;32m", "open": "\x1b[1;33m", "bold": "\x1b[1m"}
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SUSPECT: Final = re.compile(r"[^ -~]")


def escaped(text: str) -> str:
    r"""The text with everything that is not printable as `\n`, `\x1b`, `\u202e`, `\U000e0001`."""
    return text if text.isprintable() else _SUSPECT.sub(_escape, text)


def json_escaped(text: str) -> str:
    r"""JSON text of one line with all that is not printable as `\uXXXX`, which means the same inside its strings."""
    return text if text.isprintable() else _SUSPECT.sub(_json_escape, text)


def columns_of(text: str) -> int:
    """Columns that escaped text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cropped(text: str, width: int) -> str:
    """The text in at most `width` columns, its end replaced by an ellipsis where it does not fit."""
    if columns_of(text) <= width:
        return text
    if width <= 0:
        return ""
    kept, used = [], 0
    for character in text:
        used += _width(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text filled up with spaces to `width` columns."""
    fill = " " * (width - columns_of(text))
    return fill + text if right else text + fill


def labelled(label: str, text: str, width: int, label_width: int = 16) -> Iterator[str]:
    """Text beside its label, wrapped; nothing where there is no text."""
    if text:
        lines = textwrap.wrap(escaped(text), width - label_width, break_on_hyphens=False)
        for number, line in enumerate(lines):
            yield f"{label if number == 0 else '':<{label_width}}{line}"


def field_lines(name: str, text: str, name_width: int, width: int | None) -> Iterator[str]:
    """A field's name and value, escaped already, which is wrapped in a terminal; a word, maybe an id, stays whole."""
    begin = f"{name:<{name_width}}  "
    room = None if width is None else max(20, width - len(begin))
    fits = room is None or columns_of(text) <= room
    lines = (
        [text] if fits or room is None else textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    )
    for number, line in enumerate(lines or [""]):
        yield ((begin if number == 0 else " " * len(begin)) + line).rstrip()


def styled(text: str, style: str, *, color: bool) -> str:
    """The text in a style (bad, good, open, bold), where the terminal shows colors."""
    return f"{_STYLES[style]}{text}{_PLAIN}" if color and style in _STYLES else text


def headline(text: str, style: str, width: int, *, color: bool) -> Iterator[str]:
    """A verdict as the first lines of a screen."""
    for line in textwrap.wrap(text, width):
        yield styled(line, style, color=color)


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size_text(byte_count: int) -> str:
    """A size as a person reads it, with the unit in which it has at most four digits."""
    amount, unit = float(byte_count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{byte_count} bytes" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def _json_escape(match: re.Match[str]) -> str:
    character = match.group()
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1

"""A properties file as `java.util.Properties#load` reads it, and its values as Java parses numbers and truth values."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_BLANKS: Final = " \t\f"
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX: Final = re.compile("[0-9A-Fa-f]{4}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?P<word>NaN|Infinity)"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_TRIMMED: Final = "".join(map(chr, range(0x21)))


class MalformedEscapeError(ValueError):
    """A backslash and `u` without four hexadecimal digits: Java refuses the whole file."""


def parse_properties(content: bytes) -> dict[str, str]:
    """The properties of a file, which is Latin-1; of equal names the last counts.

    Raises:
        MalformedEscapeError: Java reads none of it.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(content.decode("latin-1")):
        name_end, is_escaped = 0, False
        while name_end < len(line) and (is_escaped or line[name_end] not in f"=:{_BLANKS}"):
            is_escaped = line[name_end] == "\\" and not is_escaped
            name_end += 1
        value_start, has_sign = name_end, False
        while value_start < len(line):
            if line[value_start] in "=:" and not has_sign:
                has_sign = True
            elif line[value_start] not in _BLANKS:
                break
            value_start += 1
        properties[_unescaped(line[:name_end])] = _unescaped(line[value_start:])
    return properties


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, and continued ones joined; only the start of a joined line can be a comment."""
    line = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        part = natural.lstrip(_BLANKS)
        if not line and part[:1] in ("", "#", "!"):
            continue
        line += part
        is_continued = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        if is_continued:
            line = line[:-1]
        elif line:
            yield line
            line = ""
    if line:
        yield line


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    characters, at = [], 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\" or at == len(text):
            characters.append(character)
            continue
        character = text[at]
        at += 1
        if character != "u":
            characters.append(_ESCAPED.get(character, character))
            continue
        digits = text[at : at + 4]
        if _HEX.fullmatch(digits) is None:
            raise MalformedEscapeError(f"\\u{digits}")
        characters.append(chr(int(digits, 16)))
        at += 4
    return "".join(characters).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def java_trim(text: str) -> str:
    """`String#trim`: without the blanks and control characters at both ends."""
    return text.strip(_TRIMMED)


def parse_java_integer(text: str, bits: int) -> int | None:
    """`Integer#parseInt` (32 bits) or `Long#parseLong` (64); digits of any script, no blanks. None where it throws."""
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not digits:
        return None
    number = 0
    for digit in digits:
        value = unicodedata.decimal(digit, -1) if digit <= "\uffff" else -1
        if value < 0:
            return None
        number = min(10 * number + value, 1 << 64)
    number = -number if sign == "-" else number
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def parse_java_double(text: str) -> float | None:
    """`Double#parseDouble`; None where it throws."""
    match = _DOUBLE.fullmatch(java_trim(text))
    if match is None:
        return None
    sign = -1.0 if text.lstrip(_TRIMMED).startswith("-") else 1.0
    if match["word"] is not None:
        return sign * float(match["word"])
    if match["decimal"] is not None:
        return sign * float(match["decimal"])
    try:
        return sign * float.fromhex(match["hex"])
    except OverflowError:
        return sign * float("inf")


def parse_java_boolean(text: str) -> bool:
    """`Boolean#parseBoolean`: all but "true" is false, also a "true" with a blank beside it."""
    return text.lower() == "true"

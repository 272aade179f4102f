"""Edits of files that cross a door: bytes that are cut, joined and swapped, and JSON with what no writer would say."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final

from tests.fuzz.edits import edit_bytes

DEPTH: Final = 100_000
DIGITS: Final = 1 << 20
LONG_TEXT: Final = 1 << 18
NUMBERS: Final = (-1, 0, 1, 7, 255, 1 << 31, (1 << 31) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64,
                  10**30, 10**400, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), -float("inf"))  # fmt: skip
TEXTS: Final = ("", " ", "x", "a" * 255, "a" * 300, "../../x", "/etc/passwd", "/dev/zero", "\0", "\ud800",
                "\udcff", "\x1b[31m", "\u202e", "true", "1e999", "-0", "%RETRY%", "a@b@c", "1:2:3", "=1+1",
                "[" * 2000)  # fmt: skip
SHAPES: Final[tuple[Any, ...]] = (None, True, False, [], {}, [[]], [None], {"": 0}, {"x": {}}, [[[[[[0]]]]]])


def edited_bytes(chosen: random.Random, raw: bytes, others: tuple[bytes, ...] = ()) -> bytes:
    """One to five edits; half of the time in what is no zero."""
    edited = bytearray(raw)
    for _ in range(chosen.choice((1, 1, 1, 2, 5))):
        roll = chosen.random()
        if roll < 0.7 and edited:
            end = max(len(edited.rstrip(b"\0")), 1) if chosen.random() < 0.5 else len(edited)
            edit_bytes(chosen, edited, 0, end)
        elif roll < 0.8:
            del edited[int(chosen.random() * (len(edited) + 1)) :]
        elif roll < 0.88:
            begin, count = int(chosen.random() * (len(edited) + 1)), int(chosen.random() ** 3 * 4000)
            edited[begin:begin] = edited[:count] if chosen.random() < 0.5 else chosen.randbytes(count)
        elif roll < 0.96:
            source = chosen.choice(others) if others else bytes(edited)
            cut, begin = int(chosen.random() * (len(edited) + 1)), int(chosen.random() * (len(source) + 1))
            edited[cut:] = source[begin:]
        else:
            edited[:] = chosen.choice((b"", b"\0" * 100, b"\n", b"\xff" * 64, chosen.randbytes(300), b"\x1f\x8b" + raw))
    return bytes(edited)


def edited_json(chosen: random.Random, text: bytes) -> bytes:
    """A document with one to four other values; else its text with what JSON readers fall over."""
    if chosen.random() < 0.3:
        return _odd_text(chosen, text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return edited_bytes(chosen, text)
    for _ in range(chosen.choice((1, 1, 2, 4))):
        document = edited_value(chosen, document)
    return _encoded(json.dumps(document))


def edited_value(chosen: random.Random, document: Any) -> Any:
    """The document with one value changed, moved, doubled or gone."""
    places = list(_places(document))
    if not places:
        return chosen.choice(SHAPES)
    holder, key = chosen.choice(places)
    roll = chosen.random()
    value = holder[key]
    if chosen.random() < 0.4 and isinstance(value, (str, int, float)):
        # A value of the same type goes further than one that a schema refuses.
        if isinstance(value, bool):
            holder[key] = not value
        elif isinstance(value, str):
            holder[key] = chosen.choice((*TEXTS, value[:-1], value + "\0", value * 2, value.upper()))
        else:
            holder[key] = chosen.choice((value + 1, -value, *(number for number in NUMBERS if isinstance(number, int))))
    elif roll < 0.3:
        holder[key] = chosen.choice(NUMBERS)
    elif roll < 0.45:
        holder[key] = chosen.choice(TEXTS)
    elif roll < 0.6:
        holder[key] = copy.deepcopy(chosen.choice(SHAPES))
    elif roll < 0.7:
        del holder[key]
    elif roll < 0.8:
        other, name = chosen.choice(places)
        holder[key] = copy.deepcopy(other.get(name) if isinstance(other, dict) else other[min(name, len(other) - 1)])
    elif roll < 0.9 and isinstance(holder, dict):
        holder[str(chosen.choice((*NUMBERS[:12], *TEXTS)))] = holder.pop(key)
    elif isinstance(holder, list):
        holder += copy.deepcopy(holder[:50])
    else:
        holder[key] = [copy.deepcopy(holder[key])] * chosen.choice((1, 2, 300))
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield document, key
            yield from _places(value)
    elif isinstance(document, list):
        for number, value in enumerate(document[:200]):
            yield document, number
            yield from _places(value)


def _odd_text(chosen: random.Random, text: bytes) -> bytes:
    value = chosen.choice((
        b"9" * DIGITS, b"-" + b"9" * DIGITS, b"0." + b"9" * DIGITS, b"1e" + b"9" * 400, b"1e999999999", b"9" * 5000,
        b"[" * DEPTH, b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH, b'{"a":[' * (DEPTH // 2),
        b'"' + b"a" * LONG_TEXT + b'"', b'"\\ud800"', b'"\\u0000"', b"NaN", b"-Infinity", b"'x'", b"0x10", b"tru",
        b'{"a":1,"a":2}', b"[1,]", b'"\xff\xfe"', b"/*" + b"*" * 5000, b"01", b"+1", b"1L", b"1.D", b"''", b"", b",",
    ))  # fmt: skip
    if chosen.random() < 0.3:
        return chosen.choice(
            (value, b"\xef\xbb\xbf" + text, text + value, text + text, text[: len(text) // 2], b" " * 9999)
        )
    # In place of a value, behind a colon; or anywhere.
    colons = [at + 1 for at in range(len(text)) if text[at : at + 1] == b":"]
    begin = chosen.choice(colons) if colons and chosen.random() < 0.8 else int(chosen.random() * (len(text) + 1))
    end = begin
    while end < len(text) and text[end : end + 1] not in (b",", b"}", b"]", b"\n"):
        end += 1
    return text[:begin] + value + text[end:]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

"""Parses JSON as fastjson writes and reads it: unquoted keys, numbers as keys, single quotes, stray commas, comments.

A broker's maps with integer keys come out as `{0:12,1:13}`, which is neither JSON nor JSON5. Nesting is kept
on a list and not on Python's stack, and bounded, so that no input ends in a recursion error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

DEPTH_MAX: Final = 64
"""Objects and lists within each other; brokers write five."""

_TOKEN: Final = re.compile(
    r"""(?P<space>(?:[ \t\r\n\f\b]|//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/)++)
    |(?P<mark>[{}\[\]:,])
    |"(?P<double>(?:[^"\\]|\\.)*+)"
    |'(?P<single>(?:[^'\\]|\\.)*+)'
    |(?P<float>[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d{1,5})?(?![\w.$]))
    |(?P<integer>[+-]?\d{1,40}(?=L?(?![\w.$])))L?
    |(?P<word>(?:[^\W\d]|\$)[\w$]*+)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_ITSELF: Final = frozenset("\"'/\\")
"""Characters that stand for themselves after a backslash; others are no escape."""
_ESCAPED: Final = {"b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_WORDS: Final = {"true": True, "false": False, "null": None, "undefined": None, "NaN": None}

_Key = str | int
_Token = tuple[str, Any, int]
_END: Final = ""


class JsonError(ValueError):
    """The text is not JSON, not even in the broker's dialect; says where."""


def parse_relaxed_json(text: str) -> Any:
    """The value of a text; unquoted integer keys become `int`, all other keys `str`, and of equal keys the last counts.

    Raises:
        JsonError: it is no such JSON, is cut off, or nested deeper than `DEPTH_MAX`.
    """
    tokens, root = _tokens(text), list[Any]()
    containers: list[dict[_Key, Any] | list[Any]] = [root]  # not closed yet, the innermost at the end
    _begin_value(next(tokens), containers)
    token: _Token = ("mark", "", 0)
    while len(containers) > 1:
        inner = containers[-1]
        before, token = token, next(tokens)
        if token[:2] == ("mark", ","):
            if before[:2] == ("mark", ",") and isinstance(inner, dict):
                raise _unexpected(token)  # fastjson skips one, also before the end
            continue
        if token[1] == ("}" if isinstance(inner, dict) else "]") and token[0] == "mark":
            containers.pop()
        elif isinstance(inner, dict):
            kind, key, _ = token
            if kind not in {"text", "word", "integer", "float"}:
                raise _unexpected(token)
            colon = next(tokens)
            if colon[:2] != ("mark", ":"):
                raise _unexpected(colon)
            _begin_value(next(tokens), containers, str(key) if kind == "float" else key)
        else:
            _begin_value(token, containers)
    end = next(tokens)
    if end[0] != _END:
        raise _unexpected(end)
    return root[0]


def _begin_value(token: _Token, containers: list[dict[_Key, Any] | list[Any]], key: _Key = "") -> None:
    kind, value, at = token
    if kind == "mark" and value in "{[":
        value = {} if value == "{" else []
    elif kind == "word" and value in _WORDS:
        value = _WORDS[value]
    elif kind not in {"text", "integer", "float"}:
        raise _unexpected(token)
    if isinstance(inner := containers[-1], dict):
        inner[key] = value
    else:
        inner.append(value)
    if isinstance(value, dict | list):
        if len(containers) > DEPTH_MAX:
            raise JsonError(f"nested deeper than {DEPTH_MAX} at character {at}")
        containers.append(value)


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise JsonError(f"unexpected {text[at : at + 10]!r} at character {at}")
        kind = match.lastgroup or _END
        if kind in {"double", "single"}:
            yield "text", _unescape(match[kind]), at
        elif kind == "integer":
            yield kind, int(match[kind]), at
        elif kind == "float":
            yield kind, float(match[kind]), at
        elif kind != "space":
            yield kind, match[kind], at
        at = match.end()
    while True:
        yield _END, "", at


def _unexpected(token: _Token) -> JsonError:
    kind, value, at = token
    if kind == _END:
        return JsonError(f"incomplete at character {at}")
    return JsonError(f"unexpected {str(value)[:20]!r} at character {at}")


def _unescape(text: str) -> str:
    """Two escapes that are the halves of a pair make one character; a lone half stays."""
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_character, text)
    return _PAIR.sub(lambda match: match[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be"), text)


def _character(match: re.Match[str]) -> str:
    if match[1] or match[2]:
        return chr(int(match[1] or match[2], 16))
    if match[3] not in _ESCAPED and match[3] not in _ITSELF:
        raise JsonError(f"unknown escape {match[0]!r}")
    return _ESCAPED.get(match[3], match[3])

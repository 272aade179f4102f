"""Parts of an answer that a bundle shows: texts with its names, and no number that may be a part of a message."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

_NUMBER_MAX: Final = 1 << 48
"""Beyond every offset, size and time that a broker has; eight bytes of a text are more."""
_BEYOND: Final = (1 << 63) - 1
"""Stands for all numbers beyond."""
_DIGITS: Final = re.compile(r"(?<![0-9])(?!0|(?:19|20)[0-9]{15}(?![0-9]))[0-9]{15,}", re.ASCII)
"""Long numbers; those with zeros before them, and times to the millisecond, are names of a broker's files."""
_QUOTED: Final = re.compile(r"(?<!\w)(['\"]).*\1(?!\w)", re.DOTALL)
"""Quoted text of a file, up to the sentence's last quote, as the text may have quotes, too."""
_NO_TEXTS: Final = frozenset({"id", "broker_version", "mode", "upstream"})
_NO_SENTENCES: Final = frozenset({"command", "repair", "file", "topic"})
"""Texts that quote nothing of a file."""


def with_bounds(value: Any) -> Any:
    """Replace each number that no broker writes by `_BEYOND`, and remove quoted text."""
    return shown(value, lambda text: text)


def shown(value: Any, text: Callable[[str], str]) -> Any:
    """Replace texts, except names of fields, findings and versions, and keep numbers within bounds.

    Args:
        value: objects, lists and dataclasses within each other.
    """
    if type(value) is str:
        unquoted = _QUOTED.sub("'…'", text(value))
        return _DIGITS.sub(lambda match: match[0] if int(match[0]) < _NUMBER_MAX else str(_BEYOND), unquoted)
    if type(value) is int:
        return value if abs(value) < _NUMBER_MAX else _BEYOND if value > 0 else -_BEYOND
    if is_dataclass(value) and not isinstance(value, type):
        own = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in _NO_TEXTS}
        texts = {name: text(one) for name, one in own.items() if name in _NO_SENTENCES and isinstance(one, str)}
        return replace(value, **{name: shown(one, text) for name, one in own.items()} | texts)
    if isinstance(value, dict):
        return {name: shown(one, text) for name, one in value.items()}
    return type(value)(shown(one, text) for one in value) if isinstance(value, list | tuple) else value

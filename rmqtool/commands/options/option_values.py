"""What the words of options mean: durations, and pairs of a name and a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rmqtool.errors import UsageError

_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def is_duration(text: str) -> bool:
    """Whether `duration_s` takes a text."""
    return _DURATION.fullmatch(text) is not None


def duration_s(text: str, option: str) -> float:
    """Seconds of a duration: 90s, 20m, 2h, 1d; without a unit they are seconds.

    Raises:
        UsageError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{option}: {text!r} is not a duration such as 90s, 20m or 2h")
    return float(int(match[1]) * _SECONDS[match[2]])


def pairs(texts: Iterable[str], option: str, form: str = "NAME=VALUE") -> Iterator[tuple[str, str]]:
    """Names and values of an option that may be given several times.

    Raises:
        UsageError: a text has no name, or no equals sign.
    """
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option}: {text!r} is not {form}")
        yield name, value

"""What the words of options mean: durations, numbers of bytes, and pairs of a name and a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rmqtool.errors import UsageError

_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZE: Final = re.compile(r"(\d{1,15})\s?(?:([KMGT])(iB|B)?)?", re.IGNORECASE)
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


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


def byte_count(text: str | None, option: str) -> int | None:
    """What was typed for an option that takes a size: 20M and 20MiB are 20 * 1024 * 1024, 20MB is 20 * 1000 * 1000.

    None stays None.

    Raises:
        UsageError: it is no size.
    """
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option}: {text!r} is not a number of bytes such as 20M or 1048576")
    unit, suffix = (match[2] or "").upper(), (match[3] or "").upper()
    count = int(match[1])
    for _ in range(_POWERS.get(unit, 0)):
        count *= 1000 if suffix == "B" else 1024
    return count


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

"""Numbers of bytes as a person types them."""

from __future__ import annotations

import re
from typing import Final

from rmqtool.errors import UsageError

_SIZE: Final = re.compile(r"(\d{1,15})\s?(?:([KMGT])(iB|B)?)?", re.IGNORECASE)
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


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

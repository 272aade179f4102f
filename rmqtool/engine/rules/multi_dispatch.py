"""Which topics are kept out of multi-dispatch: what the put and the dispatch have in common."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

LMQ_PREFIX: Final = "%LMQ%"


def is_kept_out(topic: str, patterns: Iterable[str]) -> bool:
    """Whether a topic is one of those that a broker version names, `*` standing for any text."""
    return any(fnmatchcase(topic, pattern) for pattern in patterns)

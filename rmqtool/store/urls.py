"""Tells a URL from a path, before anything that a URL needs is imported."""

from __future__ import annotations

import re
from typing import Final

_URL: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(text: str) -> bool:
    """Whether a person names a place on a file system elsewhere."""
    return _URL.match(text) is not None

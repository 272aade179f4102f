"""Makes what a decoder gives out plain JSON of a bounded size: no value of a library or a plugin goes further."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

VALUES_MAX: Final = 100_000
TEXT_MAX: Final = 4 << 20
"""Characters of all texts and names together."""
DEPTH_MAX: Final = 100
_LONG_BITS: Final = 64
"""Integers with more are texts: JSON readers cannot hold them, and Python refuses to print long ones."""
_PRINTED: Final = (Decimal, UUID, timedelta)


def plain_value(value: Any) -> Any:
    """The value with JSON's types only; bytes are base64, times ISO 8601, decimals and numbers beyond 64 bits text.

    Raises:
        ValueError: it is too large, or holds what is no value.
    """
    return _Limits().plain(value, 0)


@dataclass
class _Limits:
    """What is left of the limits."""

    values: int = VALUES_MAX
    text: int = TEXT_MAX

    def plain(self, value: Any, depth: int) -> Any:
        self.values -= 1
        if self.values < 0:
            raise ValueError(f"the result has more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise ValueError(f"the result is nested deeper than {DEPTH_MAX} levels")
        if isinstance(value, Mapping):
            return {self._name(name): self.plain(part, depth + 1) for name, part in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.plain(part, depth + 1) for part in value]
        return self._leaf(value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            number = int(value)
            return number if number.bit_length() <= _LONG_BITS else self._text(hex(number))
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(float(value))
        if isinstance(value, str):
            return self._text(str(value))
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(base64.b64encode(value).decode("ascii"))
        if isinstance(value, (datetime, date, time)):
            return self._text(value.isoformat())
        if isinstance(value, _PRINTED):
            return self._text(str(value))
        raise ValueError(f"the result holds a {type(value).__name__}, which is not a JSON value")

    def _name(self, name: Any) -> str:
        return self._text(name if isinstance(name, str) else str(self._leaf(name)))

    def _text(self, text: str) -> str:
        self.text -= len(text)
        if self.text < 0:
            raise ValueError(f"the result has more than {TEXT_MAX} characters")
        return text

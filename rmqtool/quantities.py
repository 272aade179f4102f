"""Limits of numbers that every room compares with."""

from typing import Final

JAVA_INT_MAX: Final = (1 << 31) - 1
"""The largest `int` of Java."""
JAVA_LONG_MAX: Final = (1 << 63) - 1
"""The largest `long` of Java: no offset and no time in a store is higher."""
OFFSETS_END: Final = 1 << 63
"""After every physical offset that 8 bytes can name."""

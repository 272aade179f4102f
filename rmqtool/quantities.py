"""Limits of numbers that every room compares with."""

from typing import Final

JAVA_INT_MAX: Final = (1 << 31) - 1
"""The largest `int` of Java."""
JAVA_LONG_MAX: Final = (1 << 63) - 1
"""The largest `long` of Java: no offset and no time in a store is higher."""
SEGMENT_START_MAX: Final = JAVA_LONG_MAX - JAVA_INT_MAX
"""The highest offset at which a file of any size still ends at one; no broker lives to write a higher one."""
OFFSETS_END: Final = 1 << 63
"""After every physical offset that 8 bytes can name."""

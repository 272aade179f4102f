"""Lets the C library keep what is freed: bulk work takes and gives back the same megabytes over and over.

glibc hands an array of more than 128 KiB back to the kernel when it is freed, and gets it again, page by page and
cleared, for the next one: a third of the time that a whole `verify` takes.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

# malloc.h of glibc
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 64 << 20
"""Free memory at the heap's end that the process keeps."""
APART_BYTES: Final = 32 << 20
"""Arrays from this size on still go back at once; glibc takes no larger number."""


def keep_freed_memory() -> None:
    """Set it for the whole process, so for one of our own only; where there is no glibc, nothing happens."""
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, APART_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)

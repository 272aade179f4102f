"""Recipients of notices about compilers; a module of its own because it is needed before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ON_COMPILE: Final[list[Callable[[], None]]] = []
"""Are called once, before code is compiled that is not kept from an earlier run: that takes some seconds."""
ON_PLAIN_READING: Final[list[Callable[[], None]]] = []
"""Are called once, before a large log is read without compiled code, for there is no compiler."""

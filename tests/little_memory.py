"""So little memory that all that can goes to files, whatever the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from rmqtool import memory

FREE_BYTES = 1 << 16


@contextmanager
def little_memory(free_bytes: int = FREE_BYTES) -> Iterator[None]:
    """Work has so many bytes, as in a container that leaves nothing; commands that run meanwhile too."""
    before = memory.memory_budget()
    with patch.object(memory, "WORK_LEAST", free_bytes), patch.object(memory, "container_limit", lambda: 0):
        memory.keep_to(None)
        yield
    memory._CURRENT.budget = before

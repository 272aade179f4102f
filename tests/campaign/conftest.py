"""A folder in memory for the stores of a campaign, and a command line that is built once."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign.command import ready_commands


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Path]:
    """In memory where that may be written: thousands of syncs take minutes on a disk."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def _ready() -> Iterator[None]:
    with ready_commands():
        yield

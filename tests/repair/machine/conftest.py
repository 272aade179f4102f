"""Fixtures of the machine that carries plans out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.repair.machine.store_paths import StorePaths
from tests.repair.small_stores import small_store


@pytest.fixture
def places(tmp_path: Path) -> StorePaths:
    """A small store that a test may change."""
    return StorePaths(small_store(tmp_path / "store"))

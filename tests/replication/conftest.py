"""The log that masters in tests send."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replication.mirror_runs import FILE_SIZE

Unpacked = Callable[[str], Path]


@pytest.fixture(scope="session")
def log(golden: Unpacked) -> bytes:
    """Three files of a real broker's log and a part of a fourth, without the zeros after it."""
    files = sorted((golden("5.5.0-clean-basic") / "commitlog").iterdir())
    assert len(files) >= 4
    assert {path.stat().st_size for path in files} == {FILE_SIZE}
    content = b"".join(path.read_bytes() for path in files)
    end = 0
    while size := int.from_bytes(content[end : end + 4], "big"):
        end += size
    return content[:end]

"""`rmqtool fixture make`: a store is there whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.commands.transcripts import rmqtool


@pytest.mark.parametrize("is_new", [True, False])
def test_a_store_that_a_full_disk_cuts_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rmqtool.commands.writing.fixture.Path.write_text", full)  # of the mark, which comes last
    store = tmp_path / "store"
    if not is_new:
        store.mkdir()
    ran = rmqtool("fixture", "make", "crashed", store)
    assert ran.code == 4, ran.err
    assert "no space left on device" in ran.err
    assert store.exists() is not is_new
    assert list(tmp_path.glob("store/*")) == []

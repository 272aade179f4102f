"""`rmqtool fixture make`: a store is there whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmqtool.errors import WriteError
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


def test_what_lies_in_a_directory_stays_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise WriteError("no space left on device")

    monkeypatch.setattr("rmqtool.commands.writing.fixture.make_store", full)
    (tmp_path / "precious").write_bytes(b"1")
    assert rmqtool("fixture", "make", "crashed", tmp_path).code == 4
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]

"""The checkpoint of a store, where it has one that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.formats.checkpoint import Checkpoint, build_checkpoint
from rmqtool.store.checkpoint_file import read_checkpoint, readable_checkpoint
from rmqtool.store.directory import survey
from rmqtool.store.view import DirectoryView


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "commitlog").mkdir()
    return tmp_path


@pytest.mark.parametrize("length", [4096, 48, 10, 0])
def test_a_checkpoint_of_any_length_is_read(store: Path, length: int) -> None:
    raw = build_checkpoint(Checkpoint(1, 2, 3, 4, 5, 6))[:length]
    (store / "checkpoint").write_bytes(raw)
    checkpoint = read_checkpoint(survey(DirectoryView(store)))
    assert checkpoint is not None
    assert build_checkpoint(checkpoint) == raw.ljust(4096, b"\0")


def test_a_store_without_a_checkpoint_has_none(store: Path) -> None:
    assert read_checkpoint(survey(DirectoryView(store))) is None


def test_a_checkpoint_that_went_away_is_an_error_or_none(store: Path) -> None:
    (store / "checkpoint").touch()
    surveyed = survey(DirectoryView(store))
    (store / "checkpoint").unlink()
    assert readable_checkpoint(surveyed) is None
    with pytest.raises(UnreadableError, match="checkpoint"):
        read_checkpoint(surveyed)

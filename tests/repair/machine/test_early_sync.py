"""Files that were built are on the disk once their plan is checked, and a disk that does not take one is heard."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmqtool.errors import WriteError
from rmqtool.repair.machine.digest import BuiltFile
from rmqtool.repair.machine.steps import Create, Step, synced_meanwhile
from rmqtool.store.source import Literal


@pytest.fixture
def steps(tmp_path: Path) -> list[Step]:
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.write_bytes(b"x")
    built = [Create(place.name, BuiltFile.whole(place), "it is new") for place in places]
    return [*built, Create("three", Literal(b"y"), "it is new")]


def test_all_built_files_are_synced(steps: list[Step], monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )
    with synced_meanwhile(steps):
        pass
    assert [Path(path).name for path in synced] == ["one", "two"]


def test_a_disk_that_does_not_take_one_fails_the_plan(steps: list[Step], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriteError, match="one"), synced_meanwhile(steps):
        pass


def test_an_error_of_the_check_itself_is_the_one_that_is_raised(
    steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    with pytest.raises(ZeroDivisionError), synced_meanwhile(steps):
        raise ZeroDivisionError

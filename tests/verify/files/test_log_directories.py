"""A directory among the files of the log is named wherever the log lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import NEWEST
from rmqtool.store.directory import Settings
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified

STORE = "5.5.0-many-files"


@pytest.mark.parametrize("place", ["commitlog-a", "log", "log/one", "elsewhere"])
def test_a_directory_in_a_named_log_directory_is_a_stray(golden_copy: Unpacked, tmp_path: Path, place: str) -> None:
    path = golden_copy(STORE)
    named = str(tmp_path / "disk/log") if place == "elsewhere" else place
    log = path / named
    log.parent.mkdir(parents=True, exist_ok=True)
    (path / "commitlog").rename(log)
    settings = Settings(commitlog_directories=(named, f"{named}/"))
    assert above_note(verified(path, NEWEST, settings=settings)[1]) == {}
    (log / "lost+found" / "deeper").mkdir(parents=True)
    (log / "lost+found" / "#12").write_bytes(b"saved by a check of the disk")
    found = verified(path, NEWEST, settings=settings)[1]
    assert above_note(found) == {"commitlog.stray-file": 1}
    assert [each.file for each in found if each.id == "commitlog.stray-file"] == [f"{named}/lost+found"]


@pytest.mark.parametrize("first", [".", "log"])
def test_the_directories_that_a_broker_has_are_no_strays(golden_copy: Unpacked, first: str) -> None:
    path = golden_copy(STORE)
    (path / "log/two").mkdir(parents=True)
    for number, file in enumerate(sorted((path / "commitlog").iterdir())):
        file.rename(path / ("log/two" if number else first) / file.name)
    (path / "commitlog").rmdir()
    settings = Settings(commitlog_directories=(first, "log/two"))
    strays = [
        found.file for found in verified(path, NEWEST, settings=settings)[1] if found.id == "commitlog.stray-file"
    ]
    assert [name for name in strays if (path / str(name)).is_dir()] == []

"""Log files whose names contradict each other: the records' own offsets tell which name is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.versions import NEWEST
from rmqtool.store.kinds import segment_name
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified

STORE = "5.5.0-many-files"


def copied(file: Path, target: Path) -> None:
    shutil.copy2(file, target)


def renamed(file: Path, target: Path) -> None:
    file.rename(target)


def with_a_damaged_offset(file: Path, target: Path) -> None:
    """The first record of the sound file says another place too; those after it do not."""
    shutil.copy2(file, target)
    with file.open("r+b") as log:
        log.seek(28)
        log.write((1 << 40).to_bytes(8, "big"))


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("change", [copied, renamed, with_a_damaged_offset])
def test_the_file_whose_records_contradict_its_name_is_the_stray(
    golden_copy: Unpacked, change: Callable[[Path, Path], None], number: int
) -> None:
    path = golden_copy(STORE)
    files = sorted((path / "commitlog").iterdir())
    wrong = files[number].with_name(segment_name(int(files[number].name) + 1))
    change(files[number], wrong)
    found = verified(path, NEWEST)[1]
    strays = [each for each in found if each.id == "commitlog.stray-file"]
    assert [each.file for each in strays] == [f"commitlog/{wrong.name}"]
    assert str(int(files[number].name)) in strays[0].message
    wrong.unlink()
    if change is copied:
        assert not above_note(verified(path, NEWEST)[1])

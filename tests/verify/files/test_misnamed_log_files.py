"""Log files whose names contradict each other: the records' own offsets tell which name is wrong."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import NEWEST
from rmqtool.store.file_kinds import segment_name
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged
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


def zero_padded(name: str) -> str:
    return f"{int(name):022d}"


def next_to_it(name: str) -> str:
    return segment_name(int(name) + 1)


def put_aside(name: str) -> str:
    return f"{name}.bak"


def test_the_next_step_replaces_an_empty_file_under_the_right_name(golden_copy: Unpacked) -> None:
    path = golden_copy(STORE)
    right = sorted((path / "commitlog").iterdir())[1]
    size = right.stat().st_size
    before = {each.id for each in verified(path, NEWEST)[1]}
    right.rename(right.with_name(next_to_it(right.name)))
    right.touch()
    step = json.loads(rmqtool("recover", path, "--yes", "--format", "json").out)["next_step"]
    assert "empty" in step["reason"]
    subprocess.run(shlex.split(step["command"]), check=True)
    assert right.stat().st_size == size
    assert {each.id for each in verified(path, NEWEST)[1]} == before


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("rename", [zero_padded, next_to_it, put_aside])
def test_no_repair_goes_on_without_a_misnamed_file(
    golden_copy: Unpacked, rename: Callable[[str], str], number: int
) -> None:
    """Brokers sort by name: with 22 digits a file comes first, and a start deleted the one that it followed."""
    path = golden_copy(STORE)
    right = sorted((path / "commitlog").iterdir())[number]
    before = {each.id for each in verified(path, NEWEST)[1]}
    wrong = right.rename(right.with_name(rename(right.name)))
    strays = [each for each in verified(path, NEWEST)[1] if each.id == "commitlog.stray-file"]
    assert [(each.file, each.expected) for each in strays] == [(f"commitlog/{wrong.name}", f"commitlog/{right.name}")]
    with assert_store_unchanged(path):
        for command in ("recover", "salvage"):
            ran = rmqtool(command, path, "--yes", "--format", "json")
            plan = json.loads(ran.out)
            assert (ran.code, plan["needs_decision"], plan["steps"]) == (3, True, [])
    subprocess.run(shlex.split(plan["next_step"]["command"]), check=True)
    assert right.exists()
    assert {each.id for each in verified(path, NEWEST)[1]} == before


def test_the_only_file_of_a_log_has_a_wrong_name(golden_copy: Unpacked) -> None:
    """Every record said that it lay elsewhere, and salvage gave the records that it could read new offsets."""
    path = golden_copy("5.5.0-bodies")
    [right] = (path / "commitlog").iterdir()
    wrong = right.rename(right.with_name(next_to_it(right.name)))
    strays = [each for each in verified(path, NEWEST)[1] if each.id == "commitlog.stray-file"]
    assert [(each.file, each.expected) for each in strays] == [(f"commitlog/{wrong.name}", f"commitlog/{right.name}")]
    with assert_store_unchanged(path):
        assert json.loads(rmqtool("salvage", path, "--yes", "--format", "json").out)["needs_decision"]


def test_the_only_file_of_a_log_is_of_zeros_and_has_a_wrong_name(golden_copy: Unpacked) -> None:
    """Real brokers put new messages into it and serve none of them: tests/broker/test_log_end.py."""
    path = golden_copy("5.5.0-bodies")
    [right] = (path / "commitlog").iterdir()
    size = right.stat().st_size
    wrong = right.rename(right.with_name(next_to_it(right.name)))
    wrong.write_bytes(bytes(size))
    with assert_store_unchanged(path):
        ran = rmqtool("recover", path, "--yes", "--log-file-size", size, "--format", "json")
    step = json.loads(ran.out)["next_step"]
    assert (ran.code, shlex.split(step["command"])[-2:]) == (3, [str(wrong), str(right)])
    subprocess.run(shlex.split(step["command"]), check=True)
    assert "commitlog.stray-file" not in rmqtool("verify", path, "--log-file-size", size).out


def test_a_backup_beside_its_file_is_no_misnamed_one(golden_copy: Unpacked) -> None:
    path = golden_copy(STORE)
    first = min((path / "commitlog").iterdir())
    shutil.copy2(first, put_aside(str(first)))
    assert rmqtool("recover", path, "--yes").code == 0


@pytest.mark.parametrize("options", [("--full",), ()])
@pytest.mark.parametrize("name", [zero_padded, next_to_it])
def test_a_copy_has_no_other_name(golden_copy: Unpacked, name: Callable[[str], str], options: tuple[str, ...]) -> None:
    """The name that it should have is not free, also where a bounded repair does not look at the sound file."""
    path = golden_copy(STORE)
    for right in sorted((path / "commitlog").iterdir()):
        wrong = right.with_name(name(right.name))
        shutil.copy2(right, wrong)
        plan = json.loads(rmqtool("recover", path, *options, "--yes", "--format", "json").out)
        strays = [(each["file"], each["expected"]) for each in plan["damage"] if each["id"] == "commitlog.stray-file"]
        assert strays == [(f"commitlog/{wrong.name}", None)]
        assert plan["next_step"]["command"] is None
        wrong.unlink()


def test_a_copy_far_from_the_other_files_is_a_stray(golden_copy: Unpacked) -> None:
    """Files were missing before it by its name; it was judged as a part of the log, and no repair came to an end."""
    path = golden_copy(STORE)
    files = sorted((path / "commitlog").iterdir())
    size = files[0].stat().st_size
    copy = files[0].with_name(segment_name(int(files[-1].name) + 7 * size))
    shutil.copy2(files[0], copy)
    strays = [row for row in verified(path, NEWEST)[1] if row.id == "commitlog.stray-file"]
    assert [(row.file, row.expected) for row in strays] == [(f"commitlog/{copy.name}", None)]
    assert f"commitlog/{files[0].name}" in strays[0].message

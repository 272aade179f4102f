"""Taking a repair back: byte for byte, in order, and never over what was written since."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, UnreadableError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.journal import journals
from rmqtool.repair.machine.steps import write_range
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import is_unsettled, repairs, settle, undo_latest
from rmqtool.store.source import Literal, Zeros
from rmqtool.store.view import DirectoryView
from tests.repair.small_stores import LOG, PLANS, QUEUE, cutting, files_of, plan_of, recovery
from tests.store_state import FileState, assert_store_unchanged


@pytest.mark.parametrize("name", PLANS)
def test_the_original_is_back(places: StorePaths, tmp_path: Path, name: str) -> None:
    before = files_of(places.root)
    inodes = {path: (places.root / path).stat().st_ino for path in before}
    apply_plan(PLANS[name](places, tmp_path), places)
    undone = undo_latest(places)
    assert undone is not None
    assert undone.number == 1
    assert files_of(places.root) == before
    assert {path: (places.root / path).stat().st_ino for path in before} == inodes
    assert undo_latest(places) is None


def test_a_short_file_that_several_writes_lengthen_is_short_again(places: StorePaths) -> None:
    place = places.root / LOG
    full = place.stat().st_size
    os.truncate(place, full - 1000)
    before = files_of(places.root)
    view = DirectoryView(places.root)
    ends = (
        write_range(view, LOG, full - 1000, Literal(b"x" * 600), "a blank"),
        write_range(view, LOG, full - 400, Zeros(400), "the rest"),
    )
    apply_plan(plan_of(places, ends), places)
    assert place.read_bytes()[full - 1000 :] == b"x" * 600 + bytes(400)
    undo_latest(places)
    assert files_of(places.root) == before


@pytest.mark.parametrize("name", PLANS)
def test_a_file_of_the_year_2300_keeps_no_repair_from_being_undone(
    places: StorePaths, tmp_path: Path, name: str
) -> None:
    late_ns = 10_413_792_000 * 10**9
    for path in (LOG, QUEUE):
        os.utime(places.root / path, ns=(late_ns, late_ns))
    before = {path: (places.root / path).read_bytes() for path in (LOG, QUEUE)}
    apply_plan(PLANS[name](places, tmp_path), places)
    undo_latest(places)
    assert {path: (places.root / path).read_bytes() for path in (LOG, QUEUE)} == before


def test_several_repairs_are_taken_back_one_by_one(places: StorePaths, tmp_path: Path) -> None:
    states: list[dict[str, FileState]] = []
    for make in (recovery, cutting):
        states.append(_store_of(places))
        apply_plan(make(places, tmp_path), places)
    assert [repair.number for repair in repairs(places)] == [2, 1]
    for state in reversed(states):
        undo_latest(places)
        assert _store_of(places) == state


@pytest.mark.parametrize("path", [LOG, "config/topics.json", "abort", "consumequeue/New/0/00000000000000000000"])
def test_nothing_is_taken_back_over_what_was_written_since(places: StorePaths, tmp_path: Path, path: str) -> None:
    apply_plan(recovery(places, tmp_path), places)
    place = places.root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("ab"):
        os.utime(place)
    with assert_store_unchanged(places.undo), pytest.raises(RefusedError, match=path.rsplit("/", maxsplit=1)[-1]):
        undo_latest(places)
    assert not is_unsettled(places)


def test_content_that_changed_under_the_same_time_is_noticed(places: StorePaths, tmp_path: Path) -> None:
    """As a broker's mapped writes may on a file system that does not note the time of them."""
    apply_plan(recovery(places, tmp_path), places)
    found = (places.root / QUEUE).stat()
    with (places.root / QUEUE).open("r+b") as file:
        file.seek(3100)
        file.write(b"x")
    os.utime(places.root / QUEUE, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(RefusedError, match=QUEUE):
        undo_latest(places)


def test_a_damaged_journal_changes_nothing_more(places: StorePaths, tmp_path: Path) -> None:
    apply_plan(recovery(places, tmp_path), places)
    manifest = places.undo / "1" / "manifest"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    with assert_store_unchanged(places.root / "commitlog"), pytest.raises(UnreadableError, match="damaged"):
        undo_latest(places)


def test_damaged_saved_bytes_are_noticed_before_anything_is_changed(places: StorePaths, tmp_path: Path) -> None:
    apply_plan(recovery(places, tmp_path), places)
    saved = places.undo / "1" / "ranges"
    saved.write_bytes(b"\xff" * saved.stat().st_size)
    with assert_store_unchanged(places.root), pytest.raises(UnreadableError, match="journal is damaged"):
        undo_latest(places)
    assert not is_unsettled(places)


@pytest.mark.parametrize("name", PLANS)
def test_a_copy_is_taken_back_alone(places: StorePaths, tmp_path: Path, name: str) -> None:
    before = files_of(places.root)
    apply_plan(PLANS[name](places, tmp_path), places)
    subprocess.run(["cp", "-a", places.root, tmp_path / "copy"], check=True)
    with assert_store_unchanged(places.root):
        undo_latest(StorePaths(tmp_path / "copy"))
    assert files_of(tmp_path / "copy") == before
    undo_latest(places)
    assert files_of(places.root) == before


def test_a_copy_does_not_take_what_the_original_keeps_elsewhere(places: StorePaths, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    places = StorePaths(places.root, undo_directory=kept)
    apply_plan(recovery(places, tmp_path), places)
    subprocess.run(["cp", "-a", places.root, tmp_path / "copy"], check=True)
    with assert_store_unchanged(kept), pytest.raises(RefusedError, match="another store"):
        undo_latest(StorePaths(tmp_path / "copy"))
    undo_latest(places)
    assert not list(kept.iterdir())


def test_looking_changes_nothing(places: StorePaths, tmp_path: Path) -> None:
    apply_plan(recovery(places, tmp_path), places)
    with assert_store_unchanged(places.root):
        repairs(places)
        is_unsettled(places)
        assert settle(places) is None
        assert len(journals(places)) == 1


def _store_of(places: StorePaths) -> dict[str, FileState]:
    return {path: state for path, state in files_of(places.root).items() if not path.startswith(".rmqtool")}

"""A backup made with `cp -al` shares its files with the store: no repair, and no undo, changes it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.journal_writer import copied_files
from rmqtool.repair.machine.plan import view_over
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import undo_latest
from rmqtool.store.view import DirectoryView
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.repair.small_stores import (
    LOG,
    PLANS,
    QUEUE,
    SHORT_QUEUE,
    Counting,
    another_disk,
    files_of,
    killed_at,
    recovery,
    small_store,
)
from tests.store_state import assert_store_unchanged


def backup(root: Path) -> Path:
    """Another name for every file of a store."""
    subprocess.run(["cp", "-al", root, root.parent / "backup"], check=True)
    return root.parent / "backup"


@pytest.mark.parametrize("name", PLANS)
def test_a_backup_keeps_what_the_store_was(places: StorePaths, tmp_path: Path, name: str) -> None:
    with assert_store_unchanged(backup(places.root)):
        before = files_of(places.root)
        plan = PLANS[name](places, tmp_path)
        shown = view_over(DirectoryView(places.root), plan.steps).open(LOG)
        expected = bytearray(shown.size)
        shown.read_into(0, memoryview(expected))
        shown.close()
        apply_plan(plan, places)
        assert (places.root / LOG).read_bytes() == expected
        assert files_of(places.root)[LOG].mtime_ns == before[LOG].mtime_ns
        undo_latest(places)
        assert files_of(places.root) == before
    assert (places.root / LOG).stat().st_ino == (tmp_path / "backup" / LOG).stat().st_ino


def test_a_backup_of_the_repaired_store_keeps_it_when_the_repair_is_undone(places: StorePaths, tmp_path: Path) -> None:
    before = files_of(places.root)
    apply_plan(recovery(places, tmp_path), places)
    subprocess.run(["cp", "-al", places.root, tmp_path / "backup"], check=True)
    known = {path: state for path, state in files_of(tmp_path / "backup").items() if not path.startswith(".rmqtool")}
    undo_latest(places)
    assert files_of(places.root) == before
    assert {path: files_of(tmp_path / "backup")[path].digest for path in known} == {
        path: state.digest for path, state in known.items()
    }


@pytest.mark.parametrize("name", PLANS)
def test_killed_anywhere_the_backup_and_the_original_are_there(tmp_path: Path, name: str) -> None:
    number, is_killed = -12, True
    while is_killed:
        number += 13
        folder = tmp_path / str(number)
        folder.mkdir()
        places = StorePaths(small_store(folder / "store"))
        with assert_store_unchanged(backup(places.root)):
            before = files_of(places.root)
            plan = PLANS[name](places, folder)
            is_killed = killed_at(number, lambda disk, plan=plan, places=places: apply_plan(plan, places, disk=disk))
            undo_latest(places)
            assert {path: found for path, found in files_of(places.root).items() if not path.startswith(".rmq")} == {
                path: found for path, found in before.items() if not path.startswith(".rmq")
            }
    assert number > 50


def test_the_journal_on_another_disk(places: StorePaths, tmp_path: Path) -> None:
    with another_disk(tmp_path) as disk, assert_store_unchanged(backup(places.root)):
        if disk is None:
            pytest.skip("no second file system to write to")
        before = files_of(places.root)
        elsewhere = StorePaths(places.root, undo_directory=disk)
        apply_plan(recovery(elsewhere, tmp_path), elsewhere)
        undo_latest(elsewhere)
        assert files_of(places.root) == before


def test_files_with_one_name_are_written_in_place(places: StorePaths, tmp_path: Path) -> None:
    """A log file is a gigabyte: it is not copied for nothing."""
    watch = Counting()
    plan = recovery(places, tmp_path)
    assert copied_files(plan.steps, places) == {}
    apply_plan(plan, places, disk=Disk(watch))
    assert not any(change.startswith("clone") for change in watch.changes)


def test_the_plan_names_the_files_and_counts_their_bytes(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    backup(places.root)
    sizes = {path: (places.root / path).stat().st_size for path in (LOG, QUEUE, SHORT_QUEUE)}
    assert copied_files(plan.steps, places) == sizes


def test_the_command_says_which_files_are_copied(golden_copy: Unpacked) -> None:
    path = golden_copy("4.9.7-damage-flip-body-middle-file-abort")
    options = ("--cut-at-damage", "--accept-loss")
    alone = json.loads(rmqtool("recover", path, *options, "--dry-run", "--format", "json").out)
    backup(path)
    plan = json.loads(rmqtool("recover", path, *options, "--dry-run", "--format", "json").out)
    assert (alone["copied_files"], plan["steps"]) == ([], alone["steps"])
    written = {step["file"] for step in plan["steps"] if step["action"] == "write"}
    assert set(plan["copied_files"]) == written
    assert plan["disk_needed_bytes"] > alone["disk_needed_bytes"]
    assert "Hard links" in rmqtool("recover", path, *options, "--dry-run").out
    with assert_store_unchanged(path.parent / "backup"):
        assert rmqtool("recover", path, *options, "--yes").code == 0
        assert rmqtool("undo", path, "--yes").code == 0

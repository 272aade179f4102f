"""`undo` on the command line: consent, what it shows, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.store.file_kinds import FENCE_NAME
from tests.commands.transcripts import rmqtool
from tests.repair.small_stores import cutting, files_of, killed_at, recovery, small_store
from tests.store_state import FileState, assert_store_unchanged


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store that was repaired twice."""
    places = StorePaths(small_store(tmp_path / "store"))
    apply_plan(recovery(places, tmp_path), places)
    apply_plan(cutting(places, tmp_path), places)
    return places.root


@pytest.fixture
def original(tmp_path: Path) -> dict[str, FileState]:
    return files_of(small_store(tmp_path / "original"))


def test_repairs_are_listed_and_taken_back_latest_first(store: Path, original: dict[str, FileState]) -> None:
    listed = json.loads(rmqtool("undo", store, "--list", "--format", "json").out)
    assert [(row["number"], row["command"], row["state"]) for row in listed] == [
        (2, "salvage", "done"),
        (1, "recover", "done"),
    ]
    assert listed[0]["kept_bytes"] > 262_144
    first = rmqtool("undo", store, "--yes")
    assert first.code == 0
    assert first.out.startswith("Repair 2 (salvage, 4 steps")
    second = rmqtool("undo", store, "--yes", "--format", "jsonl")
    assert json.loads(second.out)["state"] == "undone"
    assert files_of(store) == original
    assert rmqtool("undo", store, "--yes").out == "No repair to roll back; nothing was changed.\n"


def test_without_a_terminal_consent_has_to_be_said(store: Path) -> None:
    before = files_of(store)
    for option in ((), ("--discard",)):
        ran = rmqtool("undo", store, *option)
        assert ran.code == 5
        assert "--yes" in ran.err
    assert files_of(store) == before


def test_discarded_repairs_are_gone_and_the_store_stays(store: Path) -> None:
    before = {path: state for path, state in files_of(store).items() if not path.startswith(".rmqtool")}
    ran = rmqtool("undo", store, "--discard", "--yes")
    assert ran.code == 0
    assert ran.out.count("discarded") == 2
    assert files_of(store) == before
    assert rmqtool("undo", store, "--list").out == "No repair can be rolled back.\n"


def test_what_was_written_since_is_refused(store: Path) -> None:
    (store / "abort").write_bytes(b"1")
    before = files_of(store)
    ran = rmqtool("undo", store, "--yes")
    assert ran.code == 5
    assert "abort" in ran.err
    assert files_of(store) == before


def test_a_killed_repair_is_shown_and_taken_back(tmp_path: Path, original: dict[str, FileState]) -> None:
    places = StorePaths(small_store(tmp_path / "store"))
    plan = recovery(places, tmp_path)
    assert killed_at(60, lambda disk: apply_plan(plan, places, disk=disk))
    assert (places.root / "commitlog" / FENCE_NAME).read_text().count("rmqtool undo")
    assert "unfinished" in rmqtool("undo", places.root, "--list").out
    assert rmqtool("undo", places.root, "--discard", "--yes").code == 5
    assert rmqtool("undo", places.root, "--yes").code == 0
    assert files_of(places.root) == original


def test_a_log_elsewhere_has_to_be_named_for_the_store_may_lie(tmp_path: Path) -> None:
    root, log = small_store(tmp_path / "store"), tmp_path / "log"
    (root / "commitlog").rename(log)
    places = StorePaths(root, (str(log),))
    before = (files_of(root), files_of(log))
    apply_plan(cutting(places, tmp_path), places, disk=Disk())
    with assert_store_unchanged(root), assert_store_unchanged(log):
        assert rmqtool("undo", root, "--list").code == 0
        ran = rmqtool("undo", root, "--yes")
    assert ran.code == 5
    assert f"--commitlog {log}" in ran.err
    assert rmqtool("undo", root, "--yes", "--commitlog", log).code == 0
    assert (files_of(root), files_of(log)) == before


def test_a_directory_of_kept_files_has_to_be_named_for_the_store_may_lie(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    places = StorePaths(small_store(tmp_path / "store"), undo_directory=kept)
    before = files_of(places.root)
    apply_plan(recovery(places, tmp_path), places)
    with assert_store_unchanged(tmp_path):
        ran = rmqtool("undo", places.root, "--yes")
    assert ran.code == 5
    assert f"--undo-dir {kept}" in ran.err
    assert rmqtool("undo", places.root, "--yes", "--undo-dir", kept).code == 0
    assert files_of(places.root) == before

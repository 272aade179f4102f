"""A repaired copy: the same as a repair in place, and the store itself is not touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, RmqtoolError, UsageError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.output import apply_to_copy
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.store_paths import StorePaths, is_fenced
from tests.repair.small_stores import (
    NEW_QUEUE,
    PLANS,
    Counting,
    cutting,
    fail_with,
    files_of,
    killed_at,
    plan_of,
    recovery,
    small_store,
)
from tests.store_state import FileState, assert_store_unchanged


@pytest.fixture
def places(tmp_path: Path) -> StorePaths:
    root = small_store(tmp_path / "store")
    os.truncate(root / "commitlog/00000000000000262144", 0)
    os.truncate(root / "commitlog/00000000000000262144", 262_144)
    return StorePaths(root)


@pytest.mark.parametrize("name", PLANS)
def test_the_copy_is_what_a_repair_in_place_makes(places: StorePaths, tmp_path: Path, name: str) -> None:
    plan = PLANS[name](places, tmp_path)
    with assert_store_unchanged(places.root):
        copy = apply_to_copy(plan, places, tmp_path / "copy")
    apply_plan(plan, places)
    assert comparable(copy.root) == comparable(places.root)
    assert not is_fenced(copy)
    assert not (copy.root / OWN_DIRECTORY).exists()
    for path in comparable(copy.root):
        found = copy.root / path
        assert not found.is_file() or found.stat().st_nlink == 1


def test_a_log_that_lies_in_the_store_under_other_names_is_copied(places: StorePaths, tmp_path: Path) -> None:
    for number, file in enumerate(sorted((places.root / "commitlog").iterdir())):
        (places.root / f"log/{number % 2}").mkdir(parents=True, exist_ok=True)
        file.rename(places.root / f"log/{number % 2}" / file.name)
    (places.root / "commitlog").rmdir()
    named = StorePaths(places.root, ("log/0", "log/1"))
    before = comparable(named.root)
    copy = apply_to_copy(plan_of(named, []), named, tmp_path / "copy")
    assert comparable(copy.root) == before
    fingerprint_before = fingerprint(named)
    os.utime(next((named.root / "log/0").iterdir()))
    assert fingerprint(named) != fingerprint_before


def test_holes_stay_holes_and_an_empty_plan_is_a_plain_copy(places: StorePaths, tmp_path: Path) -> None:
    before = comparable(places.root)
    copy = apply_to_copy(plan_of(places, []), places, tmp_path / "copy")
    assert comparable(copy.root) == before
    assert (copy.root / "commitlog/00000000000000262144").stat().st_blocks == 0


def test_a_log_elsewhere_comes_into_the_copy(places: StorePaths, tmp_path: Path) -> None:
    log = tmp_path / "log"
    (places.root / "commitlog").rename(log)
    outer = StorePaths(places.root, (str(log),))
    plan = cutting(outer, tmp_path)
    with assert_store_unchanged(log):
        copy = apply_to_copy(plan, outer, tmp_path / "copy")
    assert max(path.name for path in (copy.root / "commitlog").iterdir()) == "00000000000000524288"


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "empty"])
def test_a_copy_that_fails_leaves_nothing(places: StorePaths, tmp_path: Path, is_there: bool) -> None:
    plan = recovery(places, tmp_path)
    watch = Counting()
    apply_to_copy(plan, places, tmp_path / "whole", Disk(watch))
    for number in range(2, watch.count, 7):
        output = tmp_path / str(number)
        if is_there:
            output.mkdir()
        with assert_store_unchanged(places.root):
            try:
                apply_to_copy(plan, places, output, Disk(Counting(number, fail_with(errno.ENOSPC))))
            except RmqtoolError:
                assert output.exists() == is_there
                assert not is_there or not list(output.iterdir())
            else:
                assert not is_fenced(StorePaths(output))


def test_a_copy_that_was_killed_is_fenced(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    watch = Counting()
    whole = apply_to_copy(plan, places, tmp_path / "whole", Disk(watch)).root
    for number in range(1, watch.count, 17):
        copy = StorePaths(tmp_path / str(number))
        with assert_store_unchanged(places.root):
            assert killed_at(number, lambda disk, copy=copy: apply_to_copy(plan, places, copy.root, disk))
        has_files = any(path.is_file() for path in copy.root.rglob("*") if path.name != "lock")
        assert not has_files or is_fenced(copy) or timeless(copy.root) == timeless(whole)


def test_a_place_that_is_not_free_is_refused(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"")
    for output in (tmp_path / "full", tmp_path / "full" / "file", places.root / "copy", tmp_path / "no" / "copy"):
        with assert_store_unchanged(tmp_path), pytest.raises(UsageError):
            apply_to_copy(plan, places, output)


def test_a_store_that_changes_while_it_is_copied_is_refused(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)

    def watch(change: str, place: Path) -> None:
        if place.name == "checkpoint" and change == "create":
            os.utime(places.root / "abort")

    with pytest.raises(RefusedError, match="while it was copied"):
        apply_to_copy(plan, places, tmp_path / "copy", Disk(watch))
    assert not (tmp_path / "copy").exists()


def comparable(root: Path) -> dict[str, FileState]:
    """Files and directories without times of what a repair makes again, and without the tool's own."""
    return {
        path: state._replace(mtime_ns=0 if path == NEW_QUEUE or not state.digest else state.mtime_ns)
        for path, state in files_of(root).items()
        if not path.startswith(".rmqtool")
    }


def timeless(root: Path) -> dict[str, FileState]:
    return {path: state for path, state in comparable(root).items() if state.size}

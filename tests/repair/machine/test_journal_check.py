"""A journal may be anybody's work: what it says is checked whole, and nothing outside of the store is ever touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import RefusedError, RmqtoolError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.steps import remove_file
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import discard_all, is_unsettled, settle, undo_latest
from rmqtool.store.view import DirectoryView
from tests.repair.machine.crafted_journals import (
    DAMAGED,
    LEADING_OUT,
    Craft,
    Manifest,
    craft,
    of_path,
    reopened,
    victim_tree,
)
from tests.repair.small_stores import INDEX, LOG, cutting, files_of, plan_of, recovery, small_store
from tests.store_state import assert_store_unchanged


@pytest.fixture
def repaired(tmp_path: Path) -> Iterator[StorePaths]:
    """A repaired store, and beside it a tree that stays as it is whatever happens."""
    victim = victim_tree(tmp_path)
    places = StorePaths(small_store(tmp_path / "store"))
    apply_plan(recovery(places, tmp_path), places)
    with assert_store_unchanged(victim):
        yield places


@pytest.mark.parametrize("name", LEADING_OUT)
@pytest.mark.parametrize("is_killed", [False, True], ids=["done", "killed"])
def test_a_journal_that_leads_out_is_refused_before_anything_happens(
    repaired: StorePaths, name: str, is_killed: bool
) -> None:
    craft(repaired, LEADING_OUT[name])
    if is_killed:
        reopened(repaired)
    ends = (settle, undo_latest) if is_killed else (undo_latest, discard_all)
    for end in ends:
        with assert_store_unchanged(repaired.root), pytest.raises(RefusedError):
            end(repaired)
    assert is_unsettled(repaired) == is_killed


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("is_killed", [False, True], ids=["done", "killed"])
def test_a_journal_that_cannot_be_carried_out_changes_nothing(repaired: StorePaths, name: str, is_killed: bool) -> None:
    craft(repaired, DAMAGED[name])
    if is_killed:
        reopened(repaired)
    for end in (settle, undo_latest) if is_killed else (undo_latest,):
        with assert_store_unchanged(repaired.root), pytest.raises(RmqtoolError):
            end(repaired)


@pytest.mark.parametrize("directory", [".rmqtool", ".rmqtool/undo", ".rmqtool/undo/1", ".rmqtool/staging"])
def test_a_directory_of_the_tool_that_is_a_link_is_refused(
    repaired: StorePaths, tmp_path: Path, directory: str
) -> None:
    link = repaired.root / directory
    if link.is_dir():
        shutil.rmtree(link)
    link.symlink_to(tmp_path / "victim")
    with assert_store_unchanged(repaired.root):
        for end in (is_unsettled, settle, undo_latest, lambda places: apply_plan(cutting(places, tmp_path), places)):
            with pytest.raises(RefusedError, match="symbolic link"):
                end(StorePaths(repaired.root))


@pytest.mark.parametrize("directory", [".rmqtool", ".rmqtool/undo", ".rmqtool/undo/1"])
def test_a_directory_of_the_tool_in_which_everybody_may_write_is_refused(repaired: StorePaths, directory: str) -> None:
    (repaired.root / directory).chmod(0o777)
    with assert_store_unchanged(repaired.root), pytest.raises(RefusedError, match="writable for everybody"):
        undo_latest(repaired)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the superuser, who can give a directory away")
@pytest.mark.parametrize("directory", [".rmqtool", ".rmqtool/undo", ".rmqtool/undo/1"])
def test_a_directory_of_the_tool_that_is_somebody_elses_is_refused(repaired: StorePaths, directory: str) -> None:
    os.chown(repaired.root / directory, 4711, 4711)
    with assert_store_unchanged(repaired.root), pytest.raises(RefusedError, match="of user 4711"):
        undo_latest(repaired)


@pytest.mark.parametrize("name", ["files", "ranges", "new", "manifest"])
def test_a_link_in_a_journal_is_not_followed(repaired: StorePaths, tmp_path: Path, name: str) -> None:
    """Neither to read what would be put into the store, nor to remove what it leads to."""
    inner = repaired.undo / "1" / name
    if inner.is_dir():
        shutil.rmtree(inner)
    else:
        inner.unlink()
    inner.symlink_to(tmp_path / "victim" / ("precious" if name in ("ranges", "manifest") else "log"))
    with assert_store_unchanged(repaired.root), pytest.raises(RmqtoolError):
        undo_latest(repaired)


def test_a_link_of_the_store_vouches_for_no_journal(repaired: StorePaths, tmp_path: Path) -> None:
    """`index` leads to another store's index, and the journal says that a repair made a file there."""
    other = tmp_path / "other"
    other.mkdir()
    shutil.rmtree(repaired.root / "index")
    (repaired.root / "index").symlink_to(other)
    (other / Path(INDEX).name).write_bytes(b"of another store")
    craft(repaired, lambda manifest, _: manifest["files"][0].update(path=INDEX, action="create", metadata=None))
    reopened(repaired)
    for end in (settle, undo_latest):
        with assert_store_unchanged(other), pytest.raises(RefusedError, match="only the store says"):
            end(StorePaths(repaired.root))


@pytest.mark.parametrize("field", ["directory_times", "made_directories", "log_directories"])
@pytest.mark.parametrize("state", ["done", "killed", "undone", "preparing"])
def test_a_link_of_the_store_leads_no_journal_to_directories(
    repaired: StorePaths, tmp_path: Path, field: str, state: str
) -> None:
    """Neither their times nor their names change, whatever the journal's state is."""
    other = tmp_path / "other"
    (other / "0").mkdir(parents=True)
    os.utime(other, ns=(10**18, 10**18))
    (repaired.root / "consumequeue/Linked").symlink_to(other)
    added = {"directory_times": {"consumequeue/Linked": [1, 1]}, "made_directories": ["consumequeue/Linked/0"]}
    craft(repaired, _with(field, added.get(field, ["consumequeue/Linked"])))
    folder = repaired.undo / "1"
    if state == "killed":
        reopened(repaired)
    elif state == "undone":
        folder.rename(repaired.undo / "1.undone")
    elif state == "preparing":
        (folder / "saved").unlink()
    with assert_store_unchanged(other), suppress(RefusedError):
        undo_latest(StorePaths(repaired.root))
    if state in ("done", "killed") and field != "directory_times":
        assert folder.exists()


def test_a_fence_of_another_stores_repair_vouches_for_no_journal(repaired: StorePaths, tmp_path: Path) -> None:
    other = small_store(tmp_path / "other")
    (other / "commitlog/rmqtool-repair-in-progress").write_text(f"rmqtool undo {other}")
    shutil.rmtree(repaired.root / "commitlog")
    (repaired.root / "commitlog").symlink_to(other / "commitlog")
    (repaired.undo / "1/undoing").write_bytes(b"{}")
    for end in (settle, undo_latest):
        with assert_store_unchanged(other), pytest.raises(RefusedError, match="only the store says"):
            end(StorePaths(repaired.root))


def _with(field: str, added: Any) -> Craft:
    def change(manifest: Manifest, victim: Path) -> None:
        del victim
        manifest[field] = {**manifest[field], **added} if isinstance(added, dict) else [*manifest[field], *added]

    return change


def test_a_link_to_what_everybody_may_write_is_not_followed(tmp_path: Path) -> None:
    root, log = small_store(tmp_path / "store"), tmp_path / "log"
    (root / "commitlog").rename(log)
    (root / "commitlog").symlink_to(log)
    log.chmod(0o777)
    places = StorePaths(root)
    with assert_store_unchanged(log), pytest.raises(RefusedError, match="--commitlog"):
        apply_plan(recovery(places, tmp_path), places)


def test_a_killed_repair_without_its_fence_is_not_rolled_back_by_the_way(repaired: StorePaths) -> None:
    """Somebody deleted the fence, so a broker may have written messages since."""
    reopened(repaired)
    for fence in repaired.fences:
        fence.shown.unlink()
    with assert_store_unchanged(repaired.root), pytest.raises(RefusedError, match="fence"):
        settle(repaired)
    undo_latest(repaired)
    assert not is_unsettled(repaired)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the superuser, who can give files away")
@pytest.mark.parametrize("path", [LOG, "checkpoint"])
def test_no_file_gets_an_owner_or_a_mode_from_a_journal(repaired: StorePaths, path: str) -> None:
    before = (repaired.root / path).lstat()
    crafted = {"user_id": 4711, "group_id": 4711, "mode": 0o6755}
    craft(repaired, lambda manifest, _: of_path(manifest, path)["metadata"].update(crafted))
    undo_latest(repaired)
    after = (repaired.root / path).lstat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_a_tree_nested_without_end_is_an_error(repaired: StorePaths) -> None:
    at = os.open(repaired.undo / "1" / "new", os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    with pytest.raises(RmqtoolError, match="nested deeper"):
        undo_latest(repaired)


def test_a_plan_does_not_change_strays_to_which_a_link_leads(tmp_path: Path) -> None:
    root, log = small_store(tmp_path / "store"), tmp_path / "log"
    (root / "commitlog").rename(log)
    (root / "commitlog").symlink_to(log)
    (log / "passwd").write_bytes(b"of somebody")
    places = StorePaths(root)
    plan = plan_of(places, [remove_file(DirectoryView(root), "commitlog/passwd", "a stray file")])
    with assert_store_unchanged(log), pytest.raises(RefusedError, match="--commitlog"):
        apply_plan(plan, places)
    assert files_of(root)

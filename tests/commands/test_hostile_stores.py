"""Stores that somebody sends: `recover --yes`, `salvage`, `rebuild` and `undo` do nothing that a store asks for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from rmqtool.repair.machine.store_paths import StorePaths
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.repair.machine.crafted_journals import LEADING_OUT, ZERO_DIGEST, Manifest, reopened, victim_tree
from tests.store_state import assert_store_unchanged, store_state

CRASHED = "5.5.0-crashed"
DAMAGED = "4.9.7-damage-flip-body-middle-file-abort"
COMMANDS = (("recover", "--yes"), ("rebuild", "--yes"), ("salvage", "--yes"), ("undo", "--yes"))


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_crafted_journal_ends_every_command_with_exit_code_5(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(CRASHED)
    assert rmqtool("recover", path, "--yes").code == 0
    victim = victim_tree(path.parent)
    manifest = json.loads((path / ".rmqtool/undo/1/manifest").read_bytes())
    queue = {**manifest["files"][0], "path": "consumequeue/TopicB/3/00000000000000000000", "action": "create"}
    checkpoint = {**manifest["files"][0], "path": "checkpoint", "action": "replace", "digest": ZERO_DIGEST}
    further: Manifest = {"metadata": None, "staged": None, "ranges": []}
    manifest["files"] = [{**queue, **further, "number": 901}, {**checkpoint, **further, "number": 902}]
    LEADING_OUT[name](manifest, victim)
    (path / ".rmqtool/undo/1/manifest").write_text(json.dumps(manifest))
    reopened(StorePaths(path))
    for command, *options in COMMANDS:
        with assert_store_unchanged(path.parent):
            ran = rmqtool(command, path, *options)
        assert ran.code == 5, (command, ran.err)
        assert ran.err.count("\n") == 1


@pytest.mark.parametrize("directory", [".rmqtool", ".rmqtool/undo", ".rmqtool/staging"])
def test_a_link_in_the_place_of_the_tools_directory_is_refused(golden_copy: Unpacked, directory: str) -> None:
    """`recover` emptied /victim/staging, and deleted /victim/undo/7, where `.rmqtool` was a link to /victim."""
    path = golden_copy(CRASHED)
    victim = victim_tree(path.parent)
    link = path / directory
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim)
    for command, *options in (*COMMANDS, ("recover", "--dry-run"), ("undo", "--list")):
        with assert_store_unchanged(path.parent):
            ran = rmqtool(command, path, *options)
        if directory == ".rmqtool/staging" and options == ["--list"]:
            assert ran.code == 0  # no journal, so nothing to show
            continue
        assert ran.code == 5, (command, ran.err)
        assert "symbolic link" in ran.err


def test_damaged_bytes_are_not_saved_over_a_link(golden_copy: Unpacked) -> None:
    path = golden_copy(DAMAGED)
    victim = victim_tree(path.parent)
    (path / ".rmqtool").mkdir()
    (path / ".rmqtool/lost+found").symlink_to(victim)
    before = store_state(path / "commitlog")
    with assert_store_unchanged(victim):
        ran = rmqtool("salvage", path, "--yes", "--lost-found")
    assert ran.code == 5
    assert store_state(path / "commitlog") == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the superuser, who can give files away")
@pytest.mark.parametrize("is_copy", [False, True], ids=["in place", "copy"])
def test_all_that_root_makes_belongs_to_the_owner(golden_copy: Unpacked, is_copy: bool) -> None:
    path = golden_copy(DAMAGED)
    for entry in (path, *path.rglob("*")):
        os.chown(entry, 65534, 65534)
    copy = path.parent / "copy"
    options = ("--output", copy) if is_copy else ()
    before = os.umask(0o077)
    try:
        assert rmqtool("salvage", path, "--yes", "--lost-found", *options).code == 0
    finally:
        os.umask(before)
    root = copy if is_copy else path
    assert [str(entry) for entry in (root, *root.rglob("*")) if entry.lstat().st_uid != 65534] == []
    assert list(root.rglob("lost+found/*.bin"))


def test_of_several_runs_at_once_one_repairs_and_the_others_are_told(golden_copy: Unpacked) -> None:
    """They shared their staging, and ended each other's work: "no such file"."""
    path = golden_copy(CRASHED)
    command = [sys.executable, "-m", "rmqtool", "recover", str(path), "--yes", "--format", "json"]
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        for _ in range(5)
    ]
    ended = Counter[str]()
    for run in runs:
        out, err = run.communicate()
        if run.returncode == 5:
            assert "another rmqtool (pid " in err
            ended["refused"] += 1
        else:
            assert run.returncode == 0, err
            ended["repaired" if json.loads(out).get("applied") else "nothing to do"] += 1
    assert ended["repaired"] == 1
    assert [entry.name for entry in (path / ".rmqtool").iterdir()] == ["undo"]
    assert rmqtool("verify", path).code == 0
    assert rmqtool("undo", path, "--yes").code == 0
    assert not (path / ".rmqtool").exists()


def test_nothing_is_left_and_no_time_has_changed_after_undo(golden_copy: Unpacked) -> None:
    path = golden_copy(CRASHED)
    shutil.rmtree(path / ".rmqtool", ignore_errors=True)
    (path / "lock").write_bytes(b"lock")
    os.utime(path, ns=(10**18, 10**18))
    with assert_store_unchanged(path):
        assert rmqtool("recover", path, "--yes").code == 0
        assert rmqtool("undo", path, "--yes").code == 0

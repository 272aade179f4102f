"""A copy of a store whose log lies elsewhere: no command that is given the copy changes the original's log."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import rmqtool
from tests.store.test_probe_lock import holder
from tests.store_state import assert_store_unchanged

WRITERS = (
    ("recover", "--yes"),
    ("rebuild", "--yes"),
    ("salvage", "--yes"),
    ("convert", "--queues", "rocksdb", "--yes"),
    ("append", "--topic", "T", "--body", "x"),
)
SECOND = 300
"""A byte of the first record's body."""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A store whose damaged log lies on another disk, its properties file, and a copy of its root."""
    original, log = tmp_path / "original", tmp_path / "disk" / "log"
    make_store(RECIPES["many-files"], original, "4.9.8")
    log.parent.mkdir()
    (original / "commitlog").rename(log)
    with min(log.iterdir()).open("r+b") as file:
        file.seek(SECOND)
        file.write(b"\xff\xff")
    (tmp_path / "broker.conf").write_text(f"storePathRootDir={original}\nstorePathCommitLog={log}\n")
    shutil.copytree(original, tmp_path / "copy", copy_function=shutil.copy2)
    return tmp_path


@pytest.mark.parametrize("command", WRITERS, ids=lambda command: command[0])
def test_a_copy_is_not_changed_through_the_originals_settings(machine: Path, command: tuple[str, ...]) -> None:
    name, *options = command
    with assert_store_unchanged(machine):
        ran = rmqtool(name, machine / "copy", *options, "--broker-conf", machine / "broker.conf")
        named = rmqtool(
            name, machine / "copy", *options, "--broker-conf", machine / "broker.conf",
            "--commitlog", machine / "disk" / "log",
        )  # fmt: skip
    assert (ran.code, named.code) == (5, 5)
    for way_out in (f"rmqtool {name} {machine}/original", "--commitlog DIR"):
        assert way_out in ran.err
        assert way_out in named.err


def test_a_plan_for_a_copy_is_refused_too(machine: Path) -> None:
    ran = rmqtool("salvage", machine / "copy", "--dry-run", "--broker-conf", machine / "broker.conf")
    assert ran.code == 5


def test_a_repaired_copy_may_be_written_elsewhere(machine: Path) -> None:
    with assert_store_unchanged(machine / "disk"), assert_store_unchanged(machine / "original"):
        conf = machine / "broker.conf"
        ran = rmqtool("salvage", machine / "copy", "--broker-conf", conf, "--output", machine / "new", "--yes")
        assert ran.code == 0
        with holder("byte", machine / "original" / "lock"):
            ran = rmqtool("salvage", machine / "copy", "--broker-conf", conf, "--output", machine / "new2", "--yes")
            assert ran.code == 5
    assert rmqtool("verify", machine / "new").code == 0


def test_the_two_ways_out_work(machine: Path) -> None:
    own = machine / "own"
    shutil.copytree(machine / "disk" / "log", own)
    conf = machine / "broker.conf"
    with assert_store_unchanged(machine / "disk"), assert_store_unchanged(machine / "original"):
        assert rmqtool("salvage", machine / "copy", "--broker-conf", conf, "--commitlog", own, "--yes").code == 0
        assert rmqtool("undo", machine / "copy", "--commitlog", own, "--yes").code == 0
    with assert_store_unchanged(own):
        assert rmqtool("salvage", machine / "original", "--broker-conf", conf, "--yes").code == 0
        assert rmqtool("verify", machine / "original", "--broker-conf", conf).code == 0


def test_a_journal_that_was_copied_does_not_undo_the_original(machine: Path) -> None:
    log, conf = machine / "disk" / "log", machine / "broker.conf"
    assert rmqtool("salvage", machine / "original", "--broker-conf", conf, "--yes").code == 0
    copy = machine / "copy2"
    shutil.copytree(machine / "original", copy, copy_function=shutil.copy2)
    with assert_store_unchanged(machine):
        assert rmqtool("undo", copy, "--commitlog", log, "--yes").code == 5
    (copy / "commitlog").symlink_to(log)
    with assert_store_unchanged(log):
        assert rmqtool("undo", copy, "--commitlog", log, "--yes").code == 5
    assert rmqtool("undo", machine / "original", "--commitlog", log, "--yes").code == 0


@pytest.mark.parametrize("command", WRITERS, ids=lambda command: command[0])
def test_a_log_inside_another_store_is_that_stores(machine: Path, command: tuple[str, ...]) -> None:
    name, *options = command
    (machine / "disk" / "log").rename(machine / "original" / "commitlog")
    with assert_store_unchanged(machine):
        ran = rmqtool(name, machine / "copy", *options, "--commitlog", machine / "original" / "commitlog")
    assert ran.code == 5
    (machine / "copy" / "commitlog").symlink_to(machine / "original" / "commitlog")
    with assert_store_unchanged(machine):
        assert rmqtool(name, machine / "copy", *options).code == 5


def test_who_reads_a_copy_is_told_whose_log_it_is(machine: Path) -> None:
    ran = rmqtool("info", machine / "copy", "--broker-conf", machine / "broker.conf")
    assert ran.code == 0
    assert f"storePathRootDir={machine}/original, which is not this store" in ran.err
    assert "not this store" not in rmqtool("info", machine / "original", "--broker-conf", machine / "broker.conf").err


def test_the_lock_of_the_logs_store_counts_for_who_reads_a_copy(machine: Path) -> None:
    with holder("byte", machine / "original" / "lock"):
        ran = rmqtool("info", machine / "copy", "--broker-conf", machine / "broker.conf", "--format", "json")
    assert '"in_use": true' in ran.out


def test_append_refuses_hard_links_and_logs_outside_before_it_changes_anything(machine: Path) -> None:
    whole = machine / "whole"
    make_store(RECIPES["single"], whole, "4.9.8")
    linked = machine / "linked"
    shutil.copytree(whole, linked, copy_function=os.link)
    with assert_store_unchanged(machine):
        assert rmqtool("append", linked, "--topic", "T", "--body", "x").code == 5
        outside = rmqtool(
            "append", machine / "copy", "--commitlog", machine / "disk" / "log", "--topic", "T", "--body", "x"
        )
        assert outside.code == 4
        for directory in (machine / "disk" / "log", "../log"):
            new = rmqtool(
                "append", machine / "new", "--create", "--set", f"storePathCommitLog={directory}", "--topic", "T",
                "--body", "x",
            )  # fmt: skip
            assert new.code == 4

"""A log, or a part of it, that is not where it is looked for: no command takes what it sees for the whole store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import Ran, rmqtool
from tests.store_state import assert_store_unchanged

READERS = (("verify",), ("forecast",), ("info",))
REPAIRS = ("recover", "rebuild", "salvage")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    make_store(RECIPES["multi-path"], root, "5.5.0")
    return root


@pytest.fixture
def machine(made: Path, tmp_path: Path) -> Path:
    """A store whose log lies on two other disks, and its properties file."""
    store, disks = tmp_path / "store", tmp_path / "disks"
    shutil.copytree(made, store)
    disks.mkdir()
    for name in ("commitlog-a", "commitlog-b"):
        (store / name).rename(disks / name)
    paths = f"{disks}/commitlog-a,{disks}/commitlog-b"
    (tmp_path / "broker.conf").write_text(f"storePathRootDir={store}\nstorePathCommitLog={paths}\n")
    return tmp_path


def asked(*arguments: object) -> tuple[Ran, dict[str, Any]]:
    ran = rmqtool(*arguments, "--format", "json")
    answer = json.loads(ran.out) if ran.out else {}
    return ran, answer.get("summary", answer)


@pytest.mark.parametrize("is_mount_point", [False, True], ids=["gone", "empty"])
def test_a_disk_that_is_not_mounted_is_named_before_anything_else(machine: Path, *, is_mount_point: bool) -> None:
    missing = machine / "disks" / "commitlog-b"
    missing.rename(machine / "away")
    if is_mount_point:
        missing.mkdir()
    conf = ("--broker-conf", machine / "broker.conf")
    with assert_store_unchanged(machine):
        for command in READERS:
            ran, answer = asked(*command, machine / "store", *conf)
            assert ran.code == (0 if command == ("info",) else 3), command
            assert answer["verdict"] == "log-missing"
            assert str(missing) in answer["headline"]
            assert answer["next_step"]["command"] is None
            assert "sudo" not in ran.out
            assert str(missing) in {files["path"] for files in answer["not_looked_at"]}
            assert answer.get("complete", False) is False
        for command in REPAIRS:
            ran, answer = asked(command, machine / "store", *conf, "--dry-run")
            if not is_mount_point:
                assert (ran.code, str(missing) in ran.err) == (4, True)
            else:
                assert answer["verdict"] == "log-missing"
                assert answer["next_step"]["command"] is None
            assert rmqtool(command, machine / "store", *conf, "--yes").code == (5 if answer.get("steps") else ran.code)
    if is_mount_point:
        missing.rmdir()
    (machine / "away").rename(missing)
    assert asked("verify", machine / "store", *conf)[1]["verdict"] == "ok"


def test_no_repair_marks_a_store_as_clean_of_which_a_disk_is_not_mounted(machine: Path) -> None:
    missing = machine / "disks" / "commitlog-b"
    missing.rename(machine / "away")
    missing.mkdir()
    (machine / "store" / "abort").touch()
    conf = ("--broker-conf", machine / "broker.conf")
    with assert_store_unchanged(machine):
        for command in REPAIRS:
            ran = rmqtool(command, machine / "store", *conf, "--yes")
            assert (ran.code, str(missing) in ran.err, "--accept-loss" in ran.err) == (5, True, True), command
    assert rmqtool("recover", machine / "store", *conf, "--yes", "--accept-loss").code == 3
    assert not (machine / "store" / "abort").exists()


def test_a_directory_that_no_broker_has_used_yet_is_no_missing_log(machine: Path) -> None:
    for file in sorted((machine / "disks" / "commitlog-b").iterdir()):
        file.rename(machine / "disks" / "commitlog-a" / file.name)
    assert asked("verify", machine / "store", "--broker-conf", machine / "broker.conf")[1]["verdict"] == "ok"


@pytest.mark.parametrize("names", [("log-a", "log-b"), ("disks/a", "disks/b")])
def test_the_log_is_looked_for_in_directories_of_the_store_that_no_broker_names(
    machine: Path, names: tuple[str, str]
) -> None:
    for old, new in zip(("commitlog-a", "commitlog-b"), names, strict=True):
        (machine / "store" / new).parent.mkdir(exist_ok=True)
        (machine / "disks" / old).rename(machine / "store" / new)
    for command in (*READERS, ("recover", "--dry-run")):
        _, answer = asked(command[0], machine / "store", *command[1:])
        assert answer["verdict"] == "log-missing"
        reason = answer["next_step"]["reason"]
        options = [f"--commitlog {machine}/store/{name}" for name in names]
        assert all(option in reason for option in options), reason
    options = [word for name in names for word in ("--commitlog", machine / "store" / name)]
    assert asked("verify", machine / "store", *options)[1]["verdict"] == "ok"


def test_a_log_one_level_deeper_than_the_properties_file_says_is_named(machine: Path) -> None:
    deeper = machine / "disks" / "one" / "commitlog"
    deeper.mkdir(parents=True)
    for name in ("commitlog-a", "commitlog-b"):
        for file in (machine / "disks" / name).iterdir():
            file.rename(deeper / file.name)
    conf = machine / "broker.conf"
    conf.write_text(f"storePathRootDir={machine}/store\nstorePathCommitLog={machine}/disks/one\n")
    for command in (*READERS, ("recover", "--dry-run")):
        _, answer = asked(command[0], machine / "store", *command[1:], "--broker-conf", conf)
        assert answer["verdict"] == "log-missing"
        assert f"--commitlog {deeper}" in answer["next_step"]["reason"]
    options = ("--broker-conf", conf, "--commitlog", deeper)
    assert asked("verify", machine / "store", *options)[1]["verdict"] == "ok"


def test_get_does_not_say_that_a_message_is_gone_whose_log_is_missing(machine: Path) -> None:
    question = ("--topic", "orders", "--queue-id", 0, "--queue-offset", 3)
    ran, answer = asked("get", machine / "store", *question)
    assert ran.code == 4
    assert [files["path"] for files in answer["not_looked_at"]] == ["commitlog"]
    (machine / "disks" / "commitlog-b").rename(machine / "away")
    conf = ("--broker-conf", machine / "broker.conf")
    codes = {asked("get", machine / "store", *question[:-1], number, *conf)[0].code for number in (0, 40, 80, 150)}
    assert codes == {0, 4}


def test_a_plan_says_what_a_start_does_to_a_store_without_its_log(machine: Path) -> None:
    ran = rmqtool("recover", machine / "store", "--dry-run")
    assert ran.code == 3
    text = " ".join(ran.out.split())
    assert "its next start deletes the consume queues" in text.partition("Start now")[2]
    assert "lose nothing" not in text

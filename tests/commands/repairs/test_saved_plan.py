"""Plans that `--plan` saves, where other bytes are written each time: databases in RocksDB, and the timer."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from rmqtool.commands.repairs import repair_plan
from rmqtool.errors import WriteError
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.rocksdb_cases import edit
from tests.store_state import assert_store_unchanged

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "schema" / "plan.json").read_text("utf-8"))
VERSION = ("--broker-version", "5.5.0")


@pytest.mark.parametrize("command", [("convert", "--queues", "rocksdb"), ("rebuild", "--queues")])
def test_a_saved_plan_of_queues_in_rocksdb_can_be_applied(
    golden_copy: Unpacked, tmp_path: Path, command: tuple[str, ...]
) -> None:
    path, saved = golden_copy("5.5.0-transaction"), tmp_path / "plan.json"
    name, *options = command
    if name == "rebuild":
        assert rmqtool("convert", path, "--queues", "rocksdb", *VERSION, "--yes").code == 0
        edit(path, lambda units, _ends: units.delete(next(iter(units.keys()))))
    assert rmqtool(name, path, *options, *VERSION, "--plan", saved).code == 3
    plan = json.loads(saved.read_text("utf-8"))
    assert schema_errors(plan["steps"], SCHEMA["properties"]["steps"]) == []
    written = [step for step in plan["steps"] if "rows" in step]
    assert written

    for step in written:
        step["rows"] = "sha256:" + "0" * 64
    (tmp_path / "other.json").write_text(json.dumps(plan), "utf-8")
    refused = rmqtool(name, path, *VERSION, "--apply", tmp_path / "other.json", "--yes")
    assert refused.code == 5
    assert "steps differ" in refused.out + refused.err

    applied = rmqtool(name, path, *VERSION, "--apply", saved, "--yes")
    assert applied.code == 0, applied.out + applied.err


def test_a_saved_plan_of_the_timer_can_be_applied_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, saved = tmp_path / "store", tmp_path / "plan.json"
    make_store(RECIPES["timer"], path, "5.5.0")
    (path / "timerwheel").write_bytes(b"short")
    configuration = tmp_path / "broker.conf"
    configuration.write_text(f"mappedFileSizeTimerLog={1 << 20}\n")
    options = ("--timer", "--broker-conf", configuration)
    assert rmqtool("rebuild", path, *options, "--plan", saved).code == 3
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    applied = rmqtool("rebuild", path, *options, "--apply", saved, "--yes")
    assert applied.code == 0, applied.out + applied.err


def test_apply_takes_the_options_of_a_patch_from_the_plan(golden_copy: Unpacked, tmp_path: Path) -> None:
    path, saved = golden_copy("5.5.0-clean-basic"), tmp_path / "plan.json"
    file = path / "commitlog" / f"{0:020d}"
    assert rmqtool("patch", file, "--at", "0", "--set", "flag=3", "--plan", saved).code == 3
    assert json.loads(saved.read_text("utf-8"))["options"] == {"--at": 0, "--set": ["flag=3"]}
    refused = rmqtool("patch", file, "--set", "flag=4", "--apply", saved, "--yes")
    assert (refused.code, refused.err) == (
        2,
        "rmqtool: --set: the saved plan has another value; leave it out, or make the plan again\n",
    )
    applied = rmqtool("patch", file, "--apply", saved, "--yes")
    assert applied.code == 0, applied.out + applied.err
    assert file.read_bytes()[16:20] == b"\0\0\0\3"


@pytest.mark.parametrize(
    "options", [[], {"--at": "0"}, {"--at": -1}, {"--at": 1 << 80}, {"--set": [3]}, {"--from": "a\0b"}, {"--from": 3}]
)
def test_options_of_a_plan_that_no_command_line_has_are_refused(
    golden_copy: Unpacked, tmp_path: Path, options: object
) -> None:
    path, saved = golden_copy("5.5.0-clean-basic"), tmp_path / "plan.json"
    file = path / "commitlog" / f"{0:020d}"
    assert rmqtool("patch", file, "--at", "0", "--set", "flag=3", "--plan", saved).code == 3
    plan = json.loads(saved.read_text("utf-8"))
    plan["options"] = {**plan["options"], **options} if isinstance(options, dict) else options
    saved.write_text(json.dumps(plan), "utf-8")
    ran = rmqtool("patch", file, "--apply", saved, "--yes")
    assert ran.code in (2, 4), ran.out + ran.err
    assert len(ran.err.splitlines()) == 1
    assert file.read_bytes()[16:20] == b"\0\0\0\0"


def test_a_patch_that_costs_a_message_says_so_first(golden: Unpacked) -> None:
    ran = rmqtool("patch", golden("5.5.0-clean-basic") / f"commitlog/{0:020d}", "--at", "0", "--set", "queue_id=7")
    assert ran.out.startswith("1 change planned. Consumers would no longer get 1 message where they get them\ntoday.")


def test_a_plan_that_a_full_disk_cuts_is_removed(
    golden: Unpacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    saved = tmp_path / "plan.json"
    monkeypatch.setattr(os, "fsync", full)
    ran = rmqtool("recover", golden("5.5.0-crashed"), "--plan", saved)
    assert (ran.code, ran.err) == (4, f"rmqtool: {saved}: no space left on device\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("option", "advice"), [("--yes", "make room on that disk"), ("--dry-run", "set TMPDIR")])
def test_a_disk_that_is_full_while_a_plan_is_made_says_what_became_of_the_store(
    golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch, option: str, advice: str
) -> None:
    def full(*_: object, **_named: object) -> None:
        error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise WriteError("index/1: no space left on device") from error

    path = golden_copy("5.5.0-crashed")
    monkeypatch.setattr(repair_plan, "plan_with_sizes", full)
    with assert_store_unchanged(path):
        ran = rmqtool("recover", path, option)
    assert (ran.code, "no space left on device; the store was not changed" in ran.err) == (4, True)
    assert advice in ran.err


def test_only_a_plan_is_replaced_by_a_plan(golden: Unpacked, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    saved.write_bytes(b"somebody's")
    ran = rmqtool("recover", golden("5.5.0-crashed"), "--plan", saved)
    assert (ran.code, ran.out) == (5, "")
    assert f"{saved}: is not a saved plan" in ran.err
    assert saved.read_bytes() == b"somebody's"
    saved.unlink()
    for _ in range(2):
        assert rmqtool("recover", golden("5.5.0-crashed"), "--plan", saved).code == 3

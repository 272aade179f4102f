"""After a repair with exit code 0 a check finds nothing above a note; what it would find is named with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.repair.machine.plan import PlannedRepair, view_over
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.repair.remaining import check_planned
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified, writer_of

VERSION = "5.5.0"
LEFT = {
    "log-time-zero": {"commitlog.store-time-regress"},
    "log-queue-offset-repeated": {"commitlog.queue-offset-repeated"},
    "log-stray-directory": {"commitlog.stray-file"},
    "index-directory": {"index.directory"},
    "log-topic-outside": {"consumequeue.unsafe-name", "commitlog.missing-message"},
    "topics-cut": {"config.unreadable"},
    "consumer-beyond-queue": {"config.consumer-offset-beyond-queue"},
}
"""What `recover` cannot or does not repair, by damage."""
INDEX_SIZES = ("--index-slots", "100", "--index-entries", "200")
REPAIRED = ["index-end-time", "index-begin-time", "index-zero-extra", "index-misnamed-file", "checkpoint-zero-clean"]
REPAIRED += ["index-names-swapped", "index-file-copied"]


def damaged(tmp_path: Path, damage: str) -> Path:
    recipe, store = RECIPES["many-files"], tmp_path / "store"
    make_store(recipe, store, VERSION)
    damage_store(DAMAGES[damage], store, 0, recipe.conf.settings())
    return store


def recovered(store: Path, version: str, *options: str, command: str = "recover") -> tuple[int, dict[str, Any]]:
    ran = rmqtool(command, store, "--yes", "--broker-version", version, "--format", "json", *options)
    return ran.code, json.loads(ran.out)


@pytest.mark.parametrize("damage", REPAIRED)
def test_what_is_repaired_is_gone(tmp_path: Path, damage: str) -> None:
    store = damaged(tmp_path, damage)
    code, plan = recovered(store, VERSION, "--full")
    assert (code, plan["remaining"]) == (0, [])
    assert plan["applied"]
    assert above_note(verified(store, VERSION)[1]) == {}


@pytest.mark.parametrize("damage", LEFT)
def test_what_is_left_is_named(tmp_path: Path, damage: str) -> None:
    store = damaged(tmp_path, damage)
    code, plan = recovered(store, VERSION, "--full")
    assert code == 3
    assert {left["id"] for left in plan["remaining"]} == LEFT[damage] == set(above_note(verified(store, VERSION)[1]))
    assert all(left["why"] for left in plan["remaining"])
    screen = rmqtool("recover", store, "--dry-run", "--full", "--broker-version", VERSION)
    assert screen.code == 3
    assert "Left" in screen.out
    assert next(iter(LEFT[damage])) in screen.out


@pytest.mark.parametrize("name", ["5.5.0-damage-index-chain-loop", "5.5.0-damage-index-dir-missing"])
def test_what_lies_below_the_window_is_named(golden_copy: Unpacked, name: str) -> None:
    store, version = golden_copy(name), writer_of(name)
    code, plan = recovered(store, version, *INDEX_SIZES)
    found = above_note(verified(store, version)[1])
    assert code == 3
    assert {left["id"] for left in plan["remaining"]} == found.keys() != set()
    assert all("recover --full" in left["why"] for left in plan["remaining"])
    assert recovered(store, version, "--full", *INDEX_SIZES)[0] == 0
    assert above_note(verified(store, version)[1]) == {}


def test_a_hole_in_a_queue_s_last_three_files_is_repaired_without_full(golden_copy: Unpacked) -> None:
    name = "4.9.7-damage-cq-entry-zero-first-file"
    store, version = golden_copy(name), writer_of(name)
    code, plan = recovered(store, version, *INDEX_SIZES)
    assert (code, plan["remaining"]) == (0, [])
    assert above_note(verified(store, version)[1]) == {}


def test_abort_that_stays_is_left_too(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.store.databases.rocksdb.LIBRARY", "no_such_library")
    code, plan = recovered(golden_copy("5.5.0-rocksdb-cq-crashed"), VERSION)
    assert code == 3
    assert [(left["id"], left["why"]) for left in plan["remaining"]] == [("store.abort-present", plan["abort_stays"])]


@pytest.mark.parametrize("options", [["--index"], ["--queues"], []])
def test_a_rebuild_of_a_part_names_what_is_left_of_the_rest(tmp_path: Path, options: list[str]) -> None:
    store = damaged(tmp_path, "log-time-zero")
    code, plan = recovered(store, VERSION, *options, command="rebuild")
    assert (code, plan["verdict"]) == (3, "inconsistent")
    assert {left["id"] for left in plan["remaining"]} == {"commitlog.store-time-regress"}


def test_a_large_log_is_not_read_again(tmp_path: Path) -> None:
    """What the plan's own check has found in the log counts then, as far as no step changes it."""
    store = survey(open_directory(damaged(tmp_path, "log-time-zero")), RECIPES["many-files"].conf.settings())
    rules = rules_for(VERSION)
    (tmp_path / "staging").mkdir()
    made = plan_recover(store, rules, tmp_path / "staging", RecoverOptions(full=True))
    opened: list[str] = []
    view = view_over(store.view, made.steps)
    real = view.open
    view.open = lambda path: opened.append(path) or real(path)  # type: ignore[func-returns-value, method-assign]
    after = survey(view, store.settings)
    checked = check_planned(after, rules, PlannedRepair(made.steps, findings=made.findings), read_again_max=0)
    assert [found.finding.id for found in checked.left] == ["commitlog.store-time-regress"]
    # Where the log ends is looked at in its last file.
    assert {path for path in opened if path.startswith("commitlog/")} <= {store.commitlog[-1].path}
    assert len(store.commitlog) > 3


@pytest.mark.parametrize("command", ["recover", "recover --full", "salvage", "rebuild"])
def test_a_zero_queue_without_messages_is_removed(tmp_path: Path, command: str) -> None:
    recipe, store = RECIPES["many-files"], tmp_path / "store"
    make_store(recipe, store, VERSION)
    like = next(store.glob("consumequeue/orders/0/*"))
    zero = store / "consumequeue/orders/7/00000000000000000000"
    zero.parent.mkdir()
    zero.write_bytes(bytes(like.stat().st_size))
    assert set(above_note(verified(store, VERSION)[1])) == {"consumequeue.zero-file"}
    name, *options = command.split()
    code, plan = recovered(store, VERSION, *options, command=name)
    assert (code, [step["file"] for step in plan["steps"]]) == (0, [str(zero.relative_to(store))])
    assert not zero.exists()
    assert above_note(verified(store, VERSION)[1]) == {}

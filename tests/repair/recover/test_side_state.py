"""`recover` leaves timers and delay levels as they must be; what they are built of is tested with `rebuild`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import Recipe, make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import rmqtool
from tests.store_state import contents_without_journal

OFFSETS = "config/delayOffset.json"
TIMER, DELAYS = RECIPES["timer"], RECIPES["delay-delivered"]


def damaged(tmp_path: Path, recipe: Recipe, name: str | None) -> tuple[Path, tuple[object, ...]]:
    store = tmp_path / "store"
    make_store(recipe, store, "5.5.0")
    if name is not None:
        damage_store(DAMAGES[name], store, settings=recipe.conf.settings())
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in recipe.settings.items()))
    return store, ("--broker-conf", conf, "--broker-version", "5.5.0")


def recover(store: Path, *options: object) -> tuple[int, dict[str, Any]]:
    ran = rmqtool("recover", store, "--format", "json", *options)
    return ran.code, json.loads(ran.out)


@pytest.mark.parametrize(
    ("recipe", "name", "folders"),
    [
        (TIMER, "timer-units-zeroed", {"timerwheel", "timerlog", "config"}),
        (TIMER, "timer-wheel-short", {"timerwheel", "timerlog", "config"}),
        (TIMER, "timer-check-missing", {"timerwheel", "timerlog", "config"}),
        (DELAYS, "delay-offsets-missing", {"config"}),
        (DELAYS, "delay-offsets-cut", {"config"}),
        (DELAYS, "delay-offset-past-end", {"config"}),
    ],
)
def test_one_recover_repairs_what_crash_and_damage_left(
    tmp_path: Path, recipe: Recipe, name: str, folders: set[str]
) -> None:
    store, options = damaged(tmp_path, recipe, name)
    (store / "abort").touch()
    newest = max((store / "consumequeue/orders/1").iterdir())
    newest.write_bytes(newest.read_bytes()[:20] + bytes(newest.stat().st_size - 20))  # the queue lags behind
    before = contents_without_journal(store)
    code, plan = recover(store, "--yes", *options)
    assert (code, plan["verdict"]) == (0, "ok"), plan["remaining"]
    assert folders <= {step["file"].partition("/")[0] for step in plan["steps"]}
    assert plan["steps"][-1]["file"] == "abort"
    assert rmqtool("verify", store, *options).code == 0
    assert recover(store, *options, "--yes")[1]["steps"] == []
    assert rmqtool("undo", store, "--yes").code == 0
    assert contents_without_journal(store) == before


@pytest.mark.parametrize("recipe", [TIMER, DELAYS], ids=["timer", "delays"])
def test_what_is_right_is_left_alone(tmp_path: Path, recipe: Recipe) -> None:
    store, options = damaged(tmp_path, recipe, None)
    assert recover(store, *options, "--yes")[1]["steps"] == []


def test_a_backup_that_can_be_read_is_used_as_far_as_it_is_right(tmp_path: Path) -> None:
    store, options = damaged(tmp_path, DELAYS, None)
    (store / f"{OFFSETS}.bak").write_text('{"offsetTable":{1:5}}')
    (store / OFFSETS).write_text("{")
    code, plan = recover(store, *options, "--yes")
    assert (code, [step["file"] for step in plan["steps"]]) == (0, [OFFSETS])
    assert json.loads((store / OFFSETS).read_text())["offsetTable"] == {"1": 20, "2": 10, "18": 0}


def test_a_broker_that_could_not_read_file_and_backup_starts_again(tmp_path: Path) -> None:
    store, options = damaged(tmp_path, DELAYS, None)
    for path in (OFFSETS, f"{OFFSETS}.bak"):
        (store / path).write_text("{")
    forecast = json.loads(rmqtool("forecast", store, "--format", "json", *options).out)
    assert forecast["verdict"] == "will-not-start"
    assert recover(store, *options, "--yes")[0] == 0
    assert json.loads(rmqtool("forecast", store, "--format", "json", *options).out)["verdict"] == "ok"


def test_why_a_timer_is_not_rebuilt_is_said(tmp_path: Path) -> None:
    store, options = damaged(tmp_path, TIMER, "timer-units-zeroed")
    (store / "rocksdbstore").mkdir()
    (store / "rocksdbstore/000004.sst").write_bytes(b"x")
    code, plan = recover(store, *options, "--yes")
    assert code == 3
    assert [text for text in plan["notes"] if text.startswith("not repaired: ") and "timerRocksDBEnable" in text]

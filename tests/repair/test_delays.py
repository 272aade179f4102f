"""`rebuild --delay-offsets`: each level continues where it ended; tests/broker/test_delays.py asks real brokers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnsupportedError
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.repair.delays import plan_delays
from rmqtool.sides.delays import delay_levels
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged, contents_without_journal

RECIPE = RECIPES["delay-delivered"]
OFFSETS = "config/delayOffset.json"
RIGHT = {"1": 20, "2": 10, "18": 0}
DAMAGED = [name for name, damage in DAMAGES.items() if damage.recipes == (RECIPE.name,)]
VERSION = ("--broker-version", "5.5.0")


def rebuild(store: Path, *options: str) -> tuple[int, dict[str, object]]:
    ran = rmqtool("rebuild", store, "--delay-offsets", "--format", "json", *options, *VERSION)
    return ran.code, json.loads(ran.out)


def test_each_damage_is_named() -> None:
    assert len(DAMAGED) == 6


@pytest.mark.parametrize("name", DAMAGED)
def test_each_kind_of_damage_is_repaired_and_undone(store: Path, name: str) -> None:
    damage_store(DAMAGES[name], store, settings=RECIPE.conf.settings())
    before = contents_without_journal(store)
    with assert_store_unchanged(store):
        code, plan = rebuild(store, "--dry-run")
    assert code == 3
    assert [step["file"] for step in plan["steps"]] == [OFFSETS]  # type: ignore[attr-defined]
    assert rebuild(store, "--yes")[0] == (3 if (store / "abort").exists() else 0)  # a crashed store has more to repair
    assert json.loads((store / OFFSETS).read_text())["offsetTable"] == RIGHT
    findings = json.loads(rmqtool("verify", store, "--format", "json", *VERSION).out)["summary"]["findings"]
    assert not [kind for kind in findings if kind.startswith("config.delay")]
    assert rebuild(store, "--yes")[1]["steps"] == []
    assert rmqtool("undo", store, "--yes").code == 0
    assert contents_without_journal(store) == before


def test_offsets_that_match_are_left_alone(store: Path) -> None:
    code, plan = rebuild(store, "--yes")
    assert (code, plan["steps"]) == (0, [])


def test_the_plan_counts_what_a_broker_would_deliver_twice_or_never(store: Path) -> None:
    (store / OFFSETS).write_text('{"dataVersion":{"counter":7},"offsetTable":{2:4,18:7}}')
    _, plan = rebuild(store, "--dry-run")
    notes = [text for text in plan["notes"] if text.startswith("delay level")]  # type: ignore[attr-defined]
    assert notes == [
        "delay level 1: continues at 20 and not at 0; not delivered a second time: 20",
        "delay level 2: continues at 10 and not at 4; not delivered a second time: 6",
        "delay level 18: continues at 0 and not at 7; never delivered without this: 7",
    ]
    rebuild(store, "--yes")
    assert json.loads((store / OFFSETS).read_text()) == {"dataVersion": {"counter": 7}, "offsetTable": RIGHT}


@pytest.mark.parametrize("name", ["broker-4.9.7-delay-killed", "broker-5.5.0-delay-killed"])
def test_what_a_real_broker_delivered_before_it_was_killed_is_known(golden: Unpacked, name: str) -> None:
    with open_reader(survey(open_directory(golden(name))), rules_for(name[7:12])) as reader:
        levels = delay_levels(reader, whole=True)
    assert {level.level: (level.begin, level.right, level.end) for level in levels} == {
        1: (0, 24, 24), 2: (0, 0, 16), 3: (0, 0, 8), 5: (0, 0, 8), 18: (0, 0, 8),
    }  # fmt: skip


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_message_that_was_sent_back_often_is_told_apart(golden: Unpacked, version: str) -> None:
    store = survey(open_directory(golden(f"broker-{version}-retry-clean")))
    assert plan_delays(store, rules_for(version)).steps == ()


def test_what_cannot_be_known_is_refused(store: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(store, tmp_path / "damaged")
    with (damaged / "commitlog/00000000000000000000").open("r+b") as log:
        log.seek(100)  # in the first body
        log.write(bytes(8))
    with pytest.raises(UnsupportedError, match=r"which delayed messages were delivered .* run rmqtool salvage first"):
        plan_delays(survey(open_directory(damaged)), rules_for("5.5.0"))
    for lost in ("0", ""):  # one level's queue, then all of them
        shutil.rmtree(store / "consumequeue/SCHEDULE_TOPIC_XXXX" / lost)
        with pytest.raises(UnsupportedError, match="run rmqtool recover first, then rebuild the delay offsets"):
            plan_delays(survey(open_directory(store), RECIPE.conf.settings()), rules_for("5.5.0"))
    ran = rmqtool("rebuild", store, "--delay-offsets", "--index")
    assert (ran.code, "--delay-offsets: rebuild the delay offsets alone" in ran.err) == (2, True)

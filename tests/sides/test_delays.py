"""Findings about delay levels, and what `forecast` says of them; tests/broker/test_delays.py asks real brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.sides.delays import delay_findings
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool

RECIPE = RECIPES["delay-delivered"]
OFFSETS = "config/delayOffset.json"
AHEAD, BEHIND, OUTDATED = "config.delay-offset-ahead", "config.delay-offset-behind", "config.delay-offset-outdated"
VERSION = ("--broker-version", "5.5.0")


def findings(path: Path) -> list[Finding]:
    return list(delay_findings(survey(open_directory(path), RECIPE.conf.settings()), rules_for("5.5.0")))


def forecast(path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(rmqtool("forecast", path, "--format", "json", *VERSION).out)
    return answer


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({1: 20, 2: 10, 18: 0}, []),
        ({1: 20, 2: 10}, []),
        ({1: 19, 2: 10, 18: 0}, [(OUTDATED, 1, 1)]),
        ({1: 20, 2: 3, 18: 0}, [(BEHIND, 2, 7)]),
        ({1: -3, 2: 10, 18: -1}, [(OUTDATED, 1, 20)]),
        ({1: 20, 2: 10, 18: 1}, [(AHEAD, 18, 1)]),
        ({1: 20, 2: 10, 18: 20}, [(AHEAD, 18, 20)]),
        ({1: 20, 2: 11, 18: 0}, [(AHEAD, 2, 1)]),
        ({"1": "20", 2: 10, 18: 10**18}, [(AHEAD, 18, 20)]),
    ],
)
def test_an_offset_is_wrong_if_messages_come_twice_or_never(
    store: Path, table: dict[int, int], expected: list[tuple[str, int, int]]
) -> None:
    (store / OFFSETS).write_text(json.dumps({"offsetTable": table}))
    (store / "abort").touch()
    assert [(each.id, (each.queue_id or 0) + 1, each.count) for each in findings(store)] == expected


def test_a_clean_stop_writes_the_offsets(store: Path) -> None:
    (store / OFFSETS).write_text('{"offsetTable":{1:20,2:3,18:0}}')
    assert [(each.id, (each.queue_id or 0) + 1, each.count) for each in findings(store)] == [(OUTDATED, 2, 7)]


def test_a_level_without_messages_may_have_any_offset(store: Path) -> None:
    (store / OFFSETS).write_text('{"offsetTable":{1:20,2:10,18:0,5:77}}')
    assert findings(store) == []


def test_forecast_says_what_comes_twice_and_leads_to_the_repair(store: Path) -> None:
    (store / OFFSETS).unlink()
    answer = forecast(store)
    assert answer["verdict"] == "inconsistent"
    assert [(effect["id"], effect["level"], effect["count"]) for effect in answer["delays"]] == [
        (OUTDATED, 1, 20), (OUTDATED, 2, 10),
    ]  # fmt: skip
    assert "Delays " in rmqtool("forecast", store, *VERSION).out
    step = answer["next_step"]["command"].split()
    assert step[:4] == ["rmqtool", "rebuild", str(store), "--delay-offsets"]
    assert rmqtool(*step[1:], "--yes").code == 0
    assert (forecast(store)["verdict"], forecast(store)["delays"]) == ("ok", [])


def test_what_a_crash_leaves_is_a_note_and_the_forecast_shows_it(store: Path) -> None:
    (store / OFFSETS).write_text('{"offsetTable":{1:20,2:0,18:0}}')
    (store / "abort").touch()
    answer = forecast(store)
    assert (answer["verdict"], [effect["severity"] for effect in answer["delays"]]) == ("ok", ["note"])
    ran = rmqtool("recover", store, "--yes", "--format", "json", *VERSION)
    assert ran.code == 0
    assert any("not delivered a second time: 10" in note for note in json.loads(ran.out)["notes"])
    assert forecast(store)["delays"] == []


def test_after_a_crash_recover_comes_first(store: Path) -> None:
    (store / OFFSETS).unlink()
    (store / "abort").touch()
    assert forecast(store)["next_step"]["command"].split()[1] == "recover"

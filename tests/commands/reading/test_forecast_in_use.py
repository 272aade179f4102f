"""A forecast beside a running broker, and starts that lose no message and do harm all the same: none is a plain OK."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.forecast.result import Forecast, QueueForecast, side_harms
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.store.test_probe_lock import holder

CLEAN = "5.5.0-clean-basic"


def forecast(path: Path, *options: object) -> tuple[Ran, dict[str, Any]]:
    ran = rmqtool("forecast", path, *options, "--format", "json")
    return ran, json.loads(ran.out)


def test_beside_a_running_broker_a_start_fails_and_does_harm(golden_copy: Unpacked) -> None:
    path = golden_copy(CLEAN)
    assert forecast(path)[1]["in_use"] is False
    with holder("byte", path / "lock"):
        ran, answer = forecast(path)
        screen = rmqtool("forecast", path)
    assert (ran.code, answer["verdict"], answer["in_use"]) == (3, "will-not-start", True)
    assert answer["next_step"]["command"] is None
    assert "stop the running broker" in answer["next_step"]["reason"]
    assert "can delete files of the running one" in " ".join(screen.out.split())
    assert forecast(path)[0].code == 0


def test_a_broker_that_loads_counts_as_one_that_runs(golden_copy: Unpacked) -> None:
    path = golden_copy(CLEAN)
    with holder("map", min((path / "commitlog").iterdir())):
        assert forecast(path)[1]["verdict"] == "will-not-start"


def test_what_an_upgrade_changes_is_told_beside_a_running_broker_and_is_no_plain_ok(golden_copy: Unpacked) -> None:
    path = golden_copy(CLEAN)
    with holder("byte", path / "lock"):
        ran, answer = forecast(path, "--from", "5.4.0", "--to", "5.5.1")
    assert (ran.code, answer["verdict"]) == (3, "not-fully-checked")
    assert [files["path"] for files in answer["not_looked_at"]] == ["lock"]


def test_keys_that_would_not_be_found_are_no_plain_ok(golden_copy: Unpacked) -> None:
    path = golden_copy("4.9.7-damage-index-last-missing")
    ran, answer = forecast(path)
    assert answer["forecasts"][0]["unindexed_messages"] > 0
    assert (ran.code, answer["verdict"]) == (3, "inconsistent")
    assert "would not be found in the index" in answer["headline"]
    command = answer["next_step"]["command"]
    assert rmqtool(*command.split()[1:], "--yes").code == 0
    assert forecast(path)[0].code == 0


def test_the_index_of_another_log_finds_nothing(golden_copy: Unpacked) -> None:
    """Its entries lead into this log too, but to other records: counted is what a broker finds by its keys."""
    path, other = golden_copy(CLEAN), golden_copy("4.9.7-bodies")
    rows = map(json.loads, rmqtool("dump", path, "--format", "jsonl").out.splitlines())
    messages = [row for row in rows if {"KEYS", "UNIQ_KEY"} & (row.get("properties") or {}).keys()]
    shutil.rmtree(path / "index")
    shutil.copytree(other / "index", path / "index")
    ran, answer = forecast(path)
    assert answer["forecasts"][0]["unindexed_messages"] == len(messages) > 0
    assert (ran.code, answer["verdict"]) == (3, "inconsistent")
    assert rmqtool("rebuild", path, "--index", "--yes").code == 0
    assert forecast(path)[0].code == rmqtool("verify", path).code == 0


@pytest.mark.parametrize(("repeating", "words"), [(1, "1 queue gets"), (2, "2 queues get")])
def test_offsets_that_are_used_again_are_no_plain_ok(repeating: int, words: str) -> None:
    queues = tuple(QueueForecast("T", number, 0, 5, 5, offsets_repeat=number < repeating) for number in range(3))
    (harm,) = side_harms([Forecast("5.5.1", True, None, "normal", queues=queues)])
    assert harm.startswith(words)

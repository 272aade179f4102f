"""What verify says of the timer of 5.x brokers; damage of each kind is in tests/fixtures/damages/test_catalog.py."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.timer import UNIT_SIZE
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import Depth, VerifyOptions
from rmqtool.verify.survey.result import Summary
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

RECIPE = RECIPES["timer"]
GOLDEN = "broker-5.5.0-timer"


def verified(path: Path, options: VerifyOptions | None = None, version: str = "5.5.0") -> tuple[Summary, list[Finding]]:
    findings: list[Finding] = []
    store = survey(open_directory(path), RECIPE.conf.settings() if path.name == "store" else None)
    return verify_store(store, rules_for(version), options, findings.append), findings


def timer_ids(findings: list[Finding]) -> Counter[str]:
    return Counter(finding.id for finding in findings if finding.id.startswith("timer."))


def test_a_healthy_timer_is_looked_at_and_has_no_finding(store: Path) -> None:
    summary, findings = verified(store)
    assert not timer_ids(findings)
    assert summary.complete
    assert not summary.not_looked_at


@pytest.mark.parametrize("depth", [Depth.STRUCTURE, Depth.RECORDS])
def test_what_is_not_compared_is_named(store: Path, depth: Depth) -> None:
    summary, findings = verified(store, VerifyOptions(depth=depth))
    assert not timer_ids(findings)
    assert {"timer wheel", "timer log"} <= {files.kind for files in summary.not_looked_at}


def test_a_running_broker_changes_the_timer_all_the_time(store: Path) -> None:
    summary, _ = verified(store, VerifyOptions(broker_runs=True))
    assert {"timer wheel", "timer log"} <= {files.kind for files in summary.not_looked_at}


def test_brokers_without_a_timer_use_none_of_its_files(store: Path) -> None:
    (store / "timerwheel").write_bytes(b"cut")
    assert not timer_ids(verified(store, version="4.9.7")[1])


def test_a_wheel_that_is_behind_its_log_is_no_finding(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN)
    (path / "timerwheel").unlink()  # a load makes it again of a log this short
    assert not timer_ids(verified(path)[1])


def test_units_that_were_lost_in_the_middle_stop_the_delivery(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN)
    with (path / "timerlog/00000000000000000000").open("r+b") as log:
        log.seek(20 * UNIT_SIZE)
        log.write(bytes(31 * UNIT_SIZE))
    findings = verified(path)[1]
    assert timer_ids(findings) == Counter({"timer.bad-unit": 1, "timer.slot-ahead-of-log": 1})
    (zeros,) = [finding for finding in findings if finding.id == "timer.bad-unit"]
    assert (zeros.file_position, zeros.length) == (20 * UNIT_SIZE, 31 * UNIT_SIZE)


@pytest.mark.parametrize("expired", [True, False])
def test_a_deleted_log_file_is_damage_while_its_messages_are_there(store: Path, expired: bool) -> None:
    (store / "timerlog/00000000000000000000").unlink()
    if expired:
        (store / "commitlog/00000000000000000000").unlink()
    ids = timer_ids(verified(store)[1])
    assert ids.keys() == ({"timer.expired-record"} if expired else {"timer.expired-record", "timer.missing-unit"})
    assert expired or ids["timer.missing-unit"] == 12


@pytest.mark.parametrize("command", [("rebuild", "--timer"), ("recover",)])
def test_statistics_that_no_broker_can_read_stop_its_start(golden_copy: Unpacked, command: tuple[str, ...]) -> None:
    path = golden_copy(GOLDEN)
    for name in ("timermetrics", "timermetrics.bak"):
        assert not timer_ids(verified(path)[1])
        assert json.loads(rmqtool("forecast", path, "--format", "json").out)["forecasts"][0]["starts"]
        (path / "config" / name).write_text('{"timingCount":')
    (lost,) = [finding for finding in verified(path)[1] if finding.id == "config.unreadable"]
    assert (lost.file, lost.repair) == ("config/timermetrics", "rebuild --timer")
    assert not json.loads(rmqtool("forecast", path, "--format", "json").out)["forecasts"][0]["starts"]
    rmqtool(command[0], path, *command[1:], "--yes")
    assert json.loads(rmqtool("forecast", path, "--format", "json").out)["forecasts"][0]["starts"]
    assert not [finding for finding in verified(path)[1] if finding.id == "config.unreadable"]


def test_forecast_and_the_steps_after_it_lead_to_a_timer_that_works(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN)
    with (path / "timerlog/00000000000000000000").open("r+b") as log:
        log.seek(20 * UNIT_SIZE)
        log.write(bytes(31 * UNIT_SIZE))
    ran = rmqtool("forecast", path, "--format", "json")
    answer = json.loads(ran.out)
    assert (ran.code, answer["verdict"]) == (3, "inconsistent")
    assert {effect["id"] for effect in answer["timer"]} == {"timer.bad-unit", "timer.slot-ahead-of-log"}
    assert any("no later timer is delivered" in effect["brokers"] for effect in answer["timer"])
    assert not answer["not_looked_at"]
    assert "Timer " in rmqtool("forecast", path).out
    ran = rmqtool("recover", path, "--yes", "--format", "json")
    assert (ran.code, json.loads(ran.out)["verdict"]) == (0, "ok")
    assert json.loads(rmqtool("forecast", path, "--format", "json").out)["timer"] == []
    assert rmqtool("verify", path).code == 0


@pytest.mark.parametrize("name", ["timerwheel", "timerlog/00000000000000000000", "config/timercheck"])
def test_no_byte_of_the_timer_leads_to_anything_but_findings(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(GOLDEN)
    chance = random.Random(name)
    size = (path / name).stat().st_size
    used = range(238_889 * 32, 238_891 * 32) if name == "timerwheel" else range(min(size, 3172))
    for _ in range(8):
        with (path / name).open("r+b") as file:
            for _ in range(4):
                file.seek(chance.choice(used))
                file.write(chance.randbytes(chance.choice((1, 8))))
        summary, findings = verified(path)
        assert all(finding.message for finding in findings)
        assert summary.findings.total() == len(findings)

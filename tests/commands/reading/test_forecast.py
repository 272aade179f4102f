"""A forecast takes from the broker's configuration what decides about its start."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from rmqtool.forecast.options import ForecastOptions, forecast_options
from rmqtool.store.config.broker_conf import broker_conf
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

DEFAULTS = ForecastOptions()


@pytest.mark.parametrize(
    ("key", "value", "option", "expected"),
    [
        ("checkCRCOnRecover", "false", "check_crc", False),
        ("forceVerifyPropCRC", "true", "record_crc", True),
        ("checkCommitLogOffsetOnRecover", "true", "check_physical_offset", True),
        ("recheckReputOffsetFromCq", "true", "recheck_queues", True),
        ("commitLogRecoverMaxNum", "13", "recover_files_max", 13),
        ("commitLogRecoverMaxNum", "many", "recover_files_max", None),
        ("messageIndexSafe", "true", "message_index_safe", True),
        ("messageIndexEnable", "false", "index_enabled", False),
        ("enableMultiDispatch", "false", "multi_dispatch", False),
        ("enableLmq", "false", "lmq", False),
        ("enableConsumeQueueExt", "false", "extensions", False),
        ("brokerRole", "SLAVE", "is_slave", True),
    ],
)
def test_one_setting_changes_one_option(key: str, value: str, option: str, expected: object) -> None:
    options = forecast_options(broker_conf({key: value}))
    assert getattr(options, option) == expected
    names = {field.name for field in fields(options) if field.compare} - {option}
    assert {name: getattr(options, name) for name in names} == {name: getattr(DEFAULTS, name) for name in names}


def test_without_a_configuration_the_defaults_hold() -> None:
    assert forecast_options(None) == forecast_options(broker_conf({})) == DEFAULTS


@pytest.mark.parametrize(
    ("store", "setting", "is_named"),
    [
        ("5.5.0-clean-basic", "duplicationEnable=true", True),
        ("5.5.0-clean-basic", "duplicationEnable=TRUE", True),
        ("5.5.0-clean-basic", "duplicationEnable=yes", False),
        ("5.5.0-clean-basic", "indexFileWriteEnable=false", True),
        ("5.5.0-clean-basic", "enableControllerMode=true", True),
        ("5.5.0-clean-basic", "enableAcceleratedRecovery=true", False),
        ("5.5.0-rocksdb-cq", "enableAcceleratedRecovery=true", True),
        ("5.5.0-clean-basic", "enableCompaction=false", False),
        ("broker-5.5.0-compaction", "enableCompaction=false", True),
    ],
)
def test_a_setting_that_is_not_simulated_is_named(golden: Unpacked, store: str, setting: str, is_named: bool) -> None:
    ran = rmqtool("forecast", golden(store), "--broker-version", "5.5.0", "--set", setting, "--format", "json")
    answer = json.loads(ran.out)
    named = [row["reason"] for row in answer["not_looked_at"] if row["path"] == "broker.conf"]
    assert bool(named) == is_named
    if is_named:
        assert setting.lower() in named[0].lower()
        assert (answer["verdict"], ran.code) != ("ok", 0)
        assert ran.code == 3


def test_a_plan_names_a_setting_that_is_not_simulated(golden: Unpacked, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("duplicationEnable=true\n")
    for store, steps in (("5.5.0-clean-basic", False), ("5.5.0-crashed", True)):
        options = ("--broker-conf", tmp_path / "broker.conf", "--broker-version", "5.5.0", "--format", "json")
        ran = rmqtool("recover", golden(store), "--full", "--dry-run", *options)
        plan = json.loads(ran.out)
        assert bool(plan["steps"]) == steps
        assert [row["path"] for row in plan["not_looked_at"]] == ["broker.conf"]
        assert any("duplicationEnable=true is not simulated" in note for note in plan["notes"])
        assert (plan["verdict"], ran.code) == ("not-fully-checked", 3)


def test_versions_that_fit_a_store_are_all_asked_where_they_differ(golden_copy: Unpacked) -> None:
    """Without queues 4.4.0 serves nothing after a clean stop, and 4.9.0 enters the messages again."""
    path = golden_copy("old-setting-names-4.4.0")
    answer = json.loads(rmqtool("forecast", path, "--format", "json").out)
    assert (answer["verdict"], [one["broker_version"] for one in answer["forecasts"]]) == ("ok", ["4.9.0"])
    shutil.rmtree(path / "consumequeue")
    ran = rmqtool("forecast", path, "--format", "json")
    answer = json.loads(ran.out)
    lost = {one["broker_version"]: one["lost"]["messages"] for one in answer["forecasts"]}
    assert (ran.code, answer["verdict"], lost) == (3, "would-lose", {"4.4.0": 30, "4.9.0": 0})
    screen = rmqtool("forecast", path).out
    assert screen.startswith("WOULD LOSE: 30 messages would be lost")
    assert "4.4.0    yes       30" in screen
    assert json.loads(rmqtool("forecast", path, "--broker-version", "4.9.0", "--format", "json").out)["verdict"] == "ok"


def test_a_version_that_fits_and_does_not_start_is_the_verdict(tmp_path: Path) -> None:
    """Brokers before 5.1.3 do not load a log with an empty last file; later ones delete it."""
    path = tmp_path / "store"
    size = ("--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=1000")
    append = ("append", path, "--create", "--topic", "T", "--body", "x" * 9000, "--count", 9)
    assert rmqtool(*append, *size, "--broker-version", "5.1.4").code == 0
    (path / "compaction").mkdir()
    assert rmqtool("verify", path).code == 0
    (path / f"commitlog/{2 * 65536:020}").touch()
    for command in ("forecast", "verify", "info"):
        ran = rmqtool(command, path)
        (headline,) = (line for line in ran.out.splitlines() if line.startswith("WILL NOT START: "))
        assert "5.1.0" in headline
    assert rmqtool("verify", path, "--broker-version", "5.3.3").code == 3
    assert not rmqtool("verify", path, "--broker-version", "5.3.3").out.startswith("WILL NOT START")
    assert rmqtool("recover", path, "--yes").code == 0
    assert [rmqtool(command, path).code for command in ("forecast", "verify")] == [0, 0]


@pytest.mark.parametrize("ends", ["clean", "killed"])
def test_verify_and_recover_find_what_the_worst_of_several_versions_loses(golden_copy: Unpacked, ends: str) -> None:
    """4.4.0 and 4.9.0 fit the store, and differ after a clean stop only; the repair is for both."""
    path = golden_copy("old-setting-names-4.4.0")
    shutil.rmtree(path / "consumequeue")
    if ends == "killed":
        (path / "abort").touch()
    size = ("--queue-file-size", 1000)
    answer = json.loads(rmqtool("forecast", path, *size, "--format", "json").out)
    versions = [one["broker_version"] for one in answer["forecasts"]]
    assert versions == (["4.9.0"] if ends == "killed" else ["4.4.0", "4.9.0"])
    checked = json.loads(rmqtool("verify", path, *size, "--format", "json").out)["summary"]
    assert (checked["verdict"], checked["findings"]["consumequeue.missing-queue"]) == ("inconsistent", 2)
    plan = json.loads(rmqtool("recover", path, *size, "--dry-run", "--format", "json").out)
    assert {plan["forecast_after"][version]["lost"] for version in ("4.4.0", "4.9.0")} == {0}
    assert rmqtool("recover", path, *size, "--yes").code == 0
    for version in ("4.4.0", "4.9.0"):
        assert rmqtool("forecast", path, *size, "--broker-version", version).code == 0

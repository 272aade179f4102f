"""What settings do to an answer: each version reads the names that it has, and the sizes of files hang on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands.transcripts import json_answer, rmqtool
from tests.conftest import Unpacked
from tests.life_stores import life_store
from tests.store_state import store_state

OLD = "old-setting-names-4.4.0"


def conf_of(tmp_path: Path, *more: str) -> Path:
    path = tmp_path / "b.conf"
    lines = [f"{name}={value}" for name, value in life_store(OLD).config.items()]
    path.write_text("\n".join([*lines, *more]))
    return path


@pytest.mark.parametrize("version", [(), ("--broker-version", "4.4.0")], ids=["inferred", "named"])
def test_a_store_of_old_setting_names_is_healthy_with_its_file(
    golden: Unpacked, tmp_path: Path, version: tuple[str, ...]
) -> None:
    options = ("--broker-conf", conf_of(tmp_path), *version)
    for command in ("forecast", "verify"):
        ran = rmqtool(command, golden(OLD), *options)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("OK")
    ran = rmqtool("recover", golden(OLD), "--dry-run", *options)
    assert (ran.code, ran.out.splitlines()[0]) == (0, "Nothing to do.")


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_no_repair_fits_files_to_a_size_whose_name_is_not_read(
    golden_copy: Unpacked, tmp_path: Path, version: str
) -> None:
    path, conf = golden_copy(OLD), conf_of(tmp_path)
    options = ("--broker-conf", conf, "--broker-version", version)
    before = store_state(path)
    ran = rmqtool("forecast", path, "--format", "json", *options)
    answer = json.loads(ran.out)
    assert (ran.code, answer["verdict"], answer["needs_decision"]) == (3, "will-not-start", True)
    assert (
        f"write mappedFileSizeCommitLog=1048576 and mappedFileSizeConsumeQueue=300000 into {conf}"
        in (answer["next_step"]["reason"])
    )
    for command in (("recover", "--yes"), ("salvage", "--yes"), ("rebuild", "--queues", "--yes")):
        ran = rmqtool(command[0], path, *command[1:], *options)
        assert ran.code == 5
        assert "write mappedFileSizeCommitLog=1048576" in ran.err
    assert store_state(path) == before
    conf_of(tmp_path, "mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=300000")
    assert rmqtool("forecast", path, *options).code == 0


def test_an_upgrade_with_the_old_file_changes_the_sizes(golden: Unpacked, tmp_path: Path) -> None:
    options = ("--from", "4.4.0", "--broker-conf", conf_of(tmp_path), "--format", "json")
    answer = json.loads(rmqtool("forecast", golden(OLD), "--to", "5.5.0", *options).out)
    change = answer["changes"][0]
    assert (change["id"], change["prevents_start"], change["lost_messages"]) == ("settings.other-sizes", True, 0)
    assert "write mappedFileSizeCommitLog=1048576" in answer["next_step"]["reason"].lower().replace(
        "mappedfilesizecommitlog", "mappedFileSizeCommitLog"
    )
    answer = json.loads(rmqtool("forecast", golden(OLD), "--to", "4.9.2", *options).out)
    change = answer["changes"][0]
    assert (change["id"], change["prevents_start"], change["lost_messages"]) == ("settings.other-sizes", False, 30)
    answer = json.loads(rmqtool("forecast", golden(OLD), "--to", "4.5.1", *options).out)
    assert [change["id"] for change in answer["changes"]] == []


def test_versions_side_by_side_read_the_file_each_in_its_own_way(golden: Unpacked, tmp_path: Path) -> None:
    ran = rmqtool(
        "forecast", golden(OLD), "--broker-version", "all", "--broker-conf", conf_of(tmp_path), "--format", "json"
    )
    starts = {row["broker_version"]: row["starts"] for row in json.loads(ran.out)["forecasts"]}
    assert starts.pop("4.4.0") is True
    assert set(starts.values()) == {False}


def test_a_size_that_a_person_gives_goes_before_the_file(golden: Unpacked, tmp_path: Path) -> None:
    options = ("--broker-conf", conf_of(tmp_path), "--from", "4.4.0", "--to", "5.5.0", "--format", "json")
    sizes = ("--log-file-size", "1048576", "--queue-file-size", "300000")
    answer = json.loads(rmqtool("forecast", golden(OLD), *options, *sizes).out)
    assert all(forecast["starts"] for forecast in answer["forecasts"])


def test_a_name_that_no_version_has_is_a_warning_in_a_file(golden: Unpacked, tmp_path: Path) -> None:
    conf = conf_of(tmp_path, "storePathConsumeQueue=/q", "abortFile=/a", "enableDLedgerCommitLog=true")
    ran = rmqtool("forecast", golden(OLD), "--broker-conf", conf, "--broker-version", "4.5.1")
    assert ran.code == 0
    assert [line.split(": ", 3)[-1] for line in ran.err.splitlines()] == [
        "storePathConsumeQueue means nothing to 4.5.1, which no version reads",
        "abortFile means nothing to 4.5.1, which no version reads",
        "enableDLedgerCommitLog means nothing to 4.5.1, which no version reads; it reads enableDLegerCommitLog",
    ]


@pytest.mark.parametrize(
    ("text", "nearest"), [("storetype=defaultRocksDB", "; did you mean storeType?"), ("nothing=1", "")]
)
def test_a_name_that_no_version_has_is_refused_where_it_is_typed(golden: Unpacked, text: str, nearest: str) -> None:
    ran = rmqtool("forecast", golden(OLD), "--set", text)
    assert (ran.code, ran.out) == (2, "")
    assert f"--set {text}: no broker version has a setting of this name{nearest}" in ran.err


def test_a_value_that_the_broker_does_not_take_is_a_warning(golden: Unpacked, tmp_path: Path) -> None:
    conf = conf_of(tmp_path, "fileReservedTime = 72 ")
    ran = rmqtool("forecast", golden(OLD), "--broker-conf", conf, "--broker-version", "4.4.0")
    assert "fileReservedTime='72 ' is not a number of 32 bits; the broker uses its default" in ran.err


@pytest.mark.parametrize("text", ["abc", ""])
def test_delay_levels_that_are_none_keep_a_broker_from_starting(golden: Unpacked, tmp_path: Path, text: str) -> None:
    conf = conf_of(tmp_path, f"messageDelayLevel={text}")
    options = ("--broker-conf", conf, "--broker-version", "4.4.0")
    code, answer = json_answer("forecast", golden(OLD), *options)
    assert (code, answer["verdict"], answer["needs_decision"]) == (3, "will-not-start", True)
    problem = f"{conf}: messageDelayLevel={text!r} is not a list of delays"
    assert answer["next_step"] == {"command": None, "reason": f"correct the settings first: {problem}"}
    assert answer["forecasts"][0]["why_not"] == problem
    ran = rmqtool("rebuild", golden(OLD), "--queues", "--dry-run", *options)
    assert ran.code == 5
    assert "no broker starts with it" in ran.err

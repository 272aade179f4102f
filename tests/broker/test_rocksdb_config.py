"""Configuration in RocksDB, as real brokers write it, is what their JSON files would say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.config.config_json import consumer_offsets, topics
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS, TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.view import open_directory
from tests.broker.program import JudgeError
from tests.broker.toolchain import require_tools
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool
from tests.rocksdb_cases import write_rows
from tests.store_state import assert_store_unchanged

BASE = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600, "maxHashSlotNum": 100, "maxIndexNum": 200}
FORMS: dict[str, dict[str, Any]] = {
    "separate": {"storeType": "defaultRocksDB"},
    "in one": {"storeType": "defaultRocksDB", "broker.useSingleRocksDBForAllConfigs": True},
    "version 2": {"broker.configManagerVersion": "v2"},
}
DIRECTORIES = {"separate": "config/topics", "in one": "config/metadata", "version 2": "config/rdb"}
ZERO_TIME = ("checkpoint.zero-time", None)
"""Brokers that ran for less than a minute."""
CASES = [("5.5.0", "separate"), ("5.5.0", "version 2")] + [
    pytest.param(version, form, marks=pytest.mark.slow)
    for version, form in (
        ("5.3.3", "separate"), ("5.4.0", "separate"), ("5.4.0", "in one"), ("5.4.0", "version 2"), ("5.5.0", "in one"),
    )
]  # fmt: skip


def run(path: Path, version: str, form: str) -> WholeBroker:
    require_tools()
    return WholeBroker(version, path, BASE | FORMS[form], {"Orders": {"readQueueNums": 2, "writeQueueNums": 2}})


@pytest.mark.parametrize(("version", "form"), CASES)
def test_a_broker_s_configuration_is_read(tmp_path: Path, version: str, form: str) -> None:
    path = tmp_path / "store"
    with run(path, version, form) as broker:
        for number in range(5):
            broker.send("Orders", number % 2, b"%d" % number)
        broker.commit("G1", "Orders", 0, 2)
        broker.commit("G1", "Orders", 1, 9)
    with assert_store_unchanged(path):
        view = open_directory(path)
        known = read_config(view, TOPICS)
        assert known.read_path == DIRECTORIES[form]
        assert topics(known)["Orders"].write_queue_count == 2
        offsets = consumer_offsets(read_config(view, CONSUMER_OFFSETS))
        is_kept = form != "in one"  # brokers do not keep the offsets that come before a clean stop in this form
        assert offsets.get(("Orders", "G1")) == ({0: 2, 1: 9} if is_kept else None)
        answer = json.loads(rmqtool("verify", path, "--format", "json").out)
        findings = {(each["id"], each.get("queue_id")) for each in answer["findings"]} - {ZERO_TIME}
        expected = {("config.consumer-offset-beyond-queue", 1), ("config.consumer-offset-without-group", None)}
        assert findings == (expected if is_kept else set())
        assert answer["summary"]["not_looked_at"] == []
        rows = [
            json.loads(line) for line in rmqtool("dump", path, "--type", "config", "--format", "jsonl").out.splitlines()
        ]
        contents = [row["content"] for row in rows if row["file"] == DIRECTORIES[form]]
        assert any("Orders" in content.get("topicConfigTable", {}) for content in contents)


@pytest.mark.parametrize("more", [True, False], ids=["more", "fewer"])
def test_a_broker_takes_the_file_that_was_changed_more_often(tmp_path: Path, more: bool) -> None:
    path = tmp_path / "store"
    with run(path, "5.5.0", "separate"):
        pass
    other = {"topicName": "Other", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    file = {"topicConfigTable": {"Other": other}, "dataVersion": {"counter": 50 if more else 0, "timestamp": 1}}
    (path / TOPICS).write_text(json.dumps(file), "utf-8")
    assert ("Other" in topics(read_config(open_directory(path), TOPICS))) == more
    with run(path, "5.5.0", "separate") as broker:
        if more:
            assert [queue["queueId"] for queue in broker.consume("Other")] == [0, 1, 2]
    (path / TOPICS).unlink()
    assert ("Other" in topics(read_config(open_directory(path), TOPICS))) == more


@pytest.mark.parametrize("form", FORMS)
def test_a_family_that_brokers_do_not_know_stops_them_in_version_2(tmp_path: Path, form: str) -> None:
    path = tmp_path / "store"
    with run(path, "5.5.0", form):
        pass
    write_rows(path / DIRECTORIES[form], {"newer": {b"key": b"value"}})
    write_rows(path / "rocksdbstore", {"newer": {b"key": b"value"}})
    starts = form != "version 2"
    forecast = rmqtool("forecast", path, "--broker-version", "5.5.0").out
    assert forecast.startswith("INCONSISTENT") is not starts
    answer = json.loads(rmqtool("verify", path, "--format", "json").out)
    assert {each["file"] for each in answer["findings"]} == (set() if starts else {DIRECTORIES[form]})
    try:
        with run(path, "5.5.0", form):
            assert starts
    except JudgeError:
        assert not starts


@pytest.mark.parametrize("form", ["separate", "version 2"])
def test_a_database_that_does_not_open_stops_a_broker(tmp_path: Path, form: str) -> None:
    path = tmp_path / "store"
    with run(path, "5.5.0", form):
        pass
    (path / DIRECTORIES[form] / "CURRENT").write_bytes(b"")
    answer = json.loads(rmqtool("verify", path, "--format", "json").out)
    places = {each["file"] for each in answer["findings"] if each["id"] == "config.unreadable"}
    assert places == {DIRECTORIES[form]}
    assert [each["path"] for each in answer["summary"]["not_looked_at"]] == [DIRECTORIES[form]]
    with pytest.raises(JudgeError), run(path, "5.5.0", form):
        pass

"""`rocksdbstore/` as real brokers write it has no finding; damage does not keep them from starting."""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.toolchain import require_tools
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool
from tests.store_state import assert_store_unchanged

CONFIG: dict[str, Any] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 600,
    "maxHashSlotNum": 100,
    "maxIndexNum": 200,
    "indexRocksDBEnable": True,
    "transRocksDBEnable": True,
    "timerRocksDBEnable": True,
    "timerWheelEnable": True,
    "transWriteOriginTransHalfEnable": False,
}
VERSIONS = ["5.5.0", pytest.param("5.4.0", marks=pytest.mark.slow)]


def messages(count: int) -> list[dict[str, Any]]:
    return [
        {
            "topic": "Orders",
            "queueId": number % 2,
            "body": b"%d" % number,
            "properties": {"KEYS": f"key{number} a@b key{number}", "TAGS": f"t{number % 3}", "UNIQ_KEY": f"U{number}"},
        }
        for number in range(count)
    ]


def side_findings(path: Path) -> tuple[set[str], list[str]]:
    """Ids of the findings about the database, and what was not looked at; of a copy, for the judge keeps the lock."""
    with TemporaryDirectory() as folder:
        copy = copy_store(path, Path(folder) / "copy")
        with assert_store_unchanged(copy):
            answer = json.loads(rmqtool("verify", copy, "--format", "json").out)
    ids = {each["id"] for each in answer["findings"] if each["id"].startswith("rocksdbstore.")}
    return ids, [each["path"] for each in answer["summary"]["not_looked_at"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_index_has_a_row_for_each_key(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    with judge_of(version).open(tmp_path, CONFIG) as store:
        store.put(*messages(40))
        store.put({"topic": "Orders", "queueId": 0, "body": b"x", "properties": {"KEYS": "no unique key"}})
        store.wait_dispatched()
    assert side_findings(tmp_path) == (set(), [])
    lines = rmqtool("dump", tmp_path, "--type", "rocksdbstore", "--format", "jsonl").out.splitlines()
    rows = [json.loads(line) for line in lines]
    kinds = [row["kind"] for row in rows if row["type"] == "index-row"]
    assert {kind: kinds.count(kind) for kind in kinds} == {"key": 80, "tag": 40, "unique-key": 40}
    assert {row["key"] for row in rows if row.get("kind") == "key"} == {
        "a@b",
        *(f"key{number}" for number in range(40)),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_killed_broker_had_in_memory_is_behind(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    store = judge_of(version).open(tmp_path, CONFIG)
    store.put(*messages(10))
    store.wait_dispatched()
    store.shutdown()
    store = judge_of(version).open(tmp_path, CONFIG)
    store.put(*messages(10))
    store.wait_dispatched()
    store.halt()
    assert side_findings(tmp_path) == ({"rocksdbstore.behind-log"}, [])
    judge_of(version).examine(tmp_path, CONFIG)
    assert side_findings(tmp_path) == (set(), [])


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST*", "*.sst"])
def test_damage_does_not_stop_a_broker(judge_of: JudgeOf, tmp_path: Path, pattern: str) -> None:
    with judge_of("5.5.0").open(tmp_path, CONFIG) as store:
        store.put(*messages(10))
        store.wait_dispatched()
    for file in (tmp_path / "rocksdbstore").glob(pattern):
        file.write_bytes(bytes(range(100)))
    assert side_findings(tmp_path) == ({"rocksdbstore.not-loadable"}, ["rocksdbstore"])
    assert judge_of("5.5.0").examine(tmp_path, CONFIG)["load"]


@pytest.mark.parametrize("text", ["", "MANIFEST-000099\n", "MANIFEST-000005"])
def test_nor_does_damage_to_one_without_rows(judge_of: JudgeOf, tmp_path: Path, text: str) -> None:
    """A broker with the settings that it has by default, which opens the database and writes nothing into it."""
    config = {name: value for name, value in CONFIG.items() if "Rocks" not in name}
    with judge_of("5.5.0").open(tmp_path, config) as store:
        store.put(*messages(2))
        store.wait_dispatched()
    assert side_findings(tmp_path) == (set(), [])
    (tmp_path / "rocksdbstore/CURRENT").write_text(text)
    assert side_findings(tmp_path) == ({"rocksdbstore.not-loadable"}, ["rocksdbstore"])
    assert judge_of("5.5.0").examine(tmp_path, config)["load"]


@pytest.mark.slow
def test_timers_and_transactions_of_a_whole_broker(tmp_path: Path) -> None:
    require_tools()
    path = tmp_path / "store"
    with WholeBroker("5.5.0", path, CONFIG, {"Orders": {"readQueueNums": 2, "writeQueueNums": 2}}) as broker:
        for hours in (1, 2, 3):
            due = int(time.time() * 1000) + hours * 3_600_000
            broker.send("Orders", 0, b"later", {"TIMER_DELIVER_MS": str(due)})
        for number in range(3):
            broker.send("Orders", 0, b"half%d" % number, {"TRAN_MSG": "true", "PGROUP": "producers"})
        time.sleep(5)
    assert side_findings(path) == (set(), [])
    lines = rmqtool("dump", path, "--type", "rocksdbstore", "--format", "jsonl").out.splitlines()
    types = [json.loads(line)["type"] for line in lines]
    assert (types.count("timer-row"), types.count("transaction-row")) == (3, 3)

"""After `convert` real brokers serve every message, on either side; after a change of storeType alone they do not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.checkpoint import CHECKPOINT
from tests import golden_stores
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.store_state import store_state

pytestmark = pytest.mark.broker

STORES = (
    "5.5.0-clean-basic",
    "5.5.0-many-files",
    "5.5.0-expired-head",
    pytest.param("5.5.0-expired-head-and-queues", marks=pytest.mark.slow),
    pytest.param("5.5.0-delay", marks=pytest.mark.slow),
    pytest.param("5.5.0-transaction", marks=pytest.mark.slow),
    pytest.param("5.5.0-keys-index", marks=pytest.mark.slow),
)
VERSIONS = ("5.3.3", "5.5.0")


def config_of(name: str) -> Mapping[str, Any]:
    return golden_stores.manifest(name).config


def converted(path: Path, name: str, side: str) -> Ran:
    config = config_of(name)
    sizes = ("--queue-file-size", config["mappedFileSizeConsumeQueue"])
    return rmqtool("convert", path, "--queues", side, "--broker-version", "5.5.0", *sizes, "--yes")


def served(report: Mapping[str, Any]) -> dict[tuple[str, int], tuple[int, set[int]]]:
    """The end of each queue, and the places in the log of the messages that pulls give."""
    return {
        (queue["topic"], queue["queueId"]): (queue["max"], {row[2] for row in queue["messages"] if row[1] == "FOUND"})
        for queue in report["served"]["queues"]
        if queue["max"]
    }


def count(report: Mapping[str, Any]) -> int:
    return sum(len(messages) for _, messages in served(report).values())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", STORES)
def test_both_ways_serve_what_was_served_before(
    golden_copy: Unpacked, judge_of: JudgeOf, tmp_path: Path, name: str, version: str
) -> None:
    path, config = golden_copy(name), config_of(name)
    judge = judge_of(version)
    before = served(judge.examine(copy_store(path, tmp_path / "as it was"), config))
    ran = converted(path, name, "rocksdb")
    assert ran.code == 0, ran.err
    assert rmqtool("verify", path).code == 0
    in_rocksdb = served(
        judge.examine(copy_store(path, tmp_path / "in RocksDB"), {**config, "storeType": "defaultRocksDB"})
    )
    assert in_rocksdb == before
    ran = converted(path, name, "file")
    assert ran.code == 0, ran.err
    assert not list((path / "consumequeue").glob("*.sst"))
    assert rmqtool("verify", path).code == 0
    in_files = served(judge.examine(path, config))
    # Nothing in the log or in files tells of a queue whose messages have all expired.
    assert in_files == {name: queue for name, queue in before.items() if queue[1]}


def test_light_queues_are_converted_too(golden_copy: Unpacked, judge_of: JudgeOf) -> None:
    """A store does not list them, so they are asked for by name."""
    name, queue = "5.5.0-lmq", ("%LMQ%all", 0)
    path, config = golden_copy(name), {**config_of(name), "storeType": "defaultRocksDB"}
    manifest = golden_stores.manifest(name).reads["5.5.0"].served
    assert manifest is not None
    expected = [row[2] for row in manifest.queue(*queue).messages]
    assert converted(path, name, "rocksdb").code == 0
    with judge_of("5.5.0").open(path, config) as store:
        ((_, status, _, _, places),) = store.get(*queue, [0])["rows"]
    assert (status, places) == ("FOUND", expected)


def test_a_change_of_the_setting_alone_loses_what_convert_keeps(golden_copy: Unpacked, judge_of: JudgeOf) -> None:
    name = "5.5.0-many-files"
    path, config = golden_copy(name), {**config_of(name), "storeType": "defaultRocksDB"}
    changed = ("--set", "storeType=defaultRocksDB", "--broker-version", "5.5.0")
    ran = rmqtool("forecast", path, *changed, "--format", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["verdict"]) == (3, "would-lose")
    assert "convert" in found["next_step"]["command"]
    lost = found["forecasts"][0]["lost"]["messages"]
    assert json.loads(rmqtool("forecast", path, "--format", "json").out)["verdict"] == "ok"
    messages = len(golden_stores.manifest(name).records)
    assert count(judge_of("5.5.0").examine(path, config)) == messages - lost < messages
    assert rmqtool("forecast", path, "--set", "storeType").code == 2


def test_both_sides_can_be_written_twice(golden_copy: Unpacked, judge_of: JudgeOf) -> None:
    name = "5.5.0-clean-basic"
    path, config = golden_copy(name), config_of(name)
    assert converted(path, name, "both").code == 0
    assert list((path / "consumequeue").glob("*.sst"))
    report = judge_of("5.5.0").examine(path, {**config, "rocksdbCQDoubleWriteEnable": True})
    assert count(report) == len(golden_stores.manifest(name).records)


def test_undo_brings_the_files_back(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    before = store_state(path)
    assert converted(path, path.name, "rocksdb").code == 0
    assert rmqtool("undo", path, "--yes").code == 0
    assert {name: state for name, state in store_state(path).items() if not name.startswith(".rmqtool")} == before


def test_files_take_over_from_a_broker_s_database(golden_copy: Unpacked) -> None:
    """Nothing of it stays, its LOCK neither: whoever finds one takes the store for one with two sides."""
    path = golden_copy("5.5.0-rocksdb-cq")
    (path / "consumequeue" / "LOCK").touch()
    before = store_state(path)
    assert converted(path, path.name, "file").code == 0
    assert not [file for file in (path / "consumequeue").iterdir() if file.is_file()]
    assert rmqtool("verify", path).code == 0
    assert rmqtool("undo", path, "--yes").code == 0
    assert {name: state for name, state in store_state(path).items() if not name.startswith(".rmqtool")} == before


def test_files_get_the_time_of_the_queues_in_the_checkpoint(golden_copy: Unpacked) -> None:
    """A 5.3.3 with queues in RocksDB left 0 there after a clean stop; with queues in files it writes the time."""
    path = golden_copy("5.5.0-rocksdb-cq")
    with (path / "checkpoint").open("r+b") as checkpoint:
        checkpoint.seek(CHECKPOINT.position("consumequeue_timestamp_ms"))
        checkpoint.write(bytes(8))
    options = ("--broker-version", "5.3.3", "--yes")
    assert rmqtool("rebuild", path, "--index", *options).code == 0  # a 5.3.3 enters no tags into it
    ran = rmqtool("convert", path, "--queues", "file", "--queue-file-size", 600, *options)
    assert ran.code == 0, ran.out
    assert "checkpoint" not in rmqtool("verify", path, "--broker-version", "5.3.3").out


def test_what_is_there_already_is_left_alone(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-rocksdb-cq")
    before = store_state(path)
    assert converted(path, path.name, "rocksdb").code == 0
    assert store_state(path) == before


def test_convert_refuses_what_it_cannot_keep(golden: Unpacked) -> None:
    ran = rmqtool("convert", golden("5.5.0-crashed"), "--queues", "rocksdb", "--dry-run")
    assert (ran.code, "run rmqtool recover first" in ran.err) == (5, True)
    ran = rmqtool("convert", golden("4.9.7-clean-basic"), "--queues", "rocksdb", "--dry-run")
    assert (ran.code, "--broker-version" in ran.err) == (2, True)
    ran = rmqtool("convert", golden("5.5.0-inner-batch"), "--queues", "rocksdb", "--dry-run")
    assert (ran.code, "batch queues" in ran.err) == (4, True)


@pytest.mark.parametrize("store_type", ["default", "defaultRocksDB"])
def test_a_broker_conf_of_either_side_will_do(golden_copy: Unpacked, tmp_path: Path, store_type: str) -> None:
    path = golden_copy("5.5.0-clean-basic")
    settings = {**config_of(path.name), "storeType": store_type}
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
    for side, has_database in (("rocksdb", True), ("file", False)):
        ran = rmqtool("convert", path, "--queues", side, "--broker-version", "5.5.0", "--broker-conf", conf, "--yes")
        assert ran.code == 0, ran.err
        assert bool(list((path / "consumequeue").glob("*.sst"))) is has_database
        assert rmqtool("verify", path).code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_deleted_topic_of_which_the_log_has_messages_is_served_too(
    golden_copy: Unpacked, judge_of: JudgeOf, tmp_path: Path, version: str
) -> None:
    name, topic = "5.5.0-many-files", "Audit"
    path, config = golden_copy(name), config_of(name)
    judge = judge_of(version)
    before = served(judge.examine(copy_store(path, tmp_path / "as it was"), config))
    shutil.rmtree(path / "consumequeue" / topic)
    (path / "config").mkdir(exist_ok=True)
    others = {each: {"topicName": each, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6} for each, _ in before}
    del others[topic]
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": others}), "utf-8")
    for side, store_type in (("rocksdb", "defaultRocksDB"), ("file", "default")):
        ran = converted(path, name, side)
        assert ran.code == 0, ran.err
        after = judge.examine(copy_store(path, tmp_path / side), {**config, "storeType": store_type})
        assert served(after) == before

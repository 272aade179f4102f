"""Logs of 1 to 25 files, a deleted topic, an expired head: `convert` loses none of their messages, either way."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from tests.broker.broker import Judge
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.commands.transcripts import rmqtool

FILE_SIZE: Final = 16_384
SIZES: Final = {"mappedFileSizeCommitLog": FILE_SIZE, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 100}
STORE_TYPE: Final = {"file": "default", "rocksdb": "defaultRocksDB"}
TOPICS: Final = {name: {"writeQueueNums": 2} for name in ("Orders", "Gone")}
OTHER: Final = {"file": "rocksdb", "rocksdb": "file"}
STOPS: Final = 5
Name = tuple[str, int, int]
"""Topic, queue and queue offset of a message."""
CASES: Final = [
    pytest.param(version, files, id=f"{version}-{files}", marks=() if (version, files) in quick else pytest.mark.slow)
    for quick in [{("5.5.0", 1), ("5.5.0", 12)}]
    for version in ("5.3.1", "5.3.3", "5.4.0", "5.5.0", "5.5.1")
    for files in (1, 2, 5, 10, 12, 25)
]


def written(judge: Judge, path: Path, side: str, files: int) -> dict[Name, int]:
    """A store whose log has some files, written and stopped by a broker; the place of each message."""
    messages: dict[Name, int] = {}
    store = judge.open(path, SIZES | {"storeType": STORE_TYPE[side]}, TOPICS)
    for number in count():
        topic = ("Orders", "Gone")[number % 2]
        (answer,) = store.put({"topic": topic, "queueId": number // 2 % 2, "body": b"x" * 500})
        messages[topic, answer["queueId"], answer["queueOffset"]] = answer["physicalOffset"]
        if answer["physicalOffset"] > (files - 1) * FILE_SIZE + FILE_SIZE // 2:
            break
    store.wait_dispatched()
    for _ in range(STOPS):  # a 5.5.1 may die in a compaction of RocksDB while it stops
        try:
            store.shutdown()
        except JudgeError:
            store = store.again()
        else:
            return messages
    raise AssertionError("no clean stop")


def served(judge: Judge, path: Path, side: str, copy: Path) -> dict[Name, int]:
    """The place of each message that a broker gives."""
    store = judge.open(copy_store(path, copy), SIZES | {"storeType": STORE_TYPE[side]}, TOPICS)
    assert store.serving, store.opened
    queues = store.read(brief=True)["queues"]
    store.abandon()
    return {
        (queue["topic"], queue["queueId"], row[0]): row[2]
        for queue in queues
        for row in queue["messages"]
        if row[1] == "FOUND"
    }


def wear(path: Path, files: int) -> int:
    """Delete a topic and let a third of the log expire, as brokers do; where the log begins now."""
    shutil.rmtree(path / "consumequeue" / "Gone", ignore_errors=True)
    (path / "config").mkdir(exist_ok=True)
    topics: dict[str, Any] = {"Orders": {"topicName": "Orders", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}}
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}), "utf-8")
    log = sorted((path / "commitlog").iterdir())
    for file in log[: files // 3]:
        file.unlink()
    return int(log[files // 3].name)


@pytest.mark.parametrize("state", ["whole", "worn"])
@pytest.mark.parametrize("side", ["file", "rocksdb"])
@pytest.mark.parametrize(("version", "files"), CASES)
def test_every_message_is_served_after_each_of_two_conversions(
    judge_of: JudgeOf, tmp_path: Path, version: str, files: int, side: str, state: str
) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    messages = written(judge, tmp_path / "written", side, files)
    copy_store(tmp_path / "written", path)  # the broker's process may still have files mapped
    begin = wear(path, files) if state == "worn" else 0
    expected = {name: place for name, place in messages.items() if place >= begin}
    before = served(judge, path, side, tmp_path / "before")
    # For a unit that leads to 0, brokers may give the first record that is left, though it is of another queue.
    expired = messages.keys() - expected.keys()
    deleted = {name for name in expected if name[0] == "Gone" and state == "worn" and side == "file"}
    assert before.keys() - expired == expected.keys() - deleted
    for target in (OTHER[side], side):
        sizes = ("--log-file-size", FILE_SIZE, "--queue-file-size", SIZES["mappedFileSizeConsumeQueue"])
        ran = rmqtool("convert", path, "--queues", target, "--broker-version", version, *sizes, "--yes")
        assert ran.code == 0, ran.out + ran.err
        after = served(judge, path, target, tmp_path / f"in {target}")
        assert {name: after[name] for name in after.keys() - expired} == expected
        assert rmqtool("verify", path, "--broker-version", version, *sizes).code == 0

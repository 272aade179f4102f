"""Topics that nobody creates by hand: made by a first message, for what a group failed to consume, and light queues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool
from tests.store_state import store_state

CONFIG = {
    "mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600, "maxHashSlotNum": 100, "maxIndexNum": 400,
    "enableLmq": True, "enableMultiDispatch": True, "timerWheelEnable": True,
}  # fmt: skip
SEND, SEND_BACK, DELETE_TOPIC = 10, 36, 215
FIRST, DEAD, LIGHT = "Fresh", "%DLQ%shop", "%LMQ%a"
PROGRESS = ("config/consumerOffset.json", "config/lmqConsumerOffset.json")
OF_A_KILL = {"store.abort-present", "consumequeue.behind-log", "index.missing-key", "config.delay-offset-outdated"}


def findings(path: Path, *options: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(rmqtool("verify", path, *options, "--format", "json").out)["findings"]
    return found


def put_all(broker: WholeBroker) -> None:
    sent = broker.send("Orders", 0, b"order", {"INNER_MULTI_DISPATCH": LIGHT})
    assert sent["status"] == "SEND_OK"
    physical_offset = int(sent["messageId"][-16:], 16)
    fields = {"offset": physical_offset, "group": "shop", "delayLevel": -1, "originMsgId": sent["messageId"],
              "originTopic": "Orders", "unitMode": "false", "maxReconsumeTimes": 0}  # fmt: skip
    assert broker.remote(SEND_BACK, fields)["code"] == 0
    fields = {
        "producerGroup": "makers", "topic": FIRST, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": int(time.time() * 1000), "flag": 0, "properties": "",
        "reconsumeTimes": 0, "unitMode": "false",
    }  # fmt: skip
    for number in range(3):
        answer = broker.remote(SEND, fields, b"%d" % number)
        assert answer["code"] == 0, answer


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_they_are_there_after_a_kill_and_gone_after_a_deletion(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    del judge_of  # only a whole broker makes topics
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={str(value).lower()}\n" for key, value in CONFIG.items()))
    options = ("--broker-version", version, "--broker-conf", conf)
    written = tmp_path / "written"
    broker = WholeBroker(version, written, CONFIG, {"Orders": {}})
    put_all(broker)
    broker.commit("shop", "Orders", 0, 1)
    deadline = time.monotonic() + 60
    while not any(name.exists() for name in map(written.joinpath, PROGRESS)) and time.monotonic() < deadline:
        time.sleep(0.3)  # a broker writes them every five seconds
    broker.kill()

    path = copy_store(written, tmp_path / "killed")
    assert {one["id"] for one in findings(path, *options) if one["severity"] != "note"} <= OF_A_KILL
    assert not [one for one in findings(path, *options) if one["id"].startswith("topic.")]
    assert (
        json.loads(rmqtool("forecast", path, *options, "--format", "json").out)["forecasts"][0]["lost"]["messages"] == 0
    )
    ran = rmqtool("recover", path, "--yes", *options)
    assert ran.code == 0, ran
    with WholeBroker(version, copy_store(path, tmp_path / "served"), CONFIG) as broker:
        broker.await_route(FIRST)
        assert broker.bodies(FIRST) == {b"0": 1, b"1": 1, b"2": 1}
    for topic, queue_offset in ((DEAD, 0), (LIGHT, 0), (FIRST, 2)):
        got = rmqtool("get", path, "--topic", topic, "--queue-id", 0, "--queue-offset", queue_offset, *options)
        assert got.out.startswith("FOUND"), (topic, got)

    deleted = tmp_path / "deleted"
    with WholeBroker(version, copy_store(written, deleted), CONFIG) as broker:
        for topic in (FIRST, DEAD):
            assert broker.remote(DELETE_TOPIC, {"topic": topic})["code"] == 0
    told = findings(deleted, *options)
    assert {one["id"] for one in told if one["severity"] != "note"} == set()
    assert {one["topic"]: one["count"] for one in told if one["id"] == "topic.deleted"} == {FIRST: 3, DEAD: 1}
    before = store_state(deleted)
    for command in ("recover", "rebuild", "salvage"):
        ran = rmqtool(command, deleted, "--yes", *options)
        assert (ran.code, store_state(deleted)) == (0, before), ran

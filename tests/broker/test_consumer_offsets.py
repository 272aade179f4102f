"""What a whole broker does with offsets of consumer groups that no longer fit: the findings about them say the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Answer, Judge
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

CONFIG: dict[str, object] = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 200,
    "maxHashSlotNum": 100,
    "maxIndexNum": 200,
}
TOPIC, GROUP, COUNT = "orders", "shop", 60
TOPICS = {TOPIC: {"readQueueNums": 2, "writeQueueNums": 2}}
PULL, QUERY_OFFSET, POP = 11, 14, 200050
HELD_MS, LATE_SECONDS = 60_000, 150
POPPED = {"timerWheelEnable": True, "mappedFileSizeTimerLog": 1048576, "broker.reviveQueueNum": 2}
FOUND, RETRY_AT_ONCE, OFFSET_MOVED, NO_TOPIC, NO_GROUP = 0, 20, 21, 17, 26
LIGHT = ("%LMQ%device", "%LMQ%group")
OFFSETS, LIGHT_OFFSETS = "consumerOffset.json", "lmqConsumerOffset.json"


def pull(broker: WholeBroker, topic: str, queue_id: int, queue_offset: int) -> Answer:
    where = {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id, "queueOffset": queue_offset}
    how = {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
    return broker.remote(PULL, where | how | {"subscription": "*", "subVersion": 0, "expressionType": "TAG"})


def stored(broker: WholeBroker, topic: str = TOPIC, group: str = GROUP) -> int | None:
    """Where a consumer that starts now would begin."""
    answer = broker.remote(QUERY_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": 0})
    return int(answer["fields"]["offset"]) if answer["code"] == FOUND else None


def first_received(broker: WholeBroker, queue_offset: int) -> int:
    """The first message that a consumer gets who goes where the broker sends it."""
    while (answer := pull(broker, TOPIC, 0, queue_offset))["code"] != FOUND:
        assert answer["code"] in (RETRY_AT_ONCE, OFFSET_MOVED)
        queue_offset = int(answer["fields"]["nextBeginOffset"])
    first: int = answer["messages"][0]["queueOffset"]
    return first


def await_popped(broker: WholeBroker, queue_id: int) -> list[bytes]:
    """What a consumer gets first that pops in order."""
    where = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "maxMsgNums": 1, "initMode": 0}
    how = {"invisibleTime": HELD_MS, "pollTime": 5000, "order": "true"}
    deadline = time.monotonic() + LATE_SECONDS
    while not (answer := broker.remote(POP, where | how | {"bornTime": int(time.time() * 1000)}))["messages"]:
        assert time.monotonic() < deadline, answer
    return [message["body"] for message in answer["messages"]]


def write(path: Path, name: str, content: dict[str, Any]) -> None:
    (path / "config" / name).write_text(json.dumps(content))
    (path / "config" / f"{name}.bak").unlink(missing_ok=True)


def findings(path: Path, version: str) -> dict[str, dict[str, Any]]:
    ran = rmqtool("verify", path, "--broker-version", version, "--format", "json")
    return {row["id"]: row for row in json.loads(ran.out)["findings"]}


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_findings_say_what_a_broker_does(judge_of: Callable[[str], Judge], tmp_path: Path, version: str) -> None:
    del judge_of  # only a whole broker has consumer groups
    path = tmp_path / "store"
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        for number in range(COUNT):
            broker.send(TOPIC, 0, b"%d" % number + bytes(400))
    for file in sorted((path / "commitlog").iterdir())[:2]:
        file.unlink()
    name = f"{TOPIC}@{GROUP}"
    write(path, OFFSETS, {"offsetTable": {name: {"0": 3, "1": 50}, f"gone@{GROUP}": {"0": 9}}})
    write(path, LIGHT_OFFSETS, {"offsetTable": {name: {"0": 55}}, "lmqOffsetTable": {"@".join(LIGHT): 7}})
    write(path, "subscriptionGroup.json", {"subscriptionGroupTable": {}})
    found = findings(path, version)
    assert {each for each in found if each.startswith(("config.consumer", "config.two"))} == {
        "config.consumer-offset-before-queue",
        "config.consumer-offset-without-group",
        "config.consumer-offset-without-queue",
        "config.consumer-offset-without-topic",
        "config.two-offset-files",
    }
    begin = int(found["config.consumer-offset-before-queue"]["expected"].rpartition(" ")[2])
    with WholeBroker(version, path, CONFIG | {"broker.autoCreateSubscriptionGroup": False}, TOPICS) as broker:
        assert pull(broker, TOPIC, 0, 40)["code"] == NO_GROUP
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        assert stored(broker) == 3
        assert first_received(broker, 3) == begin > 3
        # Connected while the queue is empty, a consumer is sent to its begin; later it is sent to its end.
        assert pull(broker, TOPIC, 1, 50)["fields"]["nextBeginOffset"] == "0"
        for _ in range(3):
            broker.send(TOPIC, 1, b"new")
        answer = pull(broker, TOPIC, 1, 50)
        assert (answer["code"], answer["fields"]["nextBeginOffset"]) == (OFFSET_MOVED, "3")
        assert stored(broker, "gone") == 9
        assert pull(broker, "gone", 0, 9)["code"] == NO_TOPIC
    with WholeBroker(version, path, CONFIG | {"enableLmq": True, "enableMultiDispatch": True}, TOPICS) as broker:
        assert (stored(broker), stored(broker, *LIGHT)) == (55, 7)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_offsets_in_the_other_file_are_none(judge_of: Callable[[str], Judge], tmp_path: Path, version: str) -> None:
    """Whatever the file for light queues has, `enableLmq` decides whether the broker reads it."""
    del judge_of
    path = tmp_path / "store"
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        for number in range(COUNT):
            broker.send(TOPIC, 0, b"%d" % number)
    light, plain = {"lmqOffsetTable": {"@".join(LIGHT): 7}}, {"offsetTable": {f"{TOPIC}@{GROUP}": {"0": 55}}}
    for content, reads_light, expected in (
        (plain | light, True, 55),
        (plain | light, False, None),
        (light, True, None),
    ):
        for name in (OFFSETS, f"{OFFSETS}.bak"):
            (path / "config" / name).unlink(missing_ok=True)
        write(path, LIGHT_OFFSETS, content)
        settings = {"enableLmq": reads_light, "enableMultiDispatch": reads_light}
        with WholeBroker(version, path, CONFIG | settings, TOPICS) as broker:
            assert (stored(broker) or None) == expected
            assert (stored(broker, *LIGHT) or None) == (7 if reads_light else None)
            broker.kill()


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_group_gets_nothing_of_a_queue_whose_messages_are_all_gone(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    del judge_of
    path, topics = tmp_path / "store", {**TOPICS, "later": {"readQueueNums": 1, "writeQueueNums": 1}}
    with WholeBroker(version, path, CONFIG, topics) as broker:
        for number in range(5):
            broker.send(TOPIC, 0, b"%d" % number)
        for _ in range(COUNT):
            broker.send("later", 0, bytes(400))
    min((path / "commitlog").iterdir()).unlink()
    write(path, OFFSETS, {"offsetTable": {f"{TOPIC}@{GROUP}": {"0": 0}}})
    unread = findings(path, version)["config.consumer-offset-before-queue"]
    assert unread["message"] == f"5 messages were deleted before group {GROUP} received them; queue 0 begins at 5"
    with WholeBroker(version, path, CONFIG, topics) as broker:
        answer = pull(broker, TOPIC, 0, 0)
        assert (answer["messages"], answer["fields"]["nextBeginOffset"]) == ([], "5")


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_consumer_past_the_end_is_sent_elsewhere(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    del judge_of
    path = tmp_path / "store"
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        for number in range(COUNT):
            broker.send(TOPIC, 0, b"%d" % number)
    write(path, OFFSETS, {"offsetTable": {f"{TOPIC}@{GROUP}": {"0": COUNT + 1000}}})
    assert "config.consumer-offset-beyond-queue" in findings(path, version)
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        assert stored(broker) == COUNT + 1000
        answer = pull(broker, TOPIC, 0, COUNT + 1000)
        assert (answer["code"], answer["fields"]["nextBeginOffset"]) == (OFFSET_MOVED, str(COUNT))
    clamped = rmqtool("recover", path, "--clamp-offsets", "--yes", "--broker-version", version)
    assert clamped.code == 0, clamped.err
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        assert stored(broker) == COUNT
        broker.send(TOPIC, 0, b"next")
        assert first_received(broker, COUNT) == COUNT


def test_a_message_held_past_the_end_keeps_the_group_waiting(judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    del judge_of
    version, path = "5.5.0", tmp_path / "store"
    with WholeBroker(version, path, CONFIG | POPPED, TOPICS) as broker:
        for queue_id in (0, 1):
            broker.send(TOPIC, queue_id, b"%d" % queue_id)
    end_ms = int(time.time() * 1000) + HELD_MS
    order = {"popTime": end_ms - HELD_MS, "i": HELD_MS, "o": [1000], "l": end_ms, "cm": 0}
    write(path, "consumerOrderInfo.json", {"table": {f"{TOPIC}@{GROUP}": {"0": order}}})
    assert "config.ordered-message-beyond-queue" in findings(path, version)
    with WholeBroker(version, path, CONFIG | POPPED, TOPICS) as broker:
        assert await_popped(broker, 1) == [b"1"]
        assert await_popped(broker, 0) == [b"0"]
        assert time.time() * 1000 >= end_ms

"""Messages that pop consumers hold when a real, whole broker is killed: which of them it delivers again afterwards."""

import base64
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Answer, Judge
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

BROKER_NAME = "broker-a"
CONFIG = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 20000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 2000,
    "mappedFileSizeTimerLog": 1048576,
}
BROKER = {
    "timerWheelEnable": True,
    "broker.reviveQueueNum": 2,
    "broker.brokerName": BROKER_NAME,
    "broker.flushConsumerOffsetInterval": 200,
}
NEVER_MS = 600_000
TOPIC, GROUP = "tickets", "poppers"
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
TOPICS = {TOPIC: {"readQueueNums": 4, "writeQueueNums": 4}}
QUEUES, EACH = 4, 8
INVISIBLE_MS = 30_000
WAIT_SECONDS = 180
POP, ACK, BATCH_ACK, OK = 200050, 200051, 200151, 0


def pop(broker: WholeBroker, queue_id: int) -> Answer:
    now = int(time.time() * 1000)
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "maxMsgNums": 32, "initMode": 0}
    times = {"invisibleTime": INVISIBLE_MS, "pollTime": 5000, "bornTime": now, "order": "false"}
    return broker.remote(POP, fields | times)


def acknowledge(broker: WholeBroker, popped: Answer, queue_id: int, offsets: list[int], *, in_batch: bool) -> None:
    """As clients do one by one, and proxies for several at once."""
    fields = popped["fields"]
    revive_queue, popped_ms = fields["reviveQid"], fields["popTime"]
    if in_batch:
        bits = sum(1 << offset for offset in offsets).to_bytes(1, "little")
        ack = {"c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": queue_id, "rq": int(revive_queue)}
        ack |= {"pt": int(popped_ms), "it": INVISIBLE_MS, "b": base64.b64encode(bits).decode()}
        body = json.dumps({"brokerName": BROKER_NAME, "acks": [ack]}).encode()
        assert broker.remote(BATCH_ACK, {}, body)["code"] == OK
        return
    for offset in offsets:
        extra = f"0 {popped_ms} {INVISIBLE_MS} {revive_queue} 0 {BROKER_NAME} {queue_id} {offset}"
        request = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id, "extraInfo": extra, "offset": offset}
        assert broker.remote(ACK, request)["code"] == OK


def listed(path: Path) -> list[dict[str, Any]]:
    ran = rmqtool("dump", path, "--pop", "--format", "jsonl")
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def consumed(path: Path) -> dict[str, int]:
    """How far the group is in each queue, as the broker has stored it."""
    file = path / "config/consumerOffset.json"
    ran = rmqtool("dump", file, "--format", "jsonl") if file.is_file() else None
    rows = [json.loads(line) for line in ran.out.splitlines()] if ran is not None else []
    offsets: dict[str, int] = rows[0]["content"]["offsetTable"].get(f"{TOPIC}@{GROUP}", {}) if rows else {}
    return offsets


@pytest.mark.parametrize("version", ["5.1.4", "5.5.0"])
def test_a_broker_delivers_again_what_is_listed(judge_of: Callable[[str], Judge], tmp_path: Path, version: str) -> None:
    del judge_of  # only a whole broker has pop consumers
    path, held = killed(tmp_path, version)
    rows = listed(path)
    assert Counter(row["state"] for row in rows) == Counter({"in-flight": len(held), "acknowledged": 32 - len(held)})
    in_flight = [(row["queue_id"], row["queue_offset"]) for row in rows if row["state"] == "in-flight"]
    assert sorted(in_flight) == sorted(held)
    assert {row["consumer_offset"] for row in rows} == {EACH}
    expected = [b"%d-%d" % place for place in held]
    assert delivered_again(version, path, expected) == Counter([*expected, b"last"])
    assert {row["topic"] for row in listed(path)} == {TOPIC, f"%RETRY%{GROUP}_{TOPIC}"}


@pytest.mark.parametrize("version", ["5.1.4", "5.5.0"])
def test_a_record_that_is_no_check_point_stops_its_queue(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    del judge_of
    path, held = killed(tmp_path, version)
    place = {(row["queue_id"], row["queue_offset"]): row["revive_queue_id"] for row in listed(path)}
    message = ("--topic", REVIVE_TOPIC, "--queue-id", "0", "--tags", "ck", "--body", "no check point")
    appended = rmqtool("append", path, *message, "--broker-conf", tmp_path / "broker.conf")
    assert appended.code == 0, appended.err
    verified = rmqtool("verify", path, "--broker-conf", tmp_path / "broker.conf", "--broker-version", version)
    assert "pop.bad-record" in verified.out
    expected = [b"%d-%d" % name for name in held if place[name] == 1]
    assert 0 < len(expected) < len(held)
    assert delivered_again(version, path, expected) == Counter([*expected, b"last"])
    offsets = path / "config/consumerOffset.json"
    content = json.loads(rmqtool("dump", offsets, "--format", "jsonl").out)["content"]
    content["offsetTable"][f"{REVIVE_TOPIC}@CID_RMQ_SYS_REVIVE_GROUP"]["0"] = 0
    offsets.write_text(json.dumps(content))
    expected = [b"%d-%d" % name for name in held if place[name] == 0]
    again = delivered_again(version, path, expected)
    assert {body: count for body, count in again.items() if body in expected} == dict.fromkeys(expected, 1)


def killed(tmp_path: Path, version: str) -> tuple[Path, set[tuple[int, int]]]:
    """A store whose broker was killed, and queue id and offset of what was received and not acknowledged."""
    path = tmp_path / "store"
    never = CONFIG | BROKER | {"broker.reviveInterval": NEVER_MS}
    broker = WholeBroker(version, path, never, TOPICS)
    for queue_id in range(QUEUES):
        for number in range(EACH):
            broker.send(TOPIC, queue_id, b"%d-%d" % (queue_id, number))
    held = {(queue_id, offset) for queue_id in range(QUEUES) for offset in range(EACH)}
    for queue_id, offsets in enumerate(([*range(EACH)], [1, 3, 5, 7], [0, 2, 4, 6], [])):
        popped = pop(broker, queue_id)
        assert (popped["code"], len(popped["messages"])) == (OK, EACH)
        if offsets:
            acknowledge(broker, popped, queue_id, offsets, in_batch=queue_id == 1)
        held -= {(queue_id, offset) for offset in offsets}
    deadline = time.monotonic() + WAIT_SECONDS
    while sum(consumed(path).values()) < QUEUES * EACH and time.monotonic() < deadline:
        time.sleep(0.3)
    broker.kill()
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONFIG.items()))
    recovered = rmqtool("recover", path, "--yes", "--broker-conf", conf, "--broker-version", version)
    assert recovered.code == 0, recovered.out + recovered.err
    return path, held


def delivered_again(version: str, path: Path, expected: list[bytes]) -> Counter[bytes]:
    """Bodies that a started broker gives a pop consumer, until all are there, and with what is sent then."""
    again: Counter[bytes] = Counter()
    with WholeBroker(version, path, CONFIG | BROKER | {"broker.popFromRetryProbability": 100}, TOPICS) as started:
        deadline = time.monotonic() + WAIT_SECONDS
        while set(expected) - set(again) and time.monotonic() < deadline:
            again.update(message["body"] for message in pop(started, -1)["messages"])
        # What is sent now comes after all that the broker had to deliver again.
        started.send(TOPIC, 0, b"last")
        while b"last" not in again and time.monotonic() < deadline:
            again.update(message["body"] for message in pop(started, -1)["messages"])
    return again

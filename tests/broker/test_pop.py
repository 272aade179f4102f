"""Messages that pop consumers hold when a real, whole broker is killed: which of them it delivers again afterwards."""

import base64
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.rocksdb.pop import POP_FAMILY, PopKeyRow, pop_key
from tests.broker.broker import Answer, Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool
from tests.rocksdb_cases import write_rows

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
ALL_BODIES = [b"%d-%d" % (queue_id, number) for queue_id in range(QUEUES) for number in range(EACH)]
AFTER_DUE_SECONDS = 10
IN_ROCKSDB = {"broker.popConsumerKVServiceInit": True, "broker.popConsumerKVServiceEnable": True}
POP, ACK, BATCH_ACK, OK = 200050, 200051, 200151, 0


def pop(broker: WholeBroker, queue_id: int, group: str = GROUP, topic: str = TOPIC) -> Answer:
    now = int(time.time() * 1000)
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "maxMsgNums": 32, "initMode": 0}
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


def listed(path: Path, code: int = 0) -> list[dict[str, Any]]:
    ran = rmqtool("dump", path, "--pop", "--format", "jsonl")
    assert ran.code == code, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def consumed(path: Path, in_rocksdb: bool) -> dict[str, int]:
    """How far the group is in each queue, as the broker has stored it."""
    table = "pullOffsetTable" if in_rocksdb else "offsetTable"
    file = path / "config/consumerOffset.json"
    ran = rmqtool("dump", file, "--format", "jsonl") if file.is_file() else None
    rows = [json.loads(line) for line in ran.out.splitlines()] if ran is not None else []
    offsets: dict[str, int] = rows[0]["content"][table].get(f"{TOPIC}@{GROUP}", {}) if rows else {}
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


@pytest.mark.parametrize("damage", [None, "pop-record-odd", "pop-message-expired"])
def test_a_generated_store_comes_again_as_it_is_listed(
    judge_of: Callable[[str], Judge], tmp_path: Path, damage: str | None
) -> None:
    del judge_of
    version, recipe, path = "5.5.0", RECIPES["pop"], tmp_path / "store"
    make_store(recipe, path, version)
    if damage is not None:
        damage_store(DAMAGES[damage], path, 0, recipe.conf.settings())
    [run] = recipe.planned_runs(rules_for(version), 0)
    bodies = {put.properties["UNIQ_KEY"]: put.body for put in run.puts if isinstance(put, Message)}
    expected = [
        bodies[row["unique_key"]]
        for row in listed(path, 3 if damage == "pop-record-odd" else 0)
        if row["state"] == "in-flight"
    ]
    assert len(expected) == {None: 32, "pop-record-odd": 16, "pop-message-expired": 17}[damage]
    config = dict(recipe.settings) | BROKER
    names = {"group": "shop", "topic": "orders"}
    assert delivered_again(version, path, expected, config=config, **names) == Counter([*expected, b"last"])


def odd_row(store: Path) -> None:
    """A row without JSON, which is due before all others."""
    write_rows(store / "kvStore", {POP_FAMILY: {pop_key(PopKeyRow(1, b"poppers", b"tickets", 0, 0)): b"no JSON"}})


def not_loadable(store: Path) -> None:
    (store / "kvStore/CURRENT").write_text("no database")


def gone(store: Path) -> None:
    shutil.rmtree(store / "kvStore")


def pop_findings(path: Path) -> set[str]:
    ran = rmqtool("verify", path, "--format", "json", "--broker-version", "5.5.0")
    return {row["id"] for row in json.loads(ran.out)["findings"] if row["id"].startswith("pop.")}


def test_what_rocksdb_remembers_comes_again(judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    """A broker stores how far a group is one pop late, so that the messages of the last one come once more."""
    del judge_of
    path, held = killed(tmp_path, "5.5.0", IN_ROCKSDB)
    rows = listed(path)
    assert {row["state"] for row in rows} == {"in-flight"}
    assert sorted((row["queue_id"], row["queue_offset"]) for row in rows) == sorted(held)
    assert {row["consumer_offset"] for row in rows} == {0}
    assert pop_findings(path) == set()
    edited = copy_store(path, tmp_path / "edited")
    expected = [b"%d-%d" % place for place in held]
    twice = [*expected, *ALL_BODIES]
    assert delivered_again("5.5.0", path, twice, IN_ROCKSDB) == Counter([*twice, b"last"])
    offsets = edited / "config/consumerOffset.json"
    content = json.loads(rmqtool("dump", offsets, "--format", "jsonl").out)["content"]
    content["offsetTable"] = content["pullOffsetTable"]
    offsets.write_text(json.dumps(content))
    assert delivered_again("5.5.0", edited, expected, IN_ROCKSDB) == Counter([*expected, b"last"])


def test_damage_to_what_rocksdb_remembers(judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    """Nothing comes again but what the consumer offset leads to."""
    del judge_of
    path, _ = killed(tmp_path, "5.5.0", IN_ROCKSDB)
    due_ms = max(row["revive_timestamp_ms"] for row in listed(path))
    damaged = {name: copy_store(path, tmp_path / name) for name in ("odd", "broken", "gone")}
    not_loadable(damaged["broken"])
    assert pop_findings(damaged["broken"]) == {"pop.not-loadable"}
    with pytest.raises(JudgeError, match="PopConsumerStore init error"):
        WholeBroker("5.5.0", damaged["broken"], CONFIG | BROKER | IN_ROCKSDB, TOPICS)
    WholeBroker("5.5.0", damaged["broken"], CONFIG | BROKER, TOPICS).kill()
    odd_row(damaged["odd"])
    assert pop_findings(damaged["odd"]) == {"pop.odd-row"}
    gone(damaged["gone"])
    for name in ("odd", "gone"):
        again = delivered_again("5.5.0", damaged[name], [], IN_ROCKSDB, due_ms)
        assert again == Counter([*ALL_BODIES, b"last"])


def test_a_database_without_rows_has_to_open_too(judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    del judge_of
    settings = CONFIG | BROKER | IN_ROCKSDB
    with WholeBroker("5.5.0", tmp_path / "store", settings, TOPICS):
        pass
    assert pop_findings(tmp_path / "store") == set()
    not_loadable(tmp_path / "store")
    assert pop_findings(tmp_path / "store") == {"pop.not-loadable"}
    with pytest.raises(JudgeError, match="PopConsumerStore init error"):
        WholeBroker("5.5.0", tmp_path / "store", settings, TOPICS)


def killed(
    tmp_path: Path, version: str, more: Mapping[str, object] = MappingProxyType({})
) -> tuple[Path, set[tuple[int, int]]]:
    """A store whose broker was killed, and queue id and offset of what was received and not acknowledged."""
    path = tmp_path / "store"
    never = CONFIG | BROKER | {"broker.reviveInterval": NEVER_MS} | dict(more)
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
    while sum(consumed(path, bool(more)).values()) < QUEUES * EACH and time.monotonic() < deadline:
        time.sleep(0.3)
    broker.kill()
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONFIG.items()))
    recovered = rmqtool("recover", path, "--yes", "--broker-conf", conf, "--broker-version", version)
    # A repair does not look into RocksDB.
    assert recovered.code == (3 if more else 0), recovered.out + recovered.err
    return path, held


def delivered_again(
    version: str,
    path: Path,
    expected: list[bytes],
    more: Mapping[str, object] = MappingProxyType({}),
    due_ms: int = 0,
    *,
    config: Mapping[str, object] = MappingProxyType(CONFIG | BROKER),
    group: str = GROUP,
    topic: str = TOPIC,
) -> Counter[bytes]:
    """Bodies that a started broker gives a pop consumer, until all are there, and with what is sent then."""
    again: Counter[bytes] = Counter()
    settings = dict(config) | {"broker.popFromRetryProbability": 100} | dict(more)
    with WholeBroker(version, path, settings, TOPICS) as started:
        time.sleep(max(0, due_ms / 1000 - time.time()) + (AFTER_DUE_SECONDS if due_ms else 0))
        deadline = time.monotonic() + WAIT_SECONDS
        while Counter(expected) - again and time.monotonic() < deadline:
            again.update(message["body"] for message in pop(started, -1, group, topic)["messages"])
        # What is sent now comes after all that the broker had to deliver again.
        started.send(topic, 0, b"last")
        while b"last" not in again and time.monotonic() < deadline:
            again.update(message["body"] for message in pop(started, -1, group, topic)["messages"])
    return again

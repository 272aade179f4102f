"""Whole brokers on stores that we recovered: a real client gets every message, and can go on sending."""

from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.store_writer import CrashStep
from rmqtool.engine.append.writer_config import config_from
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import SMALL, TopicSpec, write_topics
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import ABORT_NAME, Plan, PlannedRepair
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.files import copy_store
from tests.broker.test_writer_whole import message
from tests.broker.whole import WholeBroker

COUNT = 480
DISPATCHED = 400
FILE = int(SMALL["mappedFileSizeCommitLog"])
COMPACTED = "Settings"
KEYS = 5


def recover(path: Path, version: str, staging: Path, *, full: bool) -> PlannedRepair:
    """Recover in place, as the command does."""
    places = StorePaths(path)
    staging.mkdir()
    store = survey(open_directory(path), broker_conf(SMALL).settings())
    before = fingerprint(places)
    made = plan_recover(store, rules_for(version), staging, RecoverOptions(full=full))
    apply_plan(Plan("recover", before, version, made.steps, made.loss), places)
    return made


def by_place(queues: list[dict[str, Any]]) -> dict[tuple[int, int], bytes]:
    return {(queue["queueId"], m["queueOffset"]): m["body"] for queue in queues for m in queue["messages"]}


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_client_gets_every_message_of_a_crashed_store(
    judge_of: object, tmp_path: Path, version: str, *, full: bool
) -> None:
    """The last record is torn, and the last messages never reached queues and index."""
    rules, store = rules_for(version), tmp_path / "store"
    messages = [message(number, "127.0.0.1:10911") for number in range(COUNT)]
    with new_store(store, rules, config_from(broker_conf(SMALL))) as writer:
        results = writer.put_all(messages[:DISPATCHED])
        writer.crash_after(CrashStep.FLUSHED)
        results += writer.put_all(messages[DISPATCHED:])
        writer.close(crash=True)
    write_topics(store, {"Orders": TopicSpec(3)}, with_attributes=rules.batch_queues)
    torn = results[-1]
    with (store / "commitlog" / f"{torn.physical_offset - torn.physical_offset % FILE:020d}").open("r+b") as file:
        file.seek(torn.physical_offset % FILE + torn.size // 2)
        file.write(bytes(torn.size - torn.size // 2))
    recover(store, version, tmp_path / "staging", full=full)
    assert not (store / ABORT_NAME).exists()
    kept = list(zip(messages[:-1], results[:-1], strict=True))
    with WholeBroker(version, store, SMALL) as broker:
        assert broker.started["lastExit"] == "clean"
        queues = broker.consume("Orders")
        by_key = [broker.query("Orders", f"key-{number}") for number in range(0, COUNT - 1, 20)]
        sent = broker.send("Orders", messages[-1].queue_id, b"new")
    assert by_place(queues) == {(m.queue_id, r.queue_offset): m.body for m, r in kept}
    assert [[m["body"] for m in hits] for hits in by_key] == [[messages[n].body] for n in range(0, COUNT - 1, 20)]
    assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", torn.queue_offset)


def test_compacted_topics_are_served_and_abort_stays(judge_of: object, tmp_path: Path) -> None:
    """A broker with a compacted topic was killed, and a unit of another topic's queue is wrong."""
    version, store = "5.5.0", tmp_path / "store"
    topics = {
        "Orders": {"readQueueNums": 1, "writeQueueNums": 1},
        COMPACTED: {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {"+cleanup.policy": "COMPACTION"}},
    }
    with WholeBroker(version, store, SMALL, topics) as broker:
        for number in range(60):
            broker.send("Orders", 0, b"order %d" % number)
            broker.send(COMPACTED, 0, b"value %d" % number, {"KEYS": f"name-{number % KEYS}"})
        broker.kill()
    assert (store / ABORT_NAME).exists()
    queue = min((store / "consumequeue/Orders/0").iterdir())
    raw = bytearray(queue.read_bytes())
    raw[5 * 20 + 15] ^= 0x55  # the tags code of the sixth unit
    queue.write_bytes(raw)
    copy_store(store, tmp_path / "before")
    made = recover(store, version, tmp_path / "staging", full=False)
    assert "compact" in (made.abort_stays or "")
    assert (store / ABORT_NAME).exists()
    assert {step.path for step in made.steps} == {str(queue.relative_to(store))}
    with WholeBroker(version, store, SMALL) as broker:
        assert broker.started["lastExit"] == "abnormal"
        orders = by_place(broker.consume("Orders"))
        values = by_place(broker.consume(COMPACTED))
        sent = broker.send("Orders", 0, b"new")
    assert orders == {(0, number): b"order %d" % number for number in range(60)}
    assert {b"value %d" % number for number in range(60 - KEYS, 60)} <= set(values.values())
    assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", 60)

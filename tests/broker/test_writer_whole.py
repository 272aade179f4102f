"""Whole brokers on a store that we made: a real client gets every message, by queue, by key and by message id."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import config_from
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import SMALL, TopicSpec, write_topics
from rmqtool.formats.message_id import host_bytes
from rmqtool.store.config.broker_conf import broker_conf
from tests.broker.mirror_run import free_port
from tests.broker.whole import WholeBroker

COUNT = 120


@pytest.mark.parametrize("end", ["clean", pytest.param("crash", marks=pytest.mark.slow)])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_client_gets_every_message(judge_of: object, tmp_path: Path, version: str, end: str) -> None:
    port = free_port()
    messages = [message(number, f"127.0.0.1:{port}") for number in range(COUNT)]
    config = config_from(broker_conf(SMALL))
    with new_store(tmp_path, rules_for(version), config) as writer:
        results = writer.put_all(messages)
        writer.close(crash=end == "crash")
    assert all(result.is_written for result in results)
    write_topics(tmp_path, {"Orders": TopicSpec(3)}, with_attributes=rules_for(version).batch_queues)
    with WholeBroker(version, tmp_path, SMALL, port=port) as broker:
        assert broker.started["lastExit"] == ("clean" if end == "clean" else "abnormal")
        queues = broker.consume("Orders")
        by_key = [broker.query("Orders", f"key-{number}") for number in range(0, COUNT, 10)]
        by_id = [broker.view("Orders", str(results[number].message_id)) for number in range(0, COUNT, 10)]
        by_unique_key = broker.view("Orders", messages[7].properties["UNIQ_KEY"])
        sent = broker.send("Orders", 1, b"new")
    found = {(queue["queueId"], m["queueOffset"]): m["body"] for queue in queues for m in queue["messages"]}
    wanted = {(m.queue_id, r.queue_offset): m.body for m, r in zip(messages, results, strict=True)}
    assert found == wanted
    assert [[m["body"] for m in hits] for hits in by_key] == [[messages[n].body] for n in range(0, COUNT, 10)]
    assert [m["body"] for m in by_id] == [messages[number].body for number in range(0, COUNT, 10)]
    assert by_unique_key["body"] == messages[7].body
    assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", COUNT // 3)
    table: dict[str, Any] = json.loads((tmp_path / "config/topics.json").read_text())["topicConfigTable"]
    assert table["Orders"]["readQueueNums"] == 3


def message(number: int, store_host: str) -> Message:
    # A unique key as clients make it: address, process, loader, milliseconds since the month began, counter.
    unique_key = f"7F000001{4711:04X}18B4AAC2{number * 1000:08X}{number:04X}"
    return Message(
        topic="Orders",
        queue_id=number % 3,
        body=b"order %d " % number * 20,
        properties={"KEYS": f"key-{number}", "TAGS": "paid", "UNIQ_KEY": unique_key, "WAIT": "true"},
        born_timestamp_ms=1_700_000_000_000 + number,
        store_host=host_bytes(store_host),
    )

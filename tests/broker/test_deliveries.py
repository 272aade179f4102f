"""What each record of a real broker is for; business messages are those that its consumers get."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from tests.broker.test_rocksdb_store import CONFIG as ROCKSDB
from tests.broker.test_transactions import CONFIG
from tests.broker.toolchain import require_tools
from tests.broker.whole import WholeBroker

TOPIC, TRACE = "Orders", "RMQ_SYS_TRACE_TOPIC"
TOPICS = {TOPIC: {"readQueueNums": 2, "writeQueueNums": 2}}
COUNT = 6
STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE")
DUE = {"DELAY": "1"}
KINDS = [
    ("4.9.7", CONFIG, "delayed", DUE),
    ("5.5.0", CONFIG | {"timerWheelEnable": True}, "timer", {"TIMER_DELAY_MS": "1000"}),
    ("5.5.0", CONFIG | ROCKSDB | {"timerRocksDBEnable": False}, "delayed", DUE),
]


@pytest.mark.parametrize(("version", "config", "delay", "due"), KINDS)
def test_business_messages_are_what_consumers_get(
    tmp_path: Path, version: str, config: dict[str, Any], delay: str, due: dict[str, str]
) -> None:
    require_tools()
    store = tmp_path / "store"
    with WholeBroker(version, store, config | {"broker.traceTopicEnable": True}, TOPICS) as broker:
        broker.await_route(TOPIC)
        broker.await_route(TRACE)
        for number in range(COUNT):
            broker.send(TOPIC, number % 2, b"sent %d" % number)
            broker.send(TOPIC, number % 2, b"late %d" % number, due)
            broker.transact(TOPIC, b"deal %d" % number, STATES[number % 2])
            broker.send(TRACE, 0, b"Pub %d" % number)
        delivered = broker.bodies_until(TOPIC, COUNT * 5 // 2, 120)
    assert delivered.total() == COUNT * 5 // 2
    opened = rmqtool.open(store)
    business = opened.business_messages(["body", "topic"]).read_all().to_pylist()
    assert Counter(row["body"] for row in business) == delivered
    assert {row["topic"] for row in business} == {TOPIC}
    counts = Counter(opened.messages(["delivery"]).read_all()["delivery"].to_pylist())
    expected = {"normal": COUNT * 5 // 2, "half": COUNT, delay: COUNT, "trace": COUNT}
    assert {name: counts[name] for name in expected} == expected
    assert {*counts} <= {*expected, "op", "system"}

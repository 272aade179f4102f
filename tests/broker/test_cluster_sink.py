"""A stream of Spark that is killed in the middle of a batch sends each message to a real broker once."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from tests.broker.broker import Answer, Judge
from tests.broker.test_replay import CONFIG
from tests.broker.whole import WholeBroker
from tests.pipeline.cluster import QUICK_JAVA

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
NEW = "OrdersRestored"
TOPICS = {NEW: {"readQueueNums": 2, "writeQueueNums": 2}}
COUNT = 300
SESSION = """
from pyspark.sql import SparkSession
from pyspark_rocketmq import register
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = register(builder.config("spark.driver.memory", "1g").getOrCreate())
"""


@pytest.mark.parametrize(("version", "keeps_state"), [("4.9.7", True), ("5.5.0", True), ("5.5.0", False)])
def test_a_stream_that_is_killed_sends_each_message_once(
    judge_of: Any, tmp_path: Path, version: str, keeps_state: bool
) -> None:
    """With the journals, each message once and in order; without, a repeat has the identity of its message."""
    source, target, checkpoint = tmp_path / "source", tmp_path / "target", tmp_path / "checkpoint"
    answers = written(judge_of(version), source)
    with WholeBroker(version, target, CONFIG, TOPICS) as broker:
        broker.await_route(NEW)
        script = script_of(source, broker, checkpoint)
        limited = script.replace('.option("to"', '.option("rate", "40").option("to"')
        log = tmp_path / "spark.log"
        with log.open("wb") as file:
            query = subprocess.Popen(
                [sys.executable, "-c", limited], env=environment(), start_new_session=True, stderr=file
            )
        await_messages(query, log, broker, 100)
        os.killpg(query.pid, signal.SIGKILL)
        assert query.wait(60) == -signal.SIGKILL
        sent = sum(broker.bodies(NEW).values())
        assert sent < COUNT
        assert not list((checkpoint / "commits").glob("[0-9]*")), "it was killed in the middle of its first batch"
        if not keeps_state:
            shutil.rmtree(checkpoint / "replay")
        for _ in range(1 + keeps_state):
            ended = subprocess.run(
                [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
            )
            assert ended.returncode == 0, ended.stderr
        queues = broker.consume(NEW)
    unique_keys = [answers[number]["messageId"] if number % 5 == 0 else f"{number:032X}" for number in range(COUNT)]
    columns = ["body", "identity"]
    stored = rmqtool.open(target).messages(columns, topics=[NEW]).read_all().to_pylist()
    pairs = Counter((message["body"], message["identity"]) for message in stored)
    assert {*pairs} == {(b"%d" % number, key) for number, key in enumerate(unique_keys)}
    if not keeps_state:
        assert len(stored) >= COUNT + sent
        return
    assert len(stored) == COUNT
    for queue in queues:
        old = [number for number in range(COUNT) if number % 3 % 2 == queue["queueId"]]
        assert [message["body"] for message in queue["messages"]] == [b"%d" % number for number in old]
        for number, message in zip(old, queue["messages"], strict=True):
            kept = message["properties"]
            assert (kept["KEYS"], kept["TAGS"], kept["UNIQ_KEY"]) == (f"k{number}", "A", unique_keys[number])
            assert kept["RMQTOOL_MESSAGE_ID"] == answers[number]["messageId"]
            assert kept["RMQTOOL_STORE_TIME"] == str(answers[number]["storeTimestamp"])
            assert kept["RMQTOOL_QUEUE_OFFSET"] == f"{number % 3}:{number // 3}"
            assert (message["bornTimestamp"], message["flag"]) == (1_600_000_000_000 + number, 7)


def written(judge: Judge, directory: Path) -> list[Answer]:
    """A store with messages in three queues, each fifth without a unique key, whose broker is dead."""
    store = judge.open(directory, CONFIG)
    answers = store.put(
        *(
            {
                "topic": "Orders",
                "queueId": number % 3,
                "body": b"%d" % number,
                "flag": 7,
                "bornTimestamp": 1_600_000_000_000 + number,
                "properties": {"KEYS": f"k{number}", "TAGS": "A"}
                | ({"UNIQ_KEY": f"{number:032X}"} if number % 5 else {}),
            }
            for number in range(COUNT)
        )
    )
    store.halt()
    return answers


def unique_key(number: int) -> dict[str, str]:
    return {"UNIQ_KEY": f"{number:032X}"} if number % 5 else {}


def script_of(source: Path, broker: WholeBroker, checkpoint: Path) -> str:
    """The example of docs/spark.md, as a program."""
    block = re.search(
        r'<a id="send">.*?```python\n(.*?)```', (ROOT / "docs" / "spark.md").read_text("utf-8"), re.DOTALL
    )
    assert block is not None
    places = {
        "/backup/store": str(source),
        "10.0.0.5:9876": broker.started["nameServer"],
        "/lake/orders": str(checkpoint),
    }
    lines = block[1]
    for shown, place in places.items():
        assert shown in lines
        lines = lines.replace(shown, place)
    return SESSION + lines


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": QUICK_JAVA}


def await_messages(query: subprocess.Popen[bytes], log: Path, broker: WholeBroker, count: int) -> None:
    """Until so many messages are in the new queues."""
    deadline = time.monotonic() + 300
    while sum(broker.bodies(NEW).values()) < count:
        assert query.poll() is None, log.read_text("utf-8")
        assert time.monotonic() < deadline
        time.sleep(0.2)

"""Messages of a store reach a real client once, in the order of their queues, whoever is killed on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Answer, Judge
from tests.broker.whole import WholeBroker

CONFIG = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
TOPICS = {"New": {"readQueueNums": 2, "writeQueueNums": 2}}
COUNT = 600


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_client_gets_every_message_once(judge_of: Any, tmp_path: Path, version: str) -> None:
    source, target, state = tmp_path / "source", tmp_path / "target", tmp_path / "state"
    answers = written(judge_of(version), source)
    stops: list[int] = []
    with WholeBroker(version, target, CONFIG, TOPICS) as broker:
        port = int(broker.started["address"].rpartition(":")[2])
        run = replay(source, broker, state, "--rate", "40")
        wait_for(run, state, 100)
        run.send_signal(signal.SIGKILL)
        stops.append(run.wait(60))
        run = replay(source, broker, state, "--rate", "30", "--wait", "10")
        wait_for(run, state, 250)
        broker.kill()
        stops.append(run.wait(60))
    with WholeBroker(version, target, CONFIG, TOPICS, port=port) as broker:
        stops += [replay(source, broker, state).wait(120) for _ in range(2)]
        queues = broker.consume("New")
    assert stops == [-signal.SIGKILL, 4, 0, 0]
    for queue in queues:
        old = [number for number in range(COUNT) if number % 3 % 2 == queue["queueId"]]
        assert [message["body"] for message in queue["messages"]] == [b"%d" % number for number in old]
        for number, message in zip(old, queue["messages"], strict=True):
            kept = message["properties"]
            assert (kept["KEYS"], kept["TAGS"], kept["UNIQ_KEY"]) == (f"k{number}", "A", f"{number:032X}")
            assert kept["RMQTOOL_MESSAGE_ID"] == answers[number]["messageId"]
            assert kept["RMQTOOL_STORE_TIME"] == str(answers[number]["storeTimestamp"])
            assert kept["RMQTOOL_QUEUE_OFFSET"] == f"{number % 3}:{number // 3}"
            assert (message["bornTimestamp"], message["flag"]) == (1_600_000_000_000 + number, 7)


def written(judge: Judge, directory: Path) -> list[Answer]:
    """A store with messages in three queues, whose broker is dead."""
    store = judge.open(directory, CONFIG)
    answers = store.put(
        *(
            {
                "topic": "Orders",
                "queueId": number % 3,
                "body": b"%d" % number,
                "flag": 7,
                "bornTimestamp": 1_600_000_000_000 + number,
                "properties": {"KEYS": f"k{number}", "TAGS": "A", "UNIQ_KEY": f"{number:032X}"},
            }
            for number in range(COUNT)
        )
    )
    store.halt()
    return answers


def replay(source: Path, broker: WholeBroker, state: Path, *options: str) -> subprocess.Popen[str]:
    broker.await_route("New")
    name_server = broker.started["nameServer"]
    words = ["replay", str(source), "--to", name_server, "--map", "Orders=New", "--state", str(state), *options]
    return subprocess.Popen([sys.executable, "-m", "rmqtool", *words], text=True, stdout=subprocess.DEVNULL)


def wait_for(run: subprocess.Popen[str], state: Path, count: int) -> None:
    """Until so many messages are in the journal, so that more of them are in the broker."""
    deadline = time.monotonic() + 120
    while sent(state) < count:
        assert run.poll() is None, "the replay ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def sent(state: Path) -> int:
    """Messages that the last line of a journal counts."""
    _, _, count = state.read_text("utf-8").rpartition('"Orders":') if state.exists() else ("", "", "")
    digits = count.partition("}")[0]
    return int(digits) if digits.isdecimal() else 0

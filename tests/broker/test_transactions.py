"""Transactions before a real, whole broker that was killed: how often each is asked about and delivered afterwards."""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker import Judge
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

CONFIG = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 20000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 2000,
}
NEVER_MS = 600_000
TOPIC = "deals"
TOPICS = {TOPIC: {"readQueueNums": 4, "writeQueueNums": 4}}
STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")
COUNT = 30
WAIT_SECONDS = 120


def timing(timeout_ms: int, check_ms: int, operation_ms: int) -> dict[str, object]:
    """Settings of a broker: when it asks first, how often it looks, how long it keeps operation records in memory."""
    names = ("transactionTimeOut", "transactionCheckInterval", "transactionOpBatchInterval")
    values = (timeout_ms, check_ms, operation_ms)
    return CONFIG | {f"broker.{name}": value for name, value in zip(names, values, strict=True)}


def outcome(number: int) -> str:
    """What the producer answers when it is asked: of those that it left open, every second one is committed."""
    return STATES[number % 3] if number % 3 < 2 else STATES[1 - number % 2]


def listed(path: Path) -> Counter[str]:
    ran = rmqtool("dump", path, "--transactions", "--format", "jsonl")
    return Counter(json.loads(line)["state"] for line in ran.out.splitlines())


def ended(path: Path) -> int:
    return listed(path)["ended"]


@pytest.mark.parametrize(
    ("version", "operations_lost"), [("4.9.7", False), ("5.5.0", False), ("5.5.0", True)]
)  # fmt: skip
def test_an_open_transaction_is_asked_about_and_delivered_once(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str, *, operations_lost: bool
) -> None:
    del judge_of  # only a whole broker has transactions
    path = tmp_path / "store"
    broker = WholeBroker(version, path, timing(NEVER_MS, NEVER_MS, NEVER_MS if operations_lost else 100), TOPICS)
    for number in range(COUNT):
        broker.transact(TOPIC, b"%d" % number, STATES[number % 3])
    deadline = time.monotonic() + WAIT_SECONDS
    while not operations_lost and ended(path) < COUNT * 2 // 3 and time.monotonic() < deadline:
        time.sleep(0.3)
    assert broker.bodies(TOPIC) == Counter(b"%d" % number for number in range(0, COUNT, 3))
    broker.kill()
    expected = {"committed": 10, "open": 20} if operations_lost else {"ended": 20, "open": 10}
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONFIG.items()))
    options = ("--broker-conf", conf, "--broker-version", version)
    recovered = rmqtool("recover", path, "--yes", *options)
    assert recovered.code == 0, recovered.out + recovered.err
    assert listed(path) == Counter(expected)
    verified = rmqtool("verify", path, *options)
    assert ("transaction.committed-half" in verified.out) == operations_lost
    with WholeBroker(version, path, timing(2000, 4000, 100), TOPICS) as started:
        started.checks(TOPIC, {b"%d" % number: outcome(number) for number in range(COUNT)})
        deadline = time.monotonic() + WAIT_SECONDS
        asked = COUNT if operations_lost else COUNT // 3
        while len(started.checks(TOPIC)) < asked and time.monotonic() < deadline:
            time.sleep(0.3)
        # A transaction without an answer that is asked about twice shows that the broker looked again since.
        started.transact(TOPIC, b"last", "UNKNOW")
        while started.checks(TOPIC).get(b"last", 0) < 2 and time.monotonic() < deadline:
            time.sleep(0.3)
        counts, checks = started.bodies(TOPIC), started.checks(TOPIC)
    del checks[b"last"]
    assert Counter(checks.values()) == Counter({1: asked})
    committed = {b"%d" % number for number in range(COUNT) if outcome(number) == STATES[0]}
    twice = {b"%d" % number for number in range(0, COUNT, 3)} if operations_lost else set()
    assert counts == Counter({body: 2 if body in twice else 1 for body in committed})

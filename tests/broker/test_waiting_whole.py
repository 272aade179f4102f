"""One broker with all that waits, which is killed, damaged everywhere, and repaired: each message comes as it should.

Timers, delayed messages, a compacted topic, transactions and pop consumers. Half of the timers and of the delayed
messages are delivered before the broker is killed, half of what a pop consumer received is acknowledged, and a third
of the transactions is open.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.test_compaction import CONFIG as COMPACTION
from tests.broker.test_compaction import FIRST, KEYS, LOG, last_values, served
from tests.broker.test_compaction import TOPICS as COMPACTED
from tests.broker.test_pop import BROKER, EACH, NEVER_MS, acknowledge, consumed, pop
from tests.broker.test_pop import TOPIC as POPPED
from tests.broker.test_pop import TOPICS as POP_TOPICS
from tests.broker.test_timer import CONFIG as TIMER
from tests.broker.test_timer import TOPICS
from tests.broker.test_timer_kinds import wait_for
from tests.broker.test_transactions import TOPIC as DEALS
from tests.broker.test_transactions import TOPICS as DEAL_TOPICS
from tests.broker.test_transactions import listed, timing
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

VERSION = "5.5.0"
COUNT = 20
LATE_SECONDS = 60
CONFIG = COMPACTION | TIMER | {"messageDelayLevel": f"1s {LATE_SECONDS}s 2h"}
BEFORE = CONFIG | timing(NEVER_MS, NEVER_MS, 100) | CONFIG | BROKER | {"broker.reviveInterval": NEVER_MS}
AFTER = CONFIG | timing(2000, 4000, 100) | CONFIG | BROKER | {"broker.popFromRetryProbability": 100}
OFFSETS = "config/delayOffset.json"
STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")
DEAL_COUNT = 12
ACKNOWLEDGED = range(0, EACH, 2)
HELD = [b"0-%d" % number for number in range(EACH) if number not in ACKNOWLEDGED]
WAIT_SECONDS = 180


def run_and_kill(path: Path) -> None:
    broker = WholeBroker(VERSION, path, BEFORE, TOPICS | COMPACTED | POP_TOPICS | DEAL_TOPICS)
    for number in range(COUNT):
        is_late = number % 2 == 0
        delay_ms = LATE_SECONDS * 1000 if is_late else 1000
        broker.send("alarms", number % 4, b"timer %d" % number, {"TIMER_DELAY_MS": str(delay_ms)})
        broker.send("alarms", number % 4, b"delay %d" % number, {"DELAY": "2" if is_late else "1"})
        broker.send("settings", 0, b"value %d" % number, {"KEYS": f"key-{number % KEYS}"})
    for number in range(DEAL_COUNT):
        broker.transact(DEALS, b"%d" % number, STATES[number % 3])
    for number in range(EACH):
        broker.send(POPPED, 0, b"0-%d" % number)
    popped = pop(broker, 0)
    assert len(popped["messages"]) == EACH
    acknowledge(broker, popped, 0, [*ACKNOWLEDGED], in_batch=False)
    before = broker.bodies_until("alarms", COUNT, WAIT_SECONDS)
    assert (len(before), before.total(), len(served(broker))) == (COUNT, COUNT, COUNT)
    wait_for(lambda: listed(path)["ended"] == DEAL_COUNT * 2 // 3)
    wait_for(lambda: sum(consumed(path, False).values()) == EACH)
    broker.kill()


def damage(path: Path) -> None:
    shutil.rmtree(path / "timerlog")
    (path / "timerwheel").unlink()
    (path / "config/timercheck").unlink()
    for name in (OFFSETS, f"{OFFSETS}.bak"):
        (path / name).write_text('{"offsetTable":{1:')
    os.truncate(path / LOG / FIRST, 1000)
    for name in ("config/topics.json", "config/topics.json.bak"):
        (path / name).unlink(missing_ok=True)


def popped_again(broker: WholeBroker) -> Counter[bytes]:
    """What a pop consumer gets until all that was held has come, and a message that is sent then."""
    again: Counter[bytes] = Counter()
    deadline = time.monotonic() + WAIT_SECONDS
    while Counter(HELD) - again and time.monotonic() < deadline:
        again.update(message["body"] for message in pop(broker, -1)["messages"])
    broker.send(POPPED, 0, b"last")
    while b"last" not in again and time.monotonic() < deadline:
        again.update(message["body"] for message in pop(broker, -1)["messages"])
    return again


def deals_asked_about(broker: WholeBroker) -> dict[bytes, int]:
    """How often the producer was asked, who commits what was open, until the broker looked again."""
    broker.checks(DEALS, {b"%d" % number: "COMMIT_MESSAGE" for number in range(DEAL_COUNT)})
    broker.transact(DEALS, b"last", "UNKNOW")
    wait_for(lambda: broker.checks(DEALS).get(b"last", 0) >= 2)
    return {body: count for body, count in broker.checks(DEALS).items() if body != b"last"}


def test_each_message_comes_as_it_should_after_a_repair_of_all(
    judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    del judge_of  # only a whole broker has a timer
    path = tmp_path / "store"
    run_and_kill(path)
    damage(path)
    with pytest.raises(JudgeError, match="does not initialize"):
        WholeBroker(VERSION, copy_store(path, tmp_path / "copy"), AFTER)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONFIG.items()))
    options = ("--broker-conf", conf, "--broker-version", VERSION)
    for command in (("rebuild", "--topics"), ("recover",)):
        repaired = rmqtool(command[0], path, *command[1:], "--yes", *options)
        assert "Done." in repaired.out, repaired.err
    names = {b"%s %d" % (kind, number): 1 for kind in (b"timer", b"delay") for number in range(COUNT)}
    with WholeBroker(VERSION, path, AFTER) as broker:
        asked = deals_asked_about(broker)
        broker.bodies_until("alarms", len(names), WAIT_SECONDS)
        for kind, properties in ((b"timer", {"TIMER_DELAY_MS": "1000"}), (b"delay", {"DELAY": "1"})):
            broker.send("alarms", 0, b"new " + kind, properties)
        # Messages taken later: nothing before them is still to come.
        counts = broker.bodies_until("alarms", len(names) + 2, WAIT_SECONDS)
        values, sold, again = served(broker), broker.bodies(DEALS), popped_again(broker)
    assert counts == names | {b"new timer": 1, b"new delay": 1}
    assert last_values(values) == {f"key-{number}": b"value %d" % number for number in range(COUNT)}
    assert asked == {b"%d" % number: 1 for number in range(2, DEAL_COUNT, 3)}
    assert sold == {b"%d" % number: 1 for number in range(DEAL_COUNT) if number % 3 != 1}
    assert again == Counter([*HELD, b"last"])
    verified = rmqtool("verify", path, *options)
    assert (verified.code, verified.out.splitlines()[0]) == (0, "OK: no problems found"), verified.out

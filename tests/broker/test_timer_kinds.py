"""Timers of every kind before a real, whole broker: rolled, deleted, far away, with snapshots, and in RocksDB.

Each broker is killed with timers that wait; its timer is damaged and repaired, and then each message comes once.
"""

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtool.formats.timer import UNIT_SIZE
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.test_timer import CONFIG, TOPICS, remove_all
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

JudgeOf = Callable[[str], Judge]
COUNT = 10
WAIT_SECONDS = 120


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def timers_sent(path: Path) -> int:
    """Messages in the timer's queue; a rolled one counts each time."""
    units = np.fromfile(path / "consumequeue/rmq_sys_wheel_timer/0/00000000000000000000", ">i4").reshape(-1, 5)
    return int((units[:, 2] > 0).sum())


def options(tmp_path: Path, config: dict[str, Any], version: str) -> tuple[object, ...]:
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={str(value).lower()}\n" for key, value in config.items()))
    return "--broker-conf", conf, "--broker-version", version


def timer_findings(path: Path, *asked: object) -> set[str]:
    findings = json.loads(rmqtool("verify", path, "--format", "json", *asked).out)["summary"]["findings"]
    return {kind for kind in findings if kind.startswith("timer.")}


def pending(path: Path, *asked: object) -> list[dict[str, Any]]:
    dumped = rmqtool("dump", path, "--pending", "--format", "jsonl", *asked)
    return [json.loads(line) for line in dumped.out.splitlines()]


def delivered_at_last(version: str, path: Path, config: dict[str, Any], count: int) -> Counter[bytes]:
    """What was delivered when a later message has come too."""
    with WholeBroker(version, path, config, TOPICS) as broker:
        broker.bodies_until("alarms", count, WAIT_SECONDS)
        broker.send("alarms", 0, b"new", {"TIMER_DELAY_MS": "1500"})
        return broker.bodies_until("alarms", count + 1, WAIT_SECONDS)


def halves(broker: WholeBroker, late_ms: int) -> None:
    """Send messages, every second of which is delivered at once."""
    for number in range(COUNT):
        broker.send("alarms", number % 4, b"%d" % number, {"TIMER_DELAY_MS": str(1500 if number % 2 else late_ms)})
    assert len(broker.bodies_until("alarms", COUNT // 2, WAIT_SECONDS)) == COUNT // 2


ONCE = {b"%d" % number: 1 for number in range(COUNT)}


@pytest.mark.parametrize("version", ["5.3.3", "5.5.0"])
def test_rolled_deleted_and_far_timers(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    del judge_of  # only a whole broker has a timer
    config = {**CONFIG, "mappedFileSizeCommitLog": 8192, "timerRollWindowSlot": 6, "timerMaxDelaySec": 30 * 86_400}
    path = tmp_path / "store"
    broker = WholeBroker(version, path, config, TOPICS)
    now_ms = int(time.time() * 1000)
    times = {"early": now_ms + 12_000, "late": now_ms + 45_000}
    for name, due_ms in times.items():
        for number in range(COUNT):
            body = b"%s%d" % (name.encode(), number)
            key = broker.send("alarms", number % 4, body, {"TIMER_DELIVER_MS": str(due_ms)})["uniqueKey"]
            if number == 0:
                key = f"alarms+{key}" if version == "5.3.3" else key
                broker.send("alarms", 0, b"no", {"TIMER_DELIVER_MS": str(due_ms), "TIMER_DEL_UNIQKEY": key})
    broker.send("alarms", 0, b"far", {"TIMER_DELAY_SEC": str(20 * 86_400)})
    sent = timers_sent(path)
    assert len(broker.bodies_until("alarms", COUNT - 1, WAIT_SECONDS)) == COUNT - 1
    wait_for(lambda: timers_sent(path) >= sent + COUNT + 2)  # all that is late, what deletes, and the far one
    broker.kill()
    asked = options(tmp_path, config, version)
    assert not timer_findings(path, *asked)
    for first_is_expired in (False, True):
        copy = copy_store(path, tmp_path / f"copy-{first_is_expired}")
        if first_is_expired:  # the first records of what rolled are in this file
            (copy / "commitlog/00000000000000000000").unlink()
        remove_all(copy)
        assert timer_findings(copy, *asked) == {"timer.missing-file"}
        assert "timers that wait" in rmqtool("rebuild", copy, "--timer", "--yes", *asked).out
        assert not timer_findings(copy, *asked)
        assert [row["rolls"] for row in pending(copy)].count(True) == 1
        counts = delivered_at_last(version, copy, config, 2 * (COUNT - 1))
        assert counts == {b"%s%d" % (name.encode(), n): 1 for name in times for n in range(1, COUNT)} | {b"new": 1}
        assert not timer_findings(copy, *asked)
        assert [row["rolls"] for row in pending(copy)] == [True]
        shutil.rmtree(copy)


def test_a_broker_takes_no_timer_later_than_its_limit(judge_of: JudgeOf, tmp_path: Path) -> None:
    del judge_of
    with WholeBroker("5.5.0", tmp_path, CONFIG, TOPICS) as broker:
        with pytest.raises(JudgeError, match="should not be bigger than the max delay 259200000ms"):
            broker.send("alarms", 0, b"far", {"TIMER_DELAY_SEC": str(3 * 86_400 + 60)})
        assert not broker.bodies("alarms")


def test_snapshots_of_the_wheel(judge_of: JudgeOf, tmp_path: Path) -> None:
    del judge_of
    config = {**CONFIG, "timerWheelSnapshotFlush": True, "timerWheelSnapshotIntervalMs": 500}
    path = tmp_path / "store"
    broker = WholeBroker("5.5.0", path, config, TOPICS)
    halves(broker, 20_000)
    newest = path / f"timerwheel.{COUNT * UNIT_SIZE}"
    wait_for(newest.exists)
    broker.kill()
    asked = options(tmp_path, config, "5.5.0")
    assert not timer_findings(path, *asked)
    assert {row["waits_in"] for row in pending(path)} == {"timer"}
    os.truncate(newest, 1000)
    assert timer_findings(path, *asked) == {"timer.wrong-file-size"}
    with pytest.raises(JudgeError, match="does not initialize"):
        WholeBroker("5.5.0", copy_store(path, tmp_path / "copy"), config, TOPICS)
    rmqtool("rebuild", path, "--timer", "--yes", *asked)
    assert (list(path.glob("timerwheel*")), timer_findings(path, *asked)) == ([path / "timerwheel"], set())
    assert delivered_at_last("5.5.0", path, config, COUNT) == ONCE | {b"new": 1}


def test_timers_in_rocksdb(judge_of: JudgeOf, tmp_path: Path) -> None:
    """Until the database is written the queue has them all; after that only the broker knows which it delivered."""
    del judge_of
    config = {**CONFIG, "timerRocksDBEnable": True}
    path = tmp_path / "store"
    broker = WholeBroker("5.5.0", path, config, TOPICS)
    halves(broker, 20_000)
    broker.kill()
    asked = options(tmp_path, config, "5.5.0")
    assert timer_findings(path, *asked) == {"timer.missing-file"}  # the database is in memory, and the log is not used
    again = copy_store(path, tmp_path / "again")
    with WholeBroker("5.5.0", again, config, TOPICS) as broker:
        wait_for(lambda: broker.bodies("alarms").total() >= COUNT * 3 // 2)
        assert Counter(broker.bodies("alarms").values()) == {2: COUNT // 2, 1: COUNT // 2}
    rmqtool("rebuild", path, "--timer", "--yes", *asked)
    assert delivered_at_last("5.5.0", path, config, COUNT) == ONCE | {b"new": 1}


def test_timers_that_rocksdb_has_are_shown_and_not_rebuilt(judge_of: JudgeOf, tmp_path: Path) -> None:
    """A message that is due when the broker takes it from the queue is delivered without a note of that.

    If it is the last one, the broker delivers it again after its start: it waits in the queue, as is shown.
    """
    del judge_of
    config = {**CONFIG, "timerRocksDBEnable": True}
    path = tmp_path / "store"
    with WholeBroker("5.5.0", path, config, TOPICS) as broker:
        halves(broker, 60_000)
    asked = options(tmp_path, config, "5.5.0")
    assert not timer_findings(path, *asked)
    places = Counter(row["waits_in"] for row in pending(path))
    assert places["timer"] == COUNT // 2
    assert places["queue"] <= 1
    refused = rmqtool("rebuild", path, "--timer", "--yes", *asked)
    assert (refused.code, "rocksdbstore/ has timers (timerRocksDBEnable)" in refused.err) == (4, True)
    last = {b"%d" % (COUNT - 1): 1 + places["queue"]}
    assert delivered_at_last("5.5.0", path, config, COUNT) == ONCE | last | {b"new": 1}

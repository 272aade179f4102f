"""Timers, delayed messages and a compacted topic in one broker, which is killed, damaged in all three, and repaired.

Half of the timers and of the delayed messages are delivered before the broker is killed; the other half waits.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.test_compaction import CONFIG as COMPACTION
from tests.broker.test_compaction import FIRST, KEYS, LOG, last_values, served
from tests.broker.test_compaction import TOPICS as COMPACTED
from tests.broker.test_timer import CONFIG as TIMER
from tests.broker.test_timer import TOPICS, until
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

VERSION = "5.5.0"
COUNT = 20
LATE_SECONDS = 60
CONFIG = COMPACTION | TIMER | {"messageDelayLevel": f"1s {LATE_SECONDS}s 2h"}
OFFSETS = "config/delayOffset.json"


def test_each_message_comes_once_after_a_repair_of_all(judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    del judge_of  # only a whole broker has a timer
    path = tmp_path / "store"
    broker = WholeBroker(VERSION, path, CONFIG, TOPICS | COMPACTED)
    names = {b"%s %d" % (kind, number): 1 for kind in (b"timer", b"delay") for number in range(COUNT)}
    for number in range(COUNT):
        is_late = number % 2 == 0
        delay_ms = LATE_SECONDS * 1000 if is_late else 1000
        broker.send("alarms", number % 4, b"timer %d" % number, {"TIMER_DELAY_MS": str(delay_ms)})
        broker.send("alarms", number % 4, b"delay %d" % number, {"DELAY": "2" if is_late else "1"})
        broker.send("settings", 0, b"value %d" % number, {"KEYS": f"key-{number % KEYS}"})
    before = until(broker, COUNT)
    assert (len(before), before.total(), len(served(broker))) == (COUNT, COUNT, COUNT)
    broker.kill()
    shutil.rmtree(path / "timerlog")
    (path / "timerwheel").unlink()
    (path / "config/timercheck").unlink()
    for name in (OFFSETS, f"{OFFSETS}.bak"):
        (path / name).write_text('{"offsetTable":{1:')
    os.truncate(path / LOG / FIRST, 1000)
    with pytest.raises(JudgeError, match="does not initialize"):
        WholeBroker(VERSION, copy_store(path, tmp_path / "copy"), CONFIG)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONFIG.items()))
    options = ("--broker-conf", conf, "--broker-version", VERSION)
    repaired = rmqtool("recover", path, "--yes", *options)
    assert "Done." in repaired.out, repaired.err
    with WholeBroker(VERSION, path, CONFIG) as broker:
        until(broker, len(names))
        for kind, properties in ((b"timer", {"TIMER_DELAY_MS": "1000"}), (b"delay", {"DELAY": "1"})):
            broker.send("alarms", 0, b"new " + kind, properties)
        counts = until(broker, len(names) + 2)  # messages taken later: nothing before them is still to come
        values = served(broker)
    assert counts == names | {b"new timer": 1, b"new delay": 1}
    assert last_values(values) == {f"key-{number}": b"value %d" % number for number in range(COUNT)}
    verified = rmqtool("verify", path, *options)
    assert (verified.code, verified.out.splitlines()[0]) == (0, "OK: no problems found")

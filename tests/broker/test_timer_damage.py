"""Single faults in a timer before a real, whole broker: what comes without a repair, and after `recover` each once.

No message is delivered before the broker ends.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.formats.timer import UNIT_SIZE, parse_check
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.test_timer import CONFIG as TIMER
from tests.broker.test_timer import TOPICS
from tests.broker.test_timer_kinds import options, timer_findings, wait_for
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

VERSION = "5.5.0"
CONFIG = TIMER | {"mappedFileSizeCommitLog": 4096, "mappedFileSizeTimerLog": 640}
COUNT, TOGETHER = 40, 10
LATE_MS = 120_000
WAIT_SECONDS = 120
EXPIRED = "timer-record-expired"
FIRST_FILE = "commitlog/00000000000000000000"
ALL = range(COUNT)
NEVER_AND_TWICE: dict[str, tuple[range, range]] = {
    "timer-slot-moved": (range(10), range(0)),
    "timer-slot-ahead": (range(0), range(0)),
    "timer-units-zeroed": (range(1, 6), range(0)),
    "timer-log-end-zeroed": (range(36, 40), range(0)),
    "timer-unit-elsewhere": (range(9, 10), range(0)),
    "timer-unit-lost": (range(9, 10), range(8, 9)),
    "timer-log-missing": (ALL, range(0)),
    "timer-check-missing": (range(0), ALL),
    "timer-check-ahead": (range(0), range(0)),
    "timer-check-zeroed": (range(0), ALL),
    "timer-check-behind": (range(0), range(36, 40)),
}
"""Which messages never come, and which come twice, without a repair; the same after a kill and after a stop."""


@dataclass
class Stopped:
    """A store with four slots of ten timers, all written to the disk; `due_ms`: when the last one is due."""

    path: Path
    due_ms: int


@pytest.fixture(scope="module", params=["killed", "stopped"])
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    path = tmp_path_factory.mktemp("timer-damage") / "store"
    with WholeBroker(VERSION, path, CONFIG, TOPICS) as broker:
        due_ms = int(time.time()) * 1000 + LATE_MS
        for number in ALL:
            deliver_ms = str(due_ms + number // TOGETHER * 1000)
            broker.send("alarms", number % 4, b"%d" % number, {"TIMER_DELIVER_MS": deliver_ms})
        check = path / "config/timercheck"
        wait_for(lambda: check.is_file() and parse_check(check.read_bytes()).flushed_position >= COUNT * UNIT_SIZE)
        assert not broker.bodies("alarms")
        if request.param == "killed":
            broker.kill()
    return Stopped(path, due_ms + COUNT // TOGETHER * 1000)


def damaged(name: str, store: Stopped, path: Path) -> Path:
    damage_store(DAMAGES[name], copy_store(store.path, path))
    return path


def delivered(path: Path, due_ms: int) -> Counter[bytes]:
    """What comes until a message has come that is due after all others and was sent last."""
    with WholeBroker(VERSION, path, CONFIG, TOPICS) as broker:
        last_ms = max(int(time.time() * 1000) + 1500, due_ms + 2000)
        broker.send("alarms", 0, b"last", {"TIMER_DELIVER_MS": str(last_ms)})
        deadline = time.monotonic() + LATE_MS / 1000 + WAIT_SECONDS
        while b"last" not in (counts := broker.bodies("alarms")) and time.monotonic() < deadline:
            time.sleep(0.3)
    assert counts.pop(b"last", 0) == 1
    return counts


def in_first_file(path: Path) -> set[int]:
    """Messages whose record is in the first file of the commit log."""
    ran = rmqtool("dump", path / FIRST_FILE, "--body", "text", "--format", "csv", "--fields", "body")
    return {int(line) for line in ran.out.split() if line.isdigit()}


@pytest.mark.parametrize("name", NEVER_AND_TWICE)
def test_what_comes_without_a_repair(
    judge_of: Callable[[str], Judge], stopped: Stopped, tmp_path: Path, name: str
) -> None:
    del judge_of  # only a whole broker has a timer
    path = damaged(name, stopped, tmp_path / "store")
    assert set(DAMAGES[name].findings) & timer_findings(path, *options(tmp_path, CONFIG, VERSION))
    never, twice = NEVER_AND_TWICE[name]
    counts = delivered(path, stopped.due_ms)
    assert counts == {b"%d" % number: 2 if number in twice else 1 for number in ALL if number not in never}


@pytest.mark.parametrize("name", [*NEVER_AND_TWICE, "timer-unit-loop"])
def test_each_message_comes_once_after_recover(
    judge_of: Callable[[str], Judge], stopped: Stopped, tmp_path: Path, name: str
) -> None:
    del judge_of
    path = damaged(name, stopped, tmp_path / "store")
    asked = options(tmp_path, CONFIG, VERSION)
    repaired = rmqtool("recover", path, "--yes", *asked)
    assert "Done." in repaired.out, repaired.err
    assert not timer_findings(path, *asked)
    assert delivered(path, stopped.due_ms) == {b"%d" % number: 1 for number in ALL}


def test_messages_that_the_commit_log_has_lost_never_come(
    judge_of: Callable[[str], Judge], stopped: Stopped, tmp_path: Path
) -> None:
    del judge_of
    lost = in_first_file(stopped.path)
    assert lost
    path = damaged(EXPIRED, stopped, tmp_path / "store")
    assert "timer.expired-record" in timer_findings(path, *options(tmp_path, CONFIG, VERSION))
    assert delivered(path, stopped.due_ms) == {b"%d" % number: 1 for number in ALL if number not in lost}

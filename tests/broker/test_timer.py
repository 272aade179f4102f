"""The timer before a real, whole broker: what damage does, and `rebuild --timer`, after which each message comes once.

Half of the messages are delivered before the broker is killed, the last one of the queue too; the other half waits.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.timer import UNIT_SIZE
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

VERSION = "5.5.0"
CONFIG = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 20000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 2000,
    "mappedFileSizeTimerLog": 1048576,
    "timerWheelEnable": True,
}
TOPICS = {"alarms": {"readQueueNums": 4, "writeQueueNums": 4}}
LOG = "timerlog/00000000000000000000"
COUNT = 40
EARLY_MS = 1500
LATE_MS = 20_000
WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose broker was killed when every second timer was delivered."""
    path = tmp_path_factory.mktemp("timer") / "store"
    broker = WholeBroker(VERSION, path, CONFIG, TOPICS)
    for number in range(COUNT):
        delay_ms = EARLY_MS if number % 2 else LATE_MS
        broker.send("alarms", number % 4, b"%d" % number, {"TIMER_DELAY_MS": str(delay_ms)})
    assert len(broker.bodies_until("alarms", COUNT // 2, WAIT_SECONDS)) == COUNT // 2
    broker.kill()
    return path


def zero_units(path: Path) -> None:
    with (path / LOG).open("r+b") as log:
        log.seek(10 * UNIT_SIZE)
        log.write(bytes(15 * UNIT_SIZE))


def remove_all(path: Path) -> None:
    shutil.rmtree(path / "timerlog")
    for name in ("timerwheel", "config/timercheck"):
        (path / name).unlink()


def shorten(name: str, size: int) -> Callable[[Path], None]:
    def truncate(path: Path) -> None:
        with (path / name).open("r+b") as file:
            file.truncate(size)

    return truncate


DAMAGES = {
    "zeroed-units": zero_units,
    "all-removed": remove_all,
    "short-wheel": shorten("timerwheel", 1000),
    "short-log": shorten(LOG, 1_000_000),
}


@pytest.mark.parametrize("name", ["short-wheel", "short-log"])
def test_a_broker_does_not_start_on_a_file_of_another_length(
    judge_of: Callable[[str], Judge], killed: Path, tmp_path: Path, name: str
) -> None:
    del judge_of  # only a whole broker has a timer
    path = copy_store(killed, tmp_path / "store")
    DAMAGES[name](path)
    with pytest.raises(JudgeError):
        WholeBroker(VERSION, path, CONFIG, TOPICS)


def test_what_was_delivered_comes_again_without_the_timers_files(
    judge_of: Callable[[str], Judge], killed: Path, tmp_path: Path
) -> None:
    del judge_of
    path = copy_store(killed, tmp_path / "store")
    remove_all(path)
    with WholeBroker(VERSION, path, CONFIG, TOPICS) as broker:
        broker.bodies_until("alarms", COUNT, WAIT_SECONDS)
        deadline = time.monotonic() + WAIT_SECONDS
        while (counts := broker.bodies("alarms")).total() < COUNT * 3 // 2 and time.monotonic() < deadline:
            time.sleep(0.3)
    assert Counter(counts.values()) == Counter({2: COUNT // 2, 1: COUNT // 2})


@pytest.mark.parametrize("command", [("rebuild", "--timer"), ("recover",)], ids=["rebuild", "recover"])
@pytest.mark.parametrize("name", DAMAGES)
def test_each_message_comes_once_after_a_repair(
    judge_of: Callable[[str], Judge], killed: Path, tmp_path: Path, name: str, command: tuple[str, ...]
) -> None:
    del judge_of
    path = copy_store(killed, tmp_path / "store")
    DAMAGES[name](path)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONFIG.items()))
    options = ("--broker-conf", conf, "--broker-version", VERSION)
    repaired = rmqtool(command[0], path, *command[1:], "--yes", *options)
    assert "already delivered: 20" in repaired.out, repaired.err
    with WholeBroker(VERSION, path, CONFIG, TOPICS) as broker:
        broker.bodies_until("alarms", COUNT, WAIT_SECONDS)
        broker.send("alarms", 0, b"new", {"TIMER_DELAY_MS": str(EARLY_MS)})
        # A message taken later: nothing before it is still to come.
        counts = broker.bodies_until("alarms", COUNT + 1, WAIT_SECONDS)
    assert Counter(counts.values()) == Counter({1: COUNT + 1})
    verified = rmqtool("verify", path, *options)
    assert (verified.code, verified.out.splitlines()[0]) == (0, "OK: no problems found")

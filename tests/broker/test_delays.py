"""Delay levels before a real, whole broker: what a wrong `delayOffset.json` does, and `rebuild --delay-offsets`.

Half of the messages are delivered before the broker is killed; the other half waits in another level.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

VERSIONS = ("4.9.7", "5.5.0")
CONFIG = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 20000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 2000,
    "messageDelayLevel": "1s 25s 2h",
}
TOPICS = {"alarms": {"readQueueNums": 4, "writeQueueNums": 4}}
OFFSETS = "config/delayOffset.json"
COUNT = 40
HALF = COUNT // 2
WAIT_SECONDS = 90
LATER_SECONDS = 27
"""After this the messages of the second level are due, however long ago they were sent."""
AHEAD = {"1": HALF, "2": 1000}


@pytest.fixture(scope="module", params=VERSIONS)
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A store whose broker was killed when the messages of the first level were delivered."""
    version = request.param
    path = tmp_path_factory.mktemp("delays") / "store"
    broker = WholeBroker(version, path, CONFIG, TOPICS)
    for number in range(COUNT):
        broker.send("alarms", number % 4, b"%d" % number, {"DELAY": "1" if number % 2 else "2"})
    assert len(broker.bodies_until("alarms", HALF, WAIT_SECONDS)) == HALF
    broker.kill()
    return version, path


def write(path: Path, text: str) -> None:
    (path / OFFSETS).write_text(text)


def remove(path: Path) -> None:
    for name in (OFFSETS, f"{OFFSETS}.bak"):
        (path / name).unlink(missing_ok=True)


def broken(path: Path) -> None:
    remove(path)
    write(path, '{"offsetTable":{1:')


def both_broken(path: Path) -> None:
    broken(path)
    (path / f"{OFFSETS}.bak").write_text('{"offsetTable":{1:')


def offsets(table: dict[str, int]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        remove(path)
        write(path, json.dumps({"offsetTable": table}))

    return change


DAMAGES: dict[str, tuple[Callable[[Path], None], dict[int, int] | None]] = {
    "absent": (remove, {1: HALF, 2: HALF}),
    "broken": (broken, {1: HALF, 2: HALF}),
    "both-broken": (both_broken, None),
    "before-the-queue": (offsets({"1": -5, "2": 0}), {1: HALF, 2: HALF}),
    "level-missing": (offsets({"2": 0}), {1: HALF, 2: HALF}),
    "past-the-end": (offsets(AHEAD), {1: HALF}),
    "after-what-waits": (offsets({"1": HALF, "2": 7}), {1: COUNT - 7}),
}
"""The damage, and how many messages then come how often (once: 20, twice: 20); None: the broker does not start."""


@pytest.mark.parametrize("name", DAMAGES)
def test_a_wrong_file_makes_messages_come_twice_or_never(
    judge_of: Callable[[str], Judge], killed: tuple[str, Path], tmp_path: Path, name: str
) -> None:
    del judge_of  # only a whole broker reads the file
    version, store = killed
    path = copy_store(store, tmp_path / "store")
    damage, comes = DAMAGES[name]
    damage(path)
    if comes is None:
        with pytest.raises(JudgeError):
            WholeBroker(version, path, CONFIG, TOPICS)
        return
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        broker.send("alarms", 0, b"new", {"DELAY": "2"})  # later than what waits, in the same level
        deadline = time.monotonic() + WAIT_SECONDS
        while b"new" not in (counts := broker.bodies("alarms")) and time.monotonic() < deadline:
            time.sleep(0.3)
        del counts[b"new"]
    assert Counter(counts.values()) == comes


def test_a_level_that_is_not_configured_is_not_delivered(
    judge_of: Callable[[str], Judge], killed: tuple[str, Path], tmp_path: Path
) -> None:
    del judge_of
    version, store = killed
    conf = tmp_path / "broker.conf"
    for levels, is_missing in (("1s 25s", False), ("1s", True)):
        path = copy_store(store, tmp_path / f"store-{is_missing}")
        (path / "abort").unlink()
        config = CONFIG | {"messageDelayLevel": levels}
        conf.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        offsets({"1": HALF, "2": 0})(path)
        ran = rmqtool("forecast", path, "--broker-conf", conf, "--broker-version", version, "--format", "json")
        forecast = json.loads(ran.out)
        told = {effect["id"]: (effect["level"], effect["count"]) for effect in forecast["delays"]}
        assert told == ({"config.delay-level-missing": (2, HALF)} if is_missing else {})
        assert ran.code == (3 if is_missing else 0), ran
        assert forecast["needs_decision"] is is_missing
        with WholeBroker(version, path, config, TOPICS) as broker:
            # What is sent later to a level that is delivered comes, and a level is delivered when its time has come.
            time.sleep(LATER_SECONDS)
            broker.send("alarms", 0, b"new", {"DELAY": "1"})
            expected = HALF + 1 if is_missing else COUNT + 1
            assert len(broker.bodies_until("alarms", expected, WAIT_SECONDS)) == expected
            assert len(broker.bodies("alarms")) == expected


@pytest.mark.parametrize("name", DAMAGES)
def test_each_message_comes_once_after_a_rebuild(
    judge_of: Callable[[str], Judge], killed: tuple[str, Path], tmp_path: Path, name: str
) -> None:
    del judge_of
    version, store = killed
    path = copy_store(store, tmp_path / "store")
    DAMAGES[name][0](path)
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in CONFIG.items()))
    options = ("--broker-conf", conf, "--broker-version", version)
    rebuilt = rmqtool("rebuild", path, "--delay-offsets", "--yes", *options)
    assert json.loads((path / OFFSETS).read_text())["offsetTable"] == {"1": HALF, "2": 0}, rebuilt.err
    with WholeBroker(version, path, CONFIG, TOPICS) as broker:
        broker.send("alarms", 0, b"new", {"DELAY": "2"})
        counts = broker.bodies_until("alarms", COUNT + 1, WAIT_SECONDS)
    assert Counter(counts.values()) == Counter({1: COUNT + 1})
    verified = rmqtool("verify", path, *options)
    assert (verified.code, verified.out.splitlines()[0]) == (0, "OK: no problems found")


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_come_too_soon_where_queues_are_written_with_other_delays(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str
) -> None:
    del judge_of
    config = CONFIG | {"messageDelayLevel": "1s 1h"}
    path = tmp_path / "store"
    broker = WholeBroker(version, path, config, TOPICS)
    for number in range(HALF):
        broker.send("alarms", number % 4, b"%d" % number, {"DELAY": "2"})
    broker.kill()
    options = ("--broker-version", version, "--yes")
    for levels in (None, "1s 5s", "1s 2h"):
        copy = copy_store(path, tmp_path / f"copy-{levels}")
        conf = tmp_path / "broker.conf"
        sizes = "".join(f"{key}={value}\n" for key, value in config.items() if key != "messageDelayLevel")
        conf.write_text(f"{sizes}messageDelayLevel={levels}\n")
        given = ("--broker-conf", conf) if levels else ()
        rebuilt = rmqtool("rebuild", copy, "--queues", *options, *given)
        assert ("shows a delay of 3600 s" in rebuilt.out) == (levels is not None), rebuilt.out
        with WholeBroker(version, copy, config, TOPICS) as broker:
            if levels is None:
                broker.send("alarms", 0, b"new", {"DELAY": "1"})  # sent later, and the only one that is due
                assert broker.bodies_until("alarms", 1, WAIT_SECONDS) == {b"new": 1}
            else:
                delivered = broker.bodies_until("alarms", HALF, WAIT_SECONDS)
                assert delivered == {b"%d" % number: 1 for number in range(HALF)}

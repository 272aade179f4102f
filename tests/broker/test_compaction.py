"""Compacted topics before real, whole brokers: what damage does, and `rebuild --compaction` and `recover`.

Each key has many values; the consumer has to get the last one of each, whatever older ones are still there.
"""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

VERSIONS = ("5.1.4", "5.3.3", "5.5.0")
CONFIG = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 20000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 2000,
    "compactionMappedFileSize": 20000,
    "compactionCqMappedFileSize": 4600,
    "compactionScheduleInternal": 3_600_000,
}
TOPICS = {"settings": {"readQueueNums": 1, "writeQueueNums": 1, "attributes": {"+cleanup.policy": "COMPACTION"}}}
COUNT = 300
KEYS = 20
LAST = {f"key-{number % KEYS}": b"value %d" % number for number in range(COUNT)}
LOG, QUEUE = (f"compaction/{name}/settings/0" for name in ("compactionLog", "compactionCq"))
FIRST = "00000000000000000000"


def served(broker: WholeBroker) -> list[bytes]:
    return [message["body"] for queue in broker.consume("settings") for message in queue["messages"]]


def last_values(bodies: list[bytes]) -> dict[str, bytes]:
    """The last value of each key, in the order in which a consumer gets them."""
    return {f"key-{int(body.split()[1]) % KEYS}": body for body in bodies}


@pytest.fixture(scope="module", params=VERSIONS)
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A store whose broker was killed when all messages were in the compacted log."""
    version = request.param
    path = tmp_path_factory.mktemp("compaction") / "store"
    broker = WholeBroker(version, path, CONFIG, TOPICS)
    for number in range(COUNT):
        broker.send("settings", 0, b"value %d" % number, {"KEYS": f"key-{number % KEYS}", "TAGS": f"t{number % 3}"})
    deadline = time.monotonic() + 60
    while len(served(broker)) < COUNT and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(served(broker)) == COUNT
    broker.kill()
    return version, path


def remove_all(path: Path) -> None:
    shutil.rmtree(path / "compaction")


def cut_log(path: Path) -> None:
    os.truncate(path / LOG / FIRST, 1000)


def unpair(path: Path) -> None:
    (path / LOG / FIRST).unlink()


def zero_units(path: Path) -> None:
    with (path / QUEUE / FIRST).open("r+b") as file:
        file.write(bytes(460))


DAMAGES = {"removed": remove_all, "short-log": cut_log, "unpaired": unpair, "zeroed-units": zero_units}


def options(folder: Path, version: str) -> tuple[object, ...]:
    path = folder / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in CONFIG.items()))
    return "--broker-conf", path, "--broker-version", version


def files(path: Path) -> dict[str, bytes]:
    folder = path / "compaction"
    names = (*folder.glob("compactionLog/*/*/*"), *folder.glob("compactionCq/*/*/*"))
    return {str(name.relative_to(folder)): name.read_bytes() for name in names}


def test_what_is_written_is_what_the_broker_wrote(
    judge_of: Callable[[str], Judge], killed: tuple[str, Path], tmp_path: Path
) -> None:
    del judge_of
    version, store = killed
    path = copy_store(store, tmp_path / "store")
    remove_all(path)
    rebuilt = rmqtool("rebuild", path, "--compaction", "--yes", *options(tmp_path, version))
    assert "300 messages are written, 300 of them from the commit log" in " ".join(rebuilt.out.split()), rebuilt.err
    assert files(path) == files(store)


@pytest.mark.parametrize(
    ("name", "count"), [("removed", COUNT), ("short-log", 0), ("zeroed-units", 0), ("unpaired", None)]
)
def test_what_a_broker_alone_makes_of_it_after_a_crash(
    judge_of: Callable[[str], Judge], killed: tuple[str, Path], tmp_path: Path, name: str, count: int | None
) -> None:
    """Its start reads the last files of the commit log again: that adds what is gone, and repairs nothing."""
    del judge_of
    version, store = killed
    path = copy_store(store, tmp_path / "store")
    DAMAGES[name](path)
    if count is None:
        with pytest.raises(JudgeError, match="does not initialize"):
            WholeBroker(version, path, CONFIG)
        return
    with WholeBroker(version, path, CONFIG) as broker:
        assert len(served(broker)) == count


def test_a_broker_that_was_stopped_adds_nothing(
    judge_of: Callable[[str], Judge], killed: tuple[str, Path], tmp_path: Path
) -> None:
    del judge_of
    version, store = killed
    path = copy_store(store, tmp_path / "store")
    remove_all(path)
    (path / "abort").unlink()
    with WholeBroker(version, path, CONFIG) as broker:
        assert not served(broker)


@pytest.mark.parametrize("command", [("rebuild", "--compaction"), ("recover",)], ids=["rebuild", "recover"])
@pytest.mark.parametrize("name", DAMAGES)
def test_each_key_has_its_last_message_after_a_repair(
    judge_of: Callable[[str], Judge], killed: tuple[str, Path], tmp_path: Path, name: str, command: tuple[str, ...]
) -> None:
    del judge_of
    version, store = killed
    path = copy_store(store, tmp_path / "store")
    DAMAGES[name](path)
    asked = options(tmp_path, version)
    repaired = rmqtool(command[0], path, *command[1:], "--yes", *asked)
    assert "from the commit log" in " ".join(repaired.out.split()), repaired.err
    (path / "abort").unlink(missing_ok=True)  # the start must not add what the repair left out
    with WholeBroker(version, path, CONFIG) as broker:
        assert last_values(served(broker)) == LAST
        assert len(served(broker)) == COUNT
        broker.send("settings", 0, b"value %d" % COUNT, {"KEYS": f"key-{COUNT % KEYS}"})
        deadline = time.monotonic() + 60
        while len(served(broker)) <= COUNT and time.monotonic() < deadline:
            time.sleep(0.2)
        assert last_values(served(broker)) == LAST | {f"key-{COUNT % KEYS}": b"value %d" % COUNT}
    verified = rmqtool("verify", path, *asked)
    assert (verified.code, verified.out.splitlines()[0]) == (0, "OK: no problems found")

"""Damage inside the files of a compacted topic before a real, whole broker, and a compaction after a repair.

300 messages of 20 keys; in the damaged stores they are as the broker wrote them, before any compaction.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.consumequeue import BATCH_UNIT, BATCH_UNIT_SIZE
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.test_compaction import (
    CONFIG,
    COUNT,
    FIRST,
    KEYS,
    LAST,
    LOG,
    QUEUE,
    TOPICS,
    last_values,
    options,
    served,
)
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

VERSION = "5.5.0"
WAIT_SECONDS = 90
NUMBER = 10
"""The message that is damaged, or whose unit is."""
PULLED = 32
"""Messages that a client asks for at once."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose broker was killed when all messages were in the compacted log."""
    path = tmp_path_factory.mktemp("compaction-damage") / "store"
    broker = WholeBroker(VERSION, path, CONFIG, TOPICS)
    for number in range(COUNT):
        broker.send("settings", 0, b"value %d" % number, {"KEYS": f"key-{number % KEYS}"})
    deadline = time.monotonic() + WAIT_SECONDS
    while len(served(broker)) < COUNT and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(served(broker)) == COUNT
    broker.kill()
    return path


def position_of(path: Path, number: int) -> int:
    """Where the unit says that a message is."""
    raw = (path / QUEUE / FIRST).read_bytes()[number * BATCH_UNIT_SIZE :][:BATCH_UNIT_SIZE]
    return int(BATCH_UNIT.struct.parse(raw).physical_offset)


def garbage(path: Path) -> None:
    with (path / LOG / FIRST).open("r+b") as file:
        file.seek(position_of(path, NUMBER) + 100)
        file.write(b"\xa5" * 8)


def unit_elsewhere(path: Path) -> None:
    place = position_of(path, NUMBER - 1)
    with (path / QUEUE / FIRST).open("r+b") as file:
        file.seek(NUMBER * BATCH_UNIT_SIZE + BATCH_UNIT.position("physical_offset"))
        file.write(place.to_bytes(8, "big"))


DAMAGES: dict[Callable[[Path], None], tuple[str, list[int]]] = {
    garbage: ("compaction.bad-record", [*range(NUMBER + 1), *range(PULLED, COUNT)]),
    unit_elsewhere: ("compaction.wrong-unit", [*range(NUMBER), NUMBER - 1, *range(PULLED, COUNT)]),
}
"""The finding, and the messages that a client gets: it drops those after the damage in the same pull."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_client_misses_messages_after_the_damage_until_it_is_repaired(
    judge_of: Callable[[str], Judge], killed: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    del judge_of  # only a whole broker has compacted topics
    path = copy_store(killed, tmp_path / "store")
    damage(path)
    asked = options(tmp_path, VERSION)
    assert DAMAGES[damage][0] in rmqtool("verify", path, *asked).out
    with WholeBroker(VERSION, copy_store(path, tmp_path / "copy"), CONFIG) as broker:
        bodies = served(broker)
    assert bodies == [b"value %d" % number for number in DAMAGES[damage][1]]
    rmqtool("recover", path, "--yes", *asked)
    (path / "abort").unlink(missing_ok=True)  # the start must not add what the repair left out
    with WholeBroker(VERSION, path, CONFIG) as broker:
        assert served(broker) == [b"value %d" % number for number in range(COUNT)]


def test_a_broker_compacts_what_was_rebuilt_as_it_compacts_its_own(
    judge_of: Callable[[str], Judge], killed: Path, tmp_path: Path
) -> None:
    del judge_of
    asked = options(tmp_path, VERSION)
    own, rebuilt = (copy_store(killed, tmp_path / name) for name in ("own", "rebuilt"))
    shutil.rmtree(rebuilt / "compaction")
    ran = rmqtool("rebuild", rebuilt, "--compaction", "--yes", *asked)
    assert "300 messages are written" in " ".join(ran.out.split()), ran.err
    (rebuilt / "abort").unlink(missing_ok=True)
    often = CONFIG | {"compactionScheduleInternal": 1000}
    left = []
    for path in (own, rebuilt):
        with WholeBroker(VERSION, path, often) as broker:
            deadline = time.monotonic() + WAIT_SECONDS
            while len(served(broker)) == COUNT and time.monotonic() < deadline:
                time.sleep(0.5)
            broker.send("settings", 0, b"value %d" % COUNT, {"KEYS": f"key-{COUNT % KEYS}"})
            while b"value %d" % COUNT not in (bodies := served(broker)) and time.monotonic() < deadline:
                time.sleep(0.2)
        assert last_values(bodies) == LAST | {f"key-{COUNT % KEYS}": b"value %d" % COUNT}
        left.append(bodies)
    assert left[0] == left[1]
    assert len(left[0]) < COUNT
    verified = rmqtool("verify", rebuilt, *asked)
    assert (verified.code, verified.out.splitlines()[0]) == (0, "OK: no problems found")

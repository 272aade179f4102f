"""Random damage to golden stores: the forecast, made first, is what a real broker then does with a copy."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.forecast.simulate import Simulation
from tests.broker.broker import Judge
from tests.broker.toolchain import require_tools
from tests.broker.versions import VERSIONS
from tests.conftest import Unpacked
from tests.forecast.golden_forecasts import INDEX, LOG_AND_QUEUES, simulation_of
from tests.forecast.started_reader import StartedReader
from tests.golden_stores import config_and_topics

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SOURCES = (
    "4.9.7-crashed",
    "4.9.7-damage-abort-only",
    "4.9.7-delay-crashed",
    "4.9.7-many-files",
    "4.9.7-stale-tail",
    "5.5.0-crashed",
    "5.5.0-damage-base",
    "5.5.0-expired-head-and-queues",
    "5.5.0-filler-queue",
)
DAMAGED = ("commitlog/", "consumequeue/", "index/", "checkpoint")
CASES = 20
UNIT = 20


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    require_tools()
    found = Judge(request.param)
    yield found
    found.close()


@pytest.mark.parametrize("judge", [version.name for version in VERSIONS], indirect=True)
def test_real_brokers_start_as_forecast(judge: Judge, golden: Unpacked, tmp_path: Path) -> None:
    wrong = []
    for seed in range(CASES):
        dice = random.Random(seed)
        name = dice.choice(SOURCES)
        store = tmp_path / f"store-{seed}"
        shutil.copytree(golden(name), store)
        done = damage(store, dice)
        with simulation_of(store, name, judge.version) as simulation:
            simulation.run()
            copy = tmp_path / f"copy-{seed}"
            shutil.copytree(store, copy)
            found = list(differences(simulation, judge, copy, name))
        wrong += [f"{name} after {done}: {difference}" for difference in found]
    assert wrong == []


def damage(store: Path, dice: random.Random) -> list[str]:
    """Remove, zero or overwrite parts of one to three files, and perhaps set or take away `abort`."""
    done = []
    if dice.random() < 0.4:
        (store / "abort").touch()
        done.append("abort")
    paths = sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file())
    for _ in range(dice.randint(1, 3)):
        path = dice.choice([path for path in paths if path.startswith(DAMAGED)])
        file, kind = store / path, dice.random()
        if not file.exists():
            continue
        if kind < 0.15:
            file.unlink()
            done.append(f"{path} removed")
            continue
        content = bytearray(file.read_bytes())
        used = len(content.rstrip(b"\0")) + 2 * UNIT
        position, length = dice.randrange(min(len(content), used)), dice.choice((1, 1, 4, 8, UNIT, 300, 4096))
        if kind < 0.3:
            position, length = 0, len(content)
        elif path.startswith("consumequeue"):
            position = position // UNIT * UNIT + dice.choice((0, 0, 7, 8, 11, 12))
        part = content[position : position + length]
        flipped = bytes([part[0] ^ (1 << dice.randrange(8))]) + bytes(part[1:]) if part else b""
        new = dice.choice((bytes(len(part)), b"\xff" * len(part), flipped))
        content[position : position + length] = new
        file.write_bytes(content)
        done.append(f"{path} at {position}: {new[:8].hex()}, {len(new)} bytes")
    return done


def differences(simulation: Simulation, judge: Judge, copy: Path, name: str) -> Iterator[str]:
    opened = judge.open(copy, *config_and_topics(name))
    said = opened.opened
    starts = bool(said["load"]) and said.get("startTrouble", "") is None and said.get("dispatched") is not False
    gone = {path for path in said["files"]["removed"] if path.startswith((*LOG_AND_QUEUES, *INDEX))}
    try:
        if starts != (simulation.why_not is None):
            yield f"starts {starts}, not: {simulation.why_not}"
        if {path for path in gone if not path.endswith("/")} != set(simulation.overlay.unlinked()):
            yield f"unlinked {sorted(gone)}, not {simulation.overlay.unlinked()}"
        if starts and simulation.why_not is None:
            yield from answer_differences(simulation, said, opened.read(times=0))
    finally:
        if said["load"]:
            opened.shutdown()


def answer_differences(simulation: Simulation, said: dict[str, Any], read: dict[str, Any]) -> Iterator[str]:
    assert simulation.log is not None
    if simulation.log.end != said["afterLoad"]["offsets"]["max"]:
        yield f"log end {said['afterLoad']['offsets']['max']}, not {simulation.log.end}"
    reader = StartedReader(simulation)
    for queue in read["queues"]:
        name = queue["topic"], queue["queueId"]
        known = reader.queue(*name)
        if (known.min_queue_offset, known.max_queue_offset) != (queue["min"], queue["max"]):
            yield f"{name}: {queue['min']}..{queue['max']}, not {known.min_queue_offset}..{known.max_queue_offset}"
        for queue_offset, status, place, *_ in queue["messages"]:
            answer = reader.get_message(*name, queue_offset, 1)
            mine = answer.messages[0].physical_offset if answer.messages else None
            if (answer.status.value, mine) != (status, place):
                yield f"{name} at {queue_offset}: {status} {place}, not {answer.status.value} {mine}"

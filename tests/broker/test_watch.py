"""A watch beside a real broker: load, rolls, retention, kill -9 and restart are no findings; damage is one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.location import survey_store
from rmqtool.watch.limited_view import ReadLimit
from rmqtool.watch.state import WatchState
from rmqtool.watch.watcher import Watcher, WatchOptions
from tests.broker.mirror_run import ROOT, SIZES, TOPICS
from tests.broker.toolchain import require_tools
from tests.broker.whole import WholeBroker

FILE_SIZE = 65536
CONFIG = {
    **SIZES,
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 1200,
    "maxIndexNum": 400,
    "maxHashSlotNum": 100,
    "flushConsumeQueueThoroughInterval": 200,  # the checkpoint is written this often
    "flushCommitLogThoroughInterval": 200,
}
VERSION = "5.5.0"


class Watched:
    """A broker's store and a watch in this process."""

    def __init__(self, root: Path, state: WatchState | None = None, **options: Any) -> None:
        self.root, self.rows = root, []  # type: Path, list[dict[str, Any]]
        settings = WatchOptions(root, lambda: survey_store(root), rules_for(VERSION), settle_seconds=0.3, **options)
        self.watcher = Watcher(settings, state or WatchState(), ReadLimit(), self.rows.append)

    def catch_up(self, least: int = 0) -> list[str]:
        """Look until so many records are checked and nothing is left; the ids of the findings so far."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            self.watcher.look()
            done = self.watcher.state.counts.records >= least and self.watcher.verify_lag_bytes == 0
            if done and not self.watcher.is_unsettled:
                break
            time.sleep(0.1)
        return self.findings

    def look_at_rest(self) -> list[str]:
        """Look at a store that no broker uses, whose last records need not be flushed."""
        for _ in range(4):
            self.watcher.look()
            time.sleep(0.35)
        return self.findings

    @property
    def findings(self) -> list[str]:
        return [row["id"] for row in self.rows if row["type"] == "finding"]


def send(broker: WholeBroker, count: int) -> None:
    for number in range(count):
        broker.send("Load", number % 4, b"x" * 600, {"KEYS": f"k{number}", "TAGS": "a"})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_tools()
    return tmp_path_factory.mktemp("watched") / "store"


def test_load_rolls_retention_kills_and_starts_are_no_findings_and_damage_is_one(place: Path) -> None:
    broker = WholeBroker(VERSION, place, CONFIG, TOPICS)
    send(broker, 10)
    watch = Watched(place, from_start=True)
    assert watch.catch_up(10) == []
    for _ in range(3):
        send(broker, 150)
        watch.watcher.look()
    assert watch.catch_up(460) == []
    assert len(list((place / "commitlog").iterdir())) > 4
    assert len(list((place / "index").iterdir())) > 2
    assert watch.watcher.broker_runs
    send(broker, 40)
    broker.kill()
    assert watch.look_at_rest() == []
    oldest = sorted((place / "commitlog").iterdir())[:2]
    for path in oldest:
        path.unlink()  # as retention does
    with WholeBroker(VERSION, place, CONFIG, TOPICS) as broker:
        send(broker, 60)
        assert watch.catch_up(500) == []
        assert watch.watcher.state.counts.restarts == 1
        before = watch.watcher.state.position
        assert before is not None
        send(broker, 20)
        at = before.physical_offset + 300
        with (place / "commitlog" / f"{at // FILE_SIZE * FILE_SIZE:020d}").open("r+b") as file:
            file.seek(at % FILE_SIZE)
            file.write(b"?")
        assert watch.catch_up() == ["commitlog.body-crc-mismatch"]
    assert watch.catch_up() == ["commitlog.body-crc-mismatch"]
    assert not watch.watcher.broker_runs


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_minutes_of_load_with_kills_beside_the_command(tmp_path: Path, version: str) -> None:
    require_tools()
    root, state = tmp_path / "store", tmp_path / "state"
    broker = WholeBroker(version, root, {**CONFIG, "mappedFileSizeCommitLog": 1 << 20}, TOPICS)
    send(broker, 10)
    command = [sys.executable, "-m", "rmqtool", "watch", str(root), "--from-start", "--interval", "1s"]
    command += ["--format", "jsonl", "--state", str(state), "--max-rate", "50M"]
    rows: list[dict[str, Any]] = []

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)

    def stop(watch: subprocess.Popen[str], how: signal.Signals) -> None:
        watch.send_signal(how)
        out, errors = watch.communicate(timeout=600)
        assert watch.returncode in (0, -signal.SIGKILL), (out, errors)
        rows.extend(json.loads(line) for line in out.splitlines())

    watch = start()
    for round_number in range(6):
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            send(broker, 50)
        if round_number % 2:
            stop(watch, signal.SIGKILL if round_number == 3 else signal.SIGTERM)
            watch = start()
        else:
            broker.kill()
            for path in sorted((root / "commitlog").iterdir())[:1]:
                path.unlink()
            broker = WholeBroker(version, root, {**CONFIG, "mappedFileSizeCommitLog": 1 << 20}, TOPICS)
    with broker:
        time.sleep(5)
    time.sleep(5)
    stop(watch, signal.SIGTERM)
    assert [row for row in rows if row["type"] == "finding"] == []
    assert rows[-1]["verify_lag_bytes"] == 0
    assert rows[-1]["checked"]["records"] > 1000

"""Killing a running append: whatever it had reported, a broker finds again."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import SMALL
from tests.broker.broker import Judge
from tests.broker.harm import messages

JudgeOf = Callable[[str], Judge]
ROOT = Path(__file__).resolve().parents[2]
COUNT = 60_000


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages enough for an append that is still at it when it is killed."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    with path.open("w") as file:
        for number in range(COUNT):
            row = {"topic": f"T{number % 2}", "queue_id": number % 3, "body": f"{number} " * 30}
            file.write(json.dumps({**row, "properties": {"KEYS": f"k{number}", "TAGS": "a"}}) + "\n")
    return path


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("moment", range(3))
def test_what_was_reported_survives(judge_of: JudgeOf, rows: Path, tmp_path: Path, version: str, moment: int) -> None:
    wait_seconds = random.Random(f"{version} {moment}").uniform(0.0, 0.3)
    reported = killed_append(rows, tmp_path / "store", version, wait_seconds)
    assert 0 < len(reported) < COUNT, "killed too early or too late to show anything"
    report = judge_of(version).examine(tmp_path / "store", SETTINGS, times=0)
    assert report["lastExit"] == "abnormal"
    served = {
        (topic, queue_id, offset): place[0] for (topic, queue_id, offset), place in messages(report["served"]).items()
    }
    for number, row in enumerate(reported):
        assert served[f"T{number % 2}", number % 3, row["queue_offset"]] == row["physical_offset"]
    assert report["served"]["offsets"]["max"] >= reported[-1]["physical_offset"] + reported[-1]["size"]


SETTINGS = {
    **SMALL,
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxIndexNum": "20000",
}


def killed_append(rows: Path, store: Path, version: str, wait_seconds: float) -> list[dict[str, int]]:
    """The rows that were reported until the process was killed, some time after the first of them."""
    options = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    command = [
        sys.executable, "-m", "rmqtool", "append", str(store), "--create", "--from", str(rows),
        "--broker-version", version, "--format", "jsonl", *options,
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        time.sleep(wait_seconds)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return [json.loads(line) for line in lines if line.endswith(b"\n")]

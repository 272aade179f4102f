"""What real brokers do with log files of a wrong length, files of another size, and two files for one offset."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.commands.transcripts import rmqtool

JudgeOf = Callable[[str], Judge]
VERSIONS = ("4.9.7", "5.5.0")
SMALL = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 600,
    "maxHashSlotNum": 100,
    "maxIndexNum": 200,
}
DEFAULT: dict[str, int] = {}
LOG = "commitlog/00000000000000000000"
COUNT = 120


def written(judge: Judge, path: Path, config: dict[str, int]) -> Path:
    """A store that no process has open, with messages of two queues."""
    with judge.open(path.with_name("written"), config) as store:
        store.put(
            *(
                {"topic": "T", "queueId": number % 2, "body": b"x" * 100, "properties": {"KEYS": f"k{number}"}}
                for number in range(COUNT)
            )
        )
        store.wait_dispatched()
    return copy_store(path.with_name("written"), path)


def served(report: dict[str, Any]) -> tuple[int, int]:
    """How many messages a broker answers by queue offset, and how many keys it finds."""
    read = report["served"]
    messages = sum(row[1] == "FOUND" for queue in read["queues"] for row in queue["messages"])
    return messages, sum(bool(row[2]) for row in read["keys"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [500_000_000, (1 << 30) - 1, 100_000])
def test_a_cut_lone_log_file_stops_a_broker_until_it_is_recovered(
    judge_of: JudgeOf, tmp_path: Path, version: str, length: int
) -> None:
    path = written(judge_of(version), tmp_path / "store", DEFAULT)
    os.truncate(path / LOG, length)
    assert not judge_of(version).examine(copy_store(path, tmp_path / "copy"), DEFAULT)["load"]
    assert rmqtool("forecast", path, "--broker-version", version).code == 3
    assert rmqtool("recover", path, "--broker-version", version, "--yes").code == 0
    assert served(judge_of(version).examine(path, DEFAULT)) == (COUNT, COUNT)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("lost", ["consumequeue", "index"])
def test_files_of_a_guessed_size_are_no_use_to_a_broker(
    judge_of: JudgeOf, tmp_path: Path, version: str, lost: str
) -> None:
    path = written(judge_of(version), tmp_path / "store", SMALL)
    shutil.rmtree(path / lost)
    command = ("rebuild", path, "--broker-version", version, "--yes")
    assert rmqtool(*command).code == 5
    guessed = copy_store(path, tmp_path / "guessed")
    defaults = {
        "consumequeue": ("--queue-file-size", 6_000_000),
        "index": ("--index-slots", 5_000_000, "--index-entries", 20_000_000),
    }[lost]
    assert rmqtool(command[0], guessed, *command[2:], *defaults).code == 0
    report = judge_of(version).examine(guessed, SMALL)
    assert not report["load"] if lost == "consumequeue" else served(report) == (COUNT, 0)
    right = ("--queue-file-size", 600, "--index-slots", 100, "--index-entries", 200)
    assert rmqtool(*command, *right).code == 0
    assert served(judge_of(version).examine(path, SMALL)) == (COUNT, COUNT)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_does_not_find_keys_after_the_last_entry_that_it_allows(
    judge_of: JudgeOf, tmp_path: Path, version: str
) -> None:
    config = {**SMALL, "maxIndexNum": 60}
    path = written(judge_of(version), tmp_path / "store", config)
    shutil.rmtree(path / "index")
    command = ("rebuild", path, "--index", "--broker-version", version, "--yes", "--index-slots", 100)
    assert rmqtool(*command, "--index-entries", 61).code == 0
    assert served(judge_of(version).examine(copy_store(path, tmp_path / "copy"), config))[1] < COUNT
    shutil.rmtree(path / "index")
    assert rmqtool(*command, "--index-entries", 60).code == 0
    assert served(judge_of(version).examine(path, config)) == (COUNT, COUNT)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_reads_only_one_of_two_queue_files_for_one_offset(
    judge_of: JudgeOf, tmp_path: Path, version: str
) -> None:
    path = written(judge_of(version), tmp_path / "store", SMALL)
    file = path / "consumequeue/T/0/00000000000000000600"
    file.with_name(f"00{file.name}").write_bytes(bytes(600))
    report = judge_of(version).examine(copy_store(path, tmp_path / "copy"), SMALL)
    assert served(report)[0] == COUNT - 30
    forecast = rmqtool("forecast", path, "--broker-version", version)
    assert "lose 30 messages" in " ".join(forecast.out.split())
    assert rmqtool("recover", path, "--broker-version", version, "--yes").code == 0
    assert served(judge_of(version).examine(path, SMALL)) == (COUNT, COUNT)

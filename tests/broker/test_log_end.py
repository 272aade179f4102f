"""Files of zeros after the log's end before real brokers: what they do with them, and with what `recover` leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.recover.plan import plan_recover
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from rmqtool.verify.files.log_files import misnamed_files
from tests.broker.broker import Judge, OpenStore
from tests.broker.files import copy_store
from tests.broker.versions import ROUTINE, VERSIONS

JudgeOf = Callable[[str], Judge]
SIZE = 65_536
CONFIG = {"mappedFileSizeCommitLog": SIZE, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 100}
SETTINGS = Settings(commitlog_file_size=SIZE, consumequeue_file_size=20_000)
COUNT = 30
EACH = [pytest.param(v.name, marks=() if v.name in ROUTINE else pytest.mark.slow) for v in VERSIONS]


def _put(store: OpenStore, number: int) -> int:
    [answer] = store.put({"topic": "T", "queueId": 0, "body": b"x" * 300, "properties": {"KEYS": f"k{number}"}})
    assert answer["status"] == "PUT_OK"
    store.wait_dispatched()
    offset: int = answer["queueOffset"]
    return offset


def _served(store: OpenStore, count: int) -> list[int]:
    return [row[0] for row in store.get("T", 0, range(count), count=1)["rows"] if row[1] == "FOUND"]


def _with_zeros(judge: Judge, path: Path, numbers: tuple[int, ...], *, is_crashed: bool) -> None:
    """A store that the broker wrote and stopped, and files of zeros after the log's end."""
    with judge.open(path, CONFIG) as store:
        for number in range(COUNT):
            _put(store, number)
    for number in numbers:
        with (path / f"commitlog/{number * SIZE:020d}").open("wb") as file:
            file.truncate(SIZE)
    if is_crashed:
        (path / "abort").write_text("1")


@pytest.mark.parametrize("is_crashed", [False, True], ids=["", "abort"])
@pytest.mark.parametrize("numbers", [(1, 2), (1, 2, 3), (1, 3, 5)])
@pytest.mark.parametrize("version", EACH)
def test_new_messages_are_lost_where_the_forecast_says_so(
    judge_of: JudgeOf, tmp_path: Path, version: str, numbers: tuple[int, ...], *, is_crashed: bool
) -> None:
    judge = judge_of(version)
    _with_zeros(judge, tmp_path, numbers, is_crashed=is_crashed)
    told = forecast_store(survey(open_directory(tmp_path), SETTINGS), rules_for(version))
    with judge.open(tmp_path, CONFIG) as store:
        assert store.opened["afterLoad"]["offsets"]["max"] == told.log_end_offset
        assert _put(store, COUNT) == COUNT
    with judge.open(tmp_path, CONFIG) as store:
        is_there = _served(store, COUNT + 1) == list(range(COUNT + 1))
    assert is_there is not told.misplaces_new_messages


@pytest.mark.parametrize("start", [1, 500])
@pytest.mark.parametrize("version", ["5.3.1", "5.5.0", "5.5.1"])
def test_new_messages_are_served_after_a_lone_file_of_zeros_gets_its_name(
    judge_of: JudgeOf, tmp_path: Path, version: str, start: int
) -> None:
    judge, log = judge_of(version), tmp_path / "commitlog"
    log.mkdir()
    (log / f"{start:020d}").write_bytes(bytes(SIZE))
    (wrong,) = misnamed_files(survey(open_directory(tmp_path), SETTINGS)).values()
    path = copy_store(tmp_path, tmp_path.with_name("as it is"))
    with judge.open(path, CONFIG) as store:
        assert (_put(store, 0), _served(store, 1)) == (0, [])
    assert wrong.expected is not None
    (tmp_path / wrong.file).rename(tmp_path / wrong.expected)
    with judge.open(tmp_path, CONFIG) as store:
        assert (_put(store, 0), _served(store, 1)) == (0, [0])


@pytest.mark.parametrize("is_crashed", [False, True], ids=["", "abort"])
@pytest.mark.parametrize("numbers", [(1, 2, 3), (1, 3), (2, 3, 4)])
@pytest.mark.parametrize("version", EACH)
def test_after_recover_every_version_keeps_the_next_message(
    judge_of: JudgeOf, tmp_path: Path, version: str, numbers: tuple[int, ...], *, is_crashed: bool
) -> None:
    judge, staging = judge_of(version), tmp_path / "staging"
    staging.mkdir()
    _with_zeros(judge, tmp_path / "written", numbers, is_crashed=is_crashed)
    path = copy_store(tmp_path / "written", tmp_path / "store")  # the broker's process may still have files mapped
    recovery = plan_recover(survey(open_directory(path), SETTINGS), rules_for(version), staging)
    places = StorePaths(path, ("commitlog",))
    apply_plan(Plan("recover", fingerprint(places), version, recovery.steps, recovery.loss), places)
    for number in range(3):
        with judge.open(path, CONFIG) as store:
            assert _put(store, COUNT + number) == COUNT + number
            assert _served(store, COUNT + number + 1) == list(range(COUNT + number + 1))

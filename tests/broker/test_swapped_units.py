"""Units that are swapped: a salvage builds the queue from the log, leaves that alone, and the broker serves all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.salvage.plan import plan_salvage
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.versions import ROUTINE, VERSIONS

JudgeOf = Callable[[str], Judge]
CONFIG = {"mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 100}
SETTINGS = Settings(commitlog_file_size=65_536, consumequeue_file_size=20_000)
COUNT, UNIT = 40, 20
EACH = [pytest.param(v.name, marks=() if v.name in ROUTINE else pytest.mark.slow) for v in VERSIONS]


@pytest.mark.parametrize("distance", [1, 4, 30])
@pytest.mark.parametrize("version", EACH)
def test_the_log_stays_and_all_is_served(judge_of: JudgeOf, tmp_path: Path, version: str, distance: int) -> None:
    judge, staging = judge_of(version), tmp_path / "staging"
    staging.mkdir()
    with judge.open(tmp_path / "written", CONFIG) as store:
        answers = store.put(*({"topic": "T", "queueId": 0, "body": b"x" * 90} for _ in range(COUNT)))
        store.wait_dispatched()
    path = copy_store(tmp_path / "written", tmp_path / "store")
    log = [file.read_bytes() for file in sorted((path / "commitlog").iterdir())]
    queue = path / f"consumequeue/T/0/{0:020d}"
    raw = bytearray(queue.read_bytes())
    one, other = slice(5 * UNIT, 6 * UNIT), slice((5 + distance) * UNIT, (6 + distance) * UNIT)
    raw[one], raw[other] = raw[other], raw[one]
    queue.write_bytes(raw)
    planned = plan_salvage(survey(open_directory(path), SETTINGS), rules_for(version), staging)
    places = StorePaths(path, ("commitlog",))
    apply_plan(Plan("salvage", fingerprint(places), version, planned.steps), places)
    assert [file.read_bytes() for file in sorted((path / "commitlog").iterdir())] == log
    with judge.open(path, CONFIG) as store:
        rows = store.get("T", 0, range(COUNT), count=1)["rows"]
    assert [(row[1], row[4]) for row in rows] == [("FOUND", [answer["physicalOffset"]]) for answer in answers]

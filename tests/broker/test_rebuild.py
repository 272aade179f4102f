"""Queues that we built from a log that lacks a part, before real brokers: every message is at its own queue offset."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.rebuild import RebuildChoice, plan_rebuild
from tests.broker.broker import Judge, served_places
from tests.broker.test_recover import assert_serves, changed, intact, put_to_all
from tests.broker.versions import ROUTINE
from tests.golden_stores import config_and_topics, manifest
from tests.repair.golden_repairs import options_of, rules_of, store_of

JudgeOf = Callable[[str], Judge]
Unpacked = Callable[[str], Path]

LACKING = (
    "4.9.7-expired-head",
    "5.5.0-expired-head-and-queues",
    "5.5.0-filler-queue",
    "4.9.7-damage-log-middle-file-missing",
    "5.5.0-damage-log-middle-file-missing",
)
"""Stores whose log begins late or has a gap."""
OFTEN = ("4.9.7-expired-head", "5.5.0-damage-log-middle-file-missing")
VERSIONS_OFTEN = ("4.9.7", "5.5.0")


def rebuild(path: Path, name: str, staging: Path) -> None:
    """Build all that was lost, in place, as the command does."""
    places = StorePaths(path)
    before = fingerprint(places)
    staging.mkdir()
    made = plan_rebuild(store_of(path, name), rules_of(name), RebuildChoice(), staging, options_of(name))
    apply_plan(Plan("rebuild", before, rules_of(name).version, made.steps), places)


def lacking() -> list[ParameterSet]:
    return [
        pytest.param(name, version, marks=() if name in OFTEN and version in VERSIONS_OFTEN else pytest.mark.slow)
        for name in LACKING
        for version in ROUTINE
    ]


@pytest.mark.parametrize(("name", "version"), lacking())
def test_rebuilt_queues_are_served(
    judge_of: JudgeOf, golden_copy: Unpacked, tmp_path: Path, name: str, version: str
) -> None:
    path, found = golden_copy(name), manifest(name)
    records = intact(path, found)
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index")
    rebuild(path, name, tmp_path / "staging")
    config, topics = config_and_topics(name)
    store = judge_of(version).open(path, config, topics)
    assert store.serving, store.opened
    read = store.read()
    assert changed(store) == []
    assert records
    assert_serves(read, records, name)
    put_to_all(store, read)
    store.halt()
    again = judge_of(version).open(path, config, topics)
    now = served_places(again.read())
    assert {place: now.get(place) for place in served_places(read)} == served_places(read)
    again.shutdown()

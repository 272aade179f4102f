"""The floor of each command that changes a store: what a sound store serves it serves afterwards, at its place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqtool.forecast import floor
from tests import golden_stores, life_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.forecast.test_floor import BASE, LIVES, plan_of, records_of, served
from tests.repair.dledger_stores import as_dledger
from tests.store_state import store_state

BOTH_SIDES = (
    "5.5.0-clean-basic",
    "5.5.0-expired-head-and-queues",
    "5.5.0-filler-queue",
    "5.5.0-lmq",
    "broker-5.5.0-mixed-clean",
    "deleted-topic-5.5.0",
    "deleted-topic-used-again-5.5.0",
    "upgraded-4.9.7-5.5.0",
)
PLAIN = ("4.9.7-clean-basic", "5.5.0-many-files", "5.5.0-expired-head-and-queues", "5.5.0-transaction")
MANY = ("4.9.7-many-files", "5.5.0-many-files")


def options_of(name: str) -> tuple[object, ...]:
    """The version that wrote a store, and the size of its queue files."""
    if name in life_stores.names():
        life = life_stores.life_store(name)
        return "--broker-version", life.asked, "--queue-file-size", life.config["mappedFileSizeConsumeQueue"]
    size = golden_stores.settings(name).consumequeue_file_size
    if name.startswith("broker-"):
        return "--broker-version", golden_stores.broker_manifest(name)["broker_version"], "--queue-file-size", size
    return "--broker-version", golden_stores.manifest(name).writer, "--queue-file-size", size


def check_floor(path: Path, command: Sequence[object], options: Sequence[object], *, ends: Sequence[int] = (0,)) -> None:
    """What the plan says, and what a start serves once it is carried out."""
    version = str(options[1])
    before = served(path, version)
    plan = plan_of(*command, *options)
    assert plan["steps"], plan
    assert (plan["floor"]["taken_away"], plan["floor"]["moved"]) == (0, 0)
    assert plan["floor"]["kept"] + plan["floor"]["added"] >= len(before) > 0
    ran = rmqtool(*command, *options, "--yes")
    assert ran.code in ends, ran
    after = served(path, version)
    assert {place: after.get(place) for place in before} == before


@pytest.mark.parametrize("name", BOTH_SIDES)
def test_queues_go_to_rocksdb_and_back(golden_copy: Unpacked, name: str) -> None:
    path, options = golden_copy(name), options_of(name)
    first = served(path, str(options[1]))
    for side in ("rocksdb", "both", "file"):
        check_floor(path, ("convert", path, "--queues", side), options)
    topics = {topic for topic, *_ in first}
    assert {topic for topic, *_ in served(path, str(options[1]))} == topics


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_log_from_dledger_serves_the_same(golden_copy: Unpacked, tmp_path: Path, name: str) -> None:
    path, options, output = golden_copy(name), options_of(name)[:2], tmp_path / "plain"
    before = served(path, str(options[1]))
    plan = plan_of("convert", as_dledger(path), "--from-dledger", "--output", output, *options)
    assert (plan["floor"]["taken_away"], plan["floor"]["moved"]) == (0, 0)
    ran = rmqtool("convert", path, "--from-dledger", "--output", output, "--yes", *options)
    assert (ran.code, served(output, str(options[1]))) == (0, before), ran

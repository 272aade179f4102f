"""What recover and rebuild write into RocksDB is what brokers write, and every version serves all of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.databases.queue_database import QueueDatabase
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.broker.broker import served_places
from tests.broker.conftest import JudgeOf
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.rocksdb_cases import BY_NAME, CASES, NAME, Case
from tests.store_state import store_state

pytestmark = pytest.mark.broker

CONFIG: Mapping[str, Any] = golden_stores.manifest(NAME).config
MESSAGES = 150
WRITERS = ("5.3.1", "5.3.3", "5.4.0", "5.5.0", "5.5.1")
REPAIRED = [case for case in CASES if any(not name.endswith(("stale-unit", "behind")) for name in case.findings)]
OFTEN = ("rocksdb-tables-overwritten", "rocksdb-current-empty", "rocksdb-units-missing", "rocksdb-block-of-units")


def store_at(path: Path) -> Store:
    return survey(open_directory(path), Settings(commitlog_file_size=CONFIG["mappedFileSizeCommitLog"]))


def database_of(path: Path) -> QueueDatabase:
    database = store_at(path).queue_database
    assert database is not None
    assert database.failure is None
    return database


def content(database: QueueDatabase) -> dict[str, Any]:
    units = {name: database.rows(name, 0, rows.unit_count).tolist() for name, rows in database.units.items()}
    return {"units": units, "ends": database.ends, "dispatched": database.dispatched}


@pytest.mark.parametrize("command", ["rebuild", "recover"])
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in OFTEN else pytest.mark.slow) for case in REPAIRED],
    ids=lambda case: case.name,
)
def test_a_repaired_database_is_what_the_broker_wrote(
    golden: Unpacked, golden_copy: Unpacked, judge_of: JudgeOf, case: Case, command: str
) -> None:
    path = golden_copy(NAME)
    written = content(database_of(golden(NAME)))
    case.apply(path)
    if command == "recover":
        (path / "abort").write_text("1", "utf-8")
    ran = rmqtool(command, path, "--yes")
    assert ran.code == 0, ran.err
    assert content(database_of(path)) == written
    assert rmqtool("verify", path).code == 0
    assert len(served_places(judge_of("5.5.0").examine(path, CONFIG)["served"])) == MESSAGES


@pytest.mark.parametrize("version", WRITERS)
def test_every_version_serves_what_was_built(golden_copy: Unpacked, judge_of: JudgeOf, version: str) -> None:
    path = golden_copy("5.5.0-rocksdb-cq-crashed")
    assert rmqtool("recover", path, "--yes").code == 0
    assert not (path / "abort").exists()
    report = judge_of(version).examine(path, CONFIG)
    assert len(served_places(report["served"])) == MESSAGES
    assert {(queue["min"], queue["max"] - queue["min"]) for queue in report["served"]["queues"]} == {
        (0, count) for count in (56, 26, 28, 12, 17, 11)
    }
    with judge_of(version).open(path, CONFIG) as store:
        (answer,) = store.put({"topic": "Audit", "queueId": 0, "body": b"x", "properties": {}})
    assert answer["status"] == "PUT_OK"


def test_undo_brings_the_old_database_back(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    BY_NAME["rocksdb-tables-overwritten"].apply(path)
    before = store_state(path)
    assert rmqtool("rebuild", path, "--queues", "--yes").code == 0
    assert rmqtool("undo", path, "--yes").code == 0
    assert {name: state for name, state in store_state(path).items() if not name.startswith(".rmqtool")} == before


def test_a_sound_database_is_left_alone(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    before = store_state(path)
    ran = rmqtool("rebuild", path, "--yes")
    assert ran.code == 0, ran.err
    assert store_state(path) == before


def test_one_topic_can_be_rebuilt(golden: Unpacked, golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    BY_NAME["rocksdb-units-missing"].apply(path)
    before = store_state(path)
    other = rmqtool("rebuild", path, "--queues", "--topic", "TopicTest", "--yes")
    assert other.code == 3, "Audit's units are still missing, and no rebuild of another topic brings them"
    assert "rebuild --queues" in other.out
    assert store_state(path) == before
    assert rmqtool("rebuild", path, "--queues", "--topic", "Audit", "--yes").code == 0
    assert content(database_of(path)) == content(database_of(golden(NAME)))

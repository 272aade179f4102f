"""A chunk of the log is compared with all queues of a database at once, so none of them is looked at by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from benchmarks import rocksdb_queues
from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.formats.rocksdb.queue import unit_key
from rmqtool.store.databases.queue_database import QueueDatabase
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey import database_pass, log_order
from tests.little_memory import FREE_BYTES, little_memory
from tests.rocksdb_cases import edit

QUEUES = 50


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rocksdb_queues, "LOG_FILE_SIZE", 1 << 20)
    monkeypatch.setattr(rocksdb_queues, "RECORDS_A_FILE", ((1 << 20) - 8) // rocksdb_queues.HEAD_FIELDS.itemsize)
    rocksdb_queues.write_store(tmp_path, QUEUES)
    return tmp_path


def verified(path: Path) -> tuple[list[Finding], int]:
    findings: list[Finding] = []
    summary = verify_store(survey(open_directory(path)), rules_for("5.5.0"), None, findings.append)
    assert summary.complete
    return findings, summary.unit_count


def test_no_queue_of_a_sound_database_is_looked_at_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("a queue was looked at by itself")

    monkeypatch.setattr(database_pass, "RunsBuilder", refused)
    assert verified(store) == ([], QUEUES * rocksdb_queues.UNITS_A_QUEUE)


def test_units_are_sorted_in_blocks_as_small_as_memory_asks(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 0

    def all_rows(database: QueueDatabase, first: int, count: int) -> NDArray[Any]:
        nonlocal largest
        largest = max(largest, count)
        return read(database, first, count)

    read = QueueDatabase.all_rows
    monkeypatch.setattr(QueueDatabase, "all_rows", all_rows)
    with little_memory(FREE_BYTES):
        assert verified(store) == ([], QUEUES * rocksdb_queues.UNITS_A_QUEUE)
    assert largest == FREE_BYTES // 8 // log_order.BLOCK_ROW_BYTES


def test_one_wrong_unit_among_all_queues_is_named(store: Path) -> None:
    key, other = unit_key(b"lite-0000007", 0, 3), unit_key(b"lite-0000008", 0, 3)
    edit(store, lambda units, _: units.put(key, units[other]))
    findings, _ = verified(store)
    places = {(finding.id, finding.topic, finding.queue_offset) for finding in findings}
    assert ("consumequeue.wrong-record", "lite-0000007", 3) in places
    assert {topic for _, topic, _ in places} == {"lite-0000007"}

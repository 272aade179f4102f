"""Where a record belongs does not depend on how much of the log is in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stores import write_store
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.scan import compiled
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from tests.little_memory import little_memory

QUEUE = "consumequeue/TopicTest1/2"
FIRST, COUNT = 4, 4
QUEUE_OFFSET_POSITION = 20
"""Of the field in a record: CommitLog, the message format."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", 500, 100, 1 << 20, index_slot_count=100, index_entry_count=1000)
    return tmp_path / "store"


def record_of(store: Path, number: int) -> int:
    """Where the record lies that a unit of the queue points to."""
    (file,) = (store / QUEUE).iterdir()
    unit = file.read_bytes()[number * UNIT_SIZE :]
    start = UNIT.position("physical_offset")
    return int.from_bytes(unit[start : start + 8], "big")


def findings_of(store: Path) -> list[Finding]:
    findings: list[Finding] = []
    verify_store(survey(open_directory(store)), rules_for("5.5.0"), VerifyOptions(compiled=True), findings.append)
    return findings


@pytest.mark.parametrize("number", range(FIRST, FIRST + COUNT))
def test_a_record_with_the_queue_offset_of_the_next_one_is_doubtful_in_any_chunk(
    store: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """In chunks of 16 records the one after it in its queue, the 32nd in the log, is never in the same chunk."""
    log = min((store / "commitlog").iterdir())
    physical_offset = record_of(store, number)
    with log.open("r+b") as file:
        file.seek(physical_offset + QUEUE_OFFSET_POSITION)
        file.write((number + 1).to_bytes(8, "big"))
    whole = findings_of(store)
    assert [row.id for row in whole if row.physical_offset == physical_offset] == ["commitlog.doubtful-header"]
    monkeypatch.setattr(compiled, "ROWS_MAX", 16)
    with little_memory():
        assert findings_of(store) == whole

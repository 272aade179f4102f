"""Where a record belongs does not depend on how much of the log is in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stores import write_store
from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.formats import system_flag
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.scan import compiled
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
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


def test_a_record_that_no_queue_takes_is_no_neighbor(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was rolled back lies beyond the chunk, between the record and the one before it in its queue."""
    log = min((store / "commitlog").iterdir())
    physical_offset, before = record_of(store, FIRST), record_of(store, FIRST - 1)
    with log.open("r+b") as file:
        file.seek(physical_offset + QUEUE_OFFSET_POSITION)
        file.write((FIRST + 1).to_bytes(8, "big"))
        size = int.from_bytes(log.read_bytes()[before : before + 4], "big")
        file.seek(before + size)
        record = bytearray(file.read(int.from_bytes(log.read_bytes()[before + size : before + size + 4], "big")))
        record[12:16] = (2).to_bytes(4, "big")
        record[QUEUE_OFFSET_POSITION : QUEUE_OFFSET_POSITION + 8] = bytes(8)
        record[36:40] = system_flag.TRANSACTION_ROLLBACK.to_bytes(4, "big")
        at = record.index(b"TopicTest")
        record[at : at + 10] = b"TopicTest1"
        file.seek(before + size)
        file.write(record)
    whole = findings_of(store)
    assert "commitlog.doubtful-header" in [row.id for row in whole if row.physical_offset == physical_offset]
    monkeypatch.setattr(compiled, "ROWS_MAX", 16)
    with little_memory():
        few = findings_of(store)
    assert "commitlog.doubtful-header" in [row.id for row in few if row.physical_offset == physical_offset]

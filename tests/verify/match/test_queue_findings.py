"""Findings about the units of queues do not depend on the memory: neighbors are one, in whichever chunk they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.stores import write_store
from rmqtool.engine.dispatch.queue_entries import ROW_BYTES
from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.memory import memory_budget
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.match import queue_match
from rmqtool.verify.match.queue_match import QueueFindings
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from tests.little_memory import little_memory

QUEUES = ("consumequeue/TopicTest1/2", "consumequeue/TopicTest3/5")
FIRST, COUNT = 20, 180
"""Units of each queue that are changed, one after the other."""
BLOCK_BYTES = 1 << 16


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two queues have the same wrong units from the log's start to its end."""
    root = tmp_path_factory.mktemp("neighbors") / "store"
    write_store(root, 8_000, 100, 4 << 20, index_slot_count=1000, index_entry_count=30_000)
    position, size = UNIT.position("tags_code"), 8
    for queue in QUEUES:
        (file,) = (root / queue).iterdir()
        content = bytearray(file.read_bytes())
        for at in range(FIRST * UNIT_SIZE + position, (FIRST + COUNT) * UNIT_SIZE, UNIT_SIZE):
            content[at + size - 1] ^= 1
        file.write_bytes(content)
    return root


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A chunk ends with a block of the log, so blocks have to be small too."""
    monkeypatch.setattr("rmqtool.verify.run.DISPATCH_BLOCK_SIZE", BLOCK_BYTES)
    with little_memory(ROW_BYTES * 200):
        assert memory_budget().free == ROW_BYTES * 200
        yield


def findings_of(store: Path) -> list[Finding]:
    findings: list[Finding] = []
    verify_store(survey(open_directory(store)), rules_for("5.5.0"), VerifyOptions(threads=1), findings.append)
    return [each for each in findings if each.id == "consumequeue.wrong-tags-code"]


def test_neighboring_units_are_one_finding_with_much_memory(store: Path) -> None:
    assert [(each.topic, each.queue_offset, each.count, each.length) for each in findings_of(store)] == [
        ("TopicTest1", FIRST, COUNT, COUNT * UNIT_SIZE),
        ("TopicTest3", FIRST, COUNT, COUNT * UNIT_SIZE),
    ]


@pytest.mark.usefixtures("small_blocks")
def test_neighboring_units_are_one_finding_with_little_memory(store: Path) -> None:
    assert [(each.topic, each.queue_offset, each.count, each.length) for each in findings_of(store)] == [
        ("TopicTest1", FIRST, COUNT, COUNT * UNIT_SIZE),
        ("TopicTest3", FIRST, COUNT, COUNT * UNIT_SIZE),
    ]


@pytest.mark.usefixtures("small_blocks")
def test_what_is_not_described_is_counted_the_same_with_little_memory(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_match, "OF_QUEUE_MAX", 60)
    little = rests(store)
    monkeypatch.setattr("rmqtool.verify.run.DISPATCH_BLOCK_SIZE", 1 << 24)
    with little_memory(1 << 30):
        assert rests(store) == little == [("TopicTest1", COUNT - 60), ("TopicTest3", COUNT - 60)]


def rests(store: Path) -> list[tuple[str | None, int]]:
    findings: list[Finding] = []
    verify_store(survey(open_directory(store)), rules_for("5.5.0"), VerifyOptions(threads=1), findings.append)
    counted = [each for each in findings if each.message == f"{COUNT - 60} more units that do not match"]
    assert all(each.queue_offset == FIRST + 60 for each in counted)
    return [(each.topic, each.count) for each in counted]


def test_findings_of_other_kinds_and_queues_stay_apart(store: Path) -> None:
    first, second = findings_of(store)
    one = replace(first, count=1, length=UNIT_SIZE)
    following = replace(one, queue_offset=FIRST + 1)
    findings = QueueFindings()
    for each in (one, replace(second, count=1), replace(following, id="consumequeue.wrong-record-size"), following):
        findings.add(each)
    assert [each.count for each in findings.all] == [2, 1, 1]
    findings.add(replace(one, queue_offset=FIRST + 3))
    assert len(findings.all) == 4

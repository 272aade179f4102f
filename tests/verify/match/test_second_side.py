"""A store with its queues in files and in RocksDB: each side is compared with the log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding, Severity
from rmqtool.formats.rocksdb.queue import DISPATCHED_KEY, offset_key, unit_key
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.result import Summary
from tests import golden_stores, life_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.rocksdb_cases import CASES, MAXIMUM, MINIMUM, NAME, QUEUE, Case, Rows, edit, numbers
from tests.store_state import assert_store_unchanged

Copy = Callable[[], Path]
MESSAGES: Final = 150
AUDIT: Final = (QUEUE[0].decode(), QUEUE[1])
DATABASE: Final = "consumequeue"
INSTEAD: Final = {name: {"rocksdb.lacks-older-units"} for name in ("MANIFEST cut", "rocksdb-first-units-missing")}
"""What is said of a database beside files where another thing is said of one alone."""
BESIDE: Final = {
    "rocksdb-behind": {"rocksdb.stale-unit", "rocksdb.wrong-end"},
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, golden: Unpacked) -> Path:
    return with_both_sides(golden(NAME), tmp_path_factory.mktemp("both") / "store", NAME)


@pytest.fixture
def store(both: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(both, tmp_path / "store"))


def with_both_sides(path: Path, copy: Path, name: str) -> Path:
    shutil.copytree(path, copy)
    sizes = ("--queue-file-size", golden_stores.manifest(name).config.get("mappedFileSizeConsumeQueue", 600))
    ran = rmqtool("convert", copy, "--queues", "both", "--broker-version", "5.5.0", *sizes, "--yes")
    assert ran.code == 0, ran.out + ran.err
    shutil.rmtree(copy / ".rmqtool")
    return copy


def verified(path: Path) -> tuple[list[Finding], Summary]:
    findings: list[Finding] = []
    with assert_store_unchanged(path):
        summary = verify_store(survey(open_directory(path)), rules_for("5.5.0"), None, findings.append)
    return findings, summary


def test_both_sides_are_looked_at(both: Path) -> None:
    findings, summary = verified(both)
    assert findings == []
    assert summary.complete
    assert summary.unit_count == 2 * MESSAGES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_damage_to_the_database_is_found_in_it(store: Path, case: Case) -> None:
    case.apply(store)
    findings, summary = verified(store)
    assert summary.complete == case.is_read
    ids = {finding.id for finding in findings}
    expected = INSTEAD.get(case.name, set(case.findings))
    assert expected <= ids <= expected | BESIDE.get(case.name, set()), findings
    assert {finding.file for finding in findings} <= {DATABASE}


def test_damage_to_the_files_is_found_in_them(store: Path) -> None:
    folder = store / "consumequeue" / QUEUE[0].decode() / "0"
    file = min(folder.iterdir())
    content = bytearray(file.read_bytes())
    content[3 * 20 : 3 * 20 + 8] = content[4 * 20 : 4 * 20 + 8]
    file.write_bytes(content)
    findings, _ = verified(store)
    assert {finding.file for finding in findings} == {str(file.relative_to(store))}
    assert "consumequeue.wrong-position" in {finding.id for finding in findings}


def test_messages_that_the_files_lack_are_missing_though_the_database_has_them(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / QUEUE[0].decode())
    findings, _ = verified(store)
    assert [(finding.id, finding.count) for finding in findings] == [("consumequeue.missing-queue", 44)]


def test_what_is_older_than_the_database_is_not_missing_in_it(store: Path) -> None:
    def begin_later(units: Rows, ends: Rows) -> None:
        for queue_offset in range(20):
            units.delete(unit_key(*QUEUE, queue_offset))
        ends.put(MINIMUM, units[unit_key(*QUEUE, 20)][:8] + numbers(20))

    edit(store, begin_later)
    ((finding,), _) = verified(store)
    assert (finding.id, finding.topic, finding.queue_id, finding.count) == ("rocksdb.lacks-older-units", *AUDIT, 20)


def test_a_database_that_ends_before_the_files_lacks_what_came_later(store: Path) -> None:
    records = golden_stores.manifest(NAME).records
    end = records[75].physical_offset

    def stop_earlier(units: Rows, ends: Rows) -> None:
        for record in records[75:]:
            units.delete(unit_key(record.topic.encode(), record.queue_id, record.queue_offset))
        lasts = {(record.topic, record.queue_id): record for record in records[:75]}
        for (topic, queue_id), record in lasts.items():
            key = offset_key(topic.encode(), queue_id, is_maximum=True)
            ends.put(key, numbers(record.physical_offset, record.queue_offset))
        ends.put(DISPATCHED_KEY, numbers(end))

    edit(store, stop_earlier)
    findings, summary = verified(store)
    assert summary.complete
    assert {(finding.id, finding.file) for finding in findings} == {("consumequeue.behind-log", DATABASE)}
    assert sum(finding.count for finding in findings) == MESSAGES - 75


def test_a_queue_that_the_database_never_had_is_a_note(store: Path) -> None:
    def forget(units: Rows, ends: Rows) -> None:
        for queue_offset in range(44):
            units.delete(unit_key(*QUEUE, queue_offset))
        ends.delete(MAXIMUM)
        ends.delete(MINIMUM)

    edit(store, forget)
    ((finding,), _) = verified(store)
    assert (finding.id, finding.topic, finding.queue_id, finding.count) == ("rocksdb.lacks-older-units", *AUDIT, 44)


def test_light_queues_may_be_in_the_database_alone(golden: Unpacked, tmp_path: Path) -> None:
    path = with_both_sides(golden("5.5.0-lmq"), tmp_path / "store", "5.5.0-lmq")
    light = [folder for folder in (path / "consumequeue").iterdir() if folder.name.startswith("%LMQ%")]
    assert light
    for folder in light:
        shutil.rmtree(folder)
    assert [finding for finding in verified(path)[0] if finding.severity is not Severity.NOTE] == []


def test_of_a_topic_used_again_the_database_lacks_new_messages_only(golden_copy: Unpacked) -> None:
    """Its removed messages are in neither side."""
    name, lost = "deleted-topic-used-again-5.5.0", 3
    path, places = golden_copy(name), life_stores.life_store(name).served
    sizes = ("--queue-file-size", 1000, "--broker-version", "5.5.0")
    assert rmqtool("convert", path, "--queues", "both", *sizes, "--yes").code == 0
    shutil.rmtree(path / ".rmqtool")
    assert {finding.id for finding in verified(path)[0]} == {"topic.deleted"}
    end = max(queue_offset for topic, queue_id, queue_offset in places if (topic, queue_id) == ("orders", 0)) - lost

    def end_earlier(units: Rows, ends: Rows) -> None:
        for queue_offset in range(end + 1, end + 1 + lost):
            units.delete(unit_key(b"orders", 0, queue_offset))
        last = numbers(places["orders", 0, end], end)
        ends.put(offset_key(b"orders", 0, is_maximum=True), last)

    edit(path, end_earlier)
    lacking = [finding for finding in verified(path)[0] if finding.id != "topic.deleted"]
    assert sum(finding.count for finding in lacking) == lost
    assert {(finding.topic, finding.queue_id, finding.file) for finding in lacking} == {("orders", 0, DATABASE)}

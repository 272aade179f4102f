"""Logs of DLedger: what real brokers wrote is right, and damage in their logs is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.formats.checkpoint import CHECKPOINT
from rmqtool.formats.commitlog import SYS_FLAG_AT
from rmqtool.formats.system_flag import TRANSACTION_PREPARED
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.result import Summary
from tests.conftest import Unpacked

GOLDEN = ("broker-4.9.7-dledger", "broker-5.3.3-dledger")
DATA = "dledger-n0/data/00000000000000000000"
LAST = "dledger-n0/data/00000000000000262144"
INDEX = "dledger-n0/index/00000000000000000000"
DROPPED = "dledger.dropped-at-start"


def checked(path: Path) -> tuple[Summary, list[Finding]]:
    findings: list[Finding] = []
    return verify_store(survey(open_directory(path)), rules_for("5.3.3"), None, findings.append), findings


def verified(path: Path) -> list[Finding]:
    """What is wrong with DLedger's files, and its records have no other finding; each store was killed."""
    findings = checked(path)[1]
    assert not [finding for finding in findings if finding.id.startswith("commitlog.")]
    return [finding for finding in findings if finding.id.startswith("dledger.") and finding.id != DROPPED]


@pytest.mark.parametrize("name", GOLDEN)
def test_what_a_broker_wrote_is_right_and_all_is_compared(golden: Unpacked, name: str) -> None:
    summary, findings = checked(golden(name))
    assert {finding.id for finding in findings} == {"store.abort-present", "index.would-be-dropped"}
    assert (summary.complete, summary.not_looked_at) == (True, ())
    assert (summary.record_count, summary.unit_count) == (500, 500)


@pytest.mark.parametrize(("committed", "dropped"), [(-1, 0), (493, 1), (496, 4), (499, 7)])
def test_only_what_the_group_knows_as_committed_is_dropped(golden_copy: Unpacked, committed: int, dropped: int) -> None:
    path = golden_copy(GOLDEN[1])
    (path / "dledger-n0" / "checkpoint").write_text(f"committedIndex={committed}\nendIndex={committed}\n")
    assert [finding.count for finding in checked(path)[1] if finding.id == DROPPED] == [dropped] * (dropped > 0)


@pytest.mark.parametrize(("version", "known", "dropped"), [("5.5.0", 0, 0), ("5.5.0", 1 << 40, 7), ("5.4.0", 0, 7)])
def test_newer_brokers_drop_as_far_as_the_checkpoint_has_the_queues(
    golden_copy: Unpacked, version: str, known: int, dropped: int
) -> None:
    path = golden_copy(GOLDEN[1])
    (path / "dledger-n0" / "checkpoint").write_text("committedIndex=499\nendIndex=499\n")
    with (path / "checkpoint").open("r+b") as file:
        file.seek(CHECKPOINT.position("consumequeue_physical_offset"))
        file.write(known.to_bytes(8, "big"))
    findings: list[Finding] = []
    verify_store(survey(open_directory(path)), rules_for(version), None, findings.append)
    assert sum(finding.count for finding in findings if finding.id == DROPPED) == dropped


def test_a_log_of_zeros_lacks_what_its_index_has(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[0])
    (path / LAST).unlink()
    with (path / DATA).open("r+b") as log:
        log.truncate(0)
        log.truncate(262144)
    assert [(finding.id, finding.count) for finding in verified(path)] == [("dledger.missing-entries", 500)]


def test_what_no_queue_gets_is_not_dropped(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[1])
    (path / "dledger-n0" / "checkpoint").write_text("committedIndex=499\nendIndex=499\n")
    with (path / LAST).open("r+b") as log:
        content = log.read()
        log.seek(content.rindex(b"\xda\xa3\x20\xa7") - 4 + SYS_FLAG_AT)
        log.write(TRANSACTION_PREPARED.to_bytes(4, "big"))
    assert [finding.count for finding in checked(path)[1] if finding.id == DROPPED] == [6]


@pytest.mark.parametrize("name", GOLDEN)
def test_queues_and_index_that_do_not_match_the_log_are_found(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    orders, payments = (path / "consumequeue" / topic for topic in ("orders/1", "payments/0"))
    with (orders / "00000000000000000000").open("r+b") as queue:
        queue.seek(3 * 20)
        queue.write(bytes(20))
        queue.seek(5 * 20 + 12)
        queue.write(b"\1" * 8)
        queue.seek(7 * 20)
        queue.write((48 + 48).to_bytes(8, "big"))  # into a record
    (payments / "00000000000000000000").unlink()
    (index,) = (path / "index").iterdir()
    with index.open("r+b") as file:
        file.seek(40 + 4 * 1000 + 20 * 7)
        file.write(b"\2\3\4\5")
    findings = {(finding.id, finding.file, finding.queue_offset) for finding in checked(path)[1]}
    assert {kind for kind, file, _ in findings if file.startswith("consumequeue/orders")} == {
        "consumequeue.gap", "consumequeue.wrong-tags-code", "consumequeue.dangling-unit", "consumequeue.order",
    }  # fmt: skip
    assert ("consumequeue.missing-queue", "consumequeue/payments/0", 0) in findings
    assert {"index.bad-entry", "index.missing-key"} <= {kind for kind, _, _ in findings}
    assert {finding.repair for finding in checked(path)[1]} <= {None, "rebuild", "rebuild --queues", "rebuild --index"}


@pytest.mark.parametrize("name", GOLDEN)
def test_each_damage_of_a_real_log_is_found_where_it_is(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    with (path / DATA).open("r+b") as log:
        log.seek(200)
        log.write(b"x" * 30)  # in the body of the first message
    with (path / INDEX).open("r+b") as index:
        index.seek(3 * 32)
        index.write(bytes(32))
    ids = [(finding.id, finding.file, finding.file_position) for finding in verified(path)]
    assert ids == [("dledger.bad-entry", DATA, 0), ("dledger.wrong-unit", INDEX, 96)]


def test_an_end_that_is_gone_and_a_file_that_is_gone_are_found(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[0])
    with (path / LAST).open("r+b") as log:
        log.truncate(0)
        log.truncate(262144)
    assert {(finding.id, finding.count > 1) for finding in verified(path)} == {("dledger.missing-entries", True)}
    (path / LAST).unlink()
    assert {finding.id for finding in verified(path)} == {"dledger.missing-entries"}


def test_random_damage_is_findings(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[1])
    chance = random.Random(11)
    content = bytearray((path / LAST).read_bytes())
    for _ in range(6):
        for _ in range(4):
            content[chance.randrange(20000)] ^= 1 << chance.randrange(8)
        (path / LAST).write_bytes(content)
        assert all(finding.message for finding in verified(path))
    assert verified(path)

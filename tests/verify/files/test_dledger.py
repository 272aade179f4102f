"""Logs of DLedger: what real brokers wrote is right, and damage in their logs is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.run import verify_store
from tests.conftest import Unpacked

GOLDEN = ("broker-4.9.7-dledger", "broker-5.3.3-dledger")
DATA = "dledger-n0/data/00000000000000000000"
LAST = "dledger-n0/data/00000000000000262144"
INDEX = "dledger-n0/index/00000000000000000000"


def verified(path: Path) -> tuple[set[str], list[Finding]]:
    """What was not looked at, and the findings about DLedger."""
    findings: list[Finding] = []
    summary = verify_store(survey(open_directory(path)), rules_for("5.3.3"), None, findings.append)
    left_out = {f"{files.path}: {files.reason}" for files in summary.not_looked_at}
    return left_out, [finding for finding in findings if finding.id.startswith("dledger.")]


@pytest.mark.parametrize("name", GOLDEN)
def test_what_a_broker_wrote_is_right_and_queues_are_not_compared(golden: Unpacked, name: str) -> None:
    left_out, findings = verified(golden(name))
    assert findings == []
    reason = "not compared with the log of DLedger"
    assert left_out == {f"consumequeue: {reason}", f"index: {reason}"}


@pytest.mark.parametrize("name", GOLDEN)
def test_each_damage_of_a_real_log_is_found_where_it_is(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(name)
    with (path / DATA).open("r+b") as log:
        log.seek(200)
        log.write(b"x" * 30)  # in the body of the first message
    with (path / INDEX).open("r+b") as index:
        index.seek(3 * 32)
        index.write(bytes(32))
    ids = [(finding.id, finding.file, finding.file_position) for finding in verified(path)[1]]
    assert ids == [("dledger.bad-entry", DATA, 0), ("dledger.wrong-unit", INDEX, 96)]


def test_an_end_that_is_gone_and_a_file_that_is_gone_are_found(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[0])
    with (path / LAST).open("r+b") as log:
        log.truncate(0)
        log.truncate(262144)
    assert {(finding.id, finding.count > 1) for finding in verified(path)[1]} == {("dledger.missing-entries", True)}
    (path / LAST).unlink()
    assert {finding.id for finding in verified(path)[1]} == {"dledger.missing-entries"}


def test_random_damage_is_findings(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN[1])
    chance = random.Random(11)
    content = bytearray((path / LAST).read_bytes())
    for _ in range(6):
        for _ in range(4):
            content[chance.randrange(20000)] ^= 1 << chance.randrange(8)
        (path / LAST).write_bytes(content)
        assert all(finding.message for finding in verified(path)[1])
    assert verified(path)[1]

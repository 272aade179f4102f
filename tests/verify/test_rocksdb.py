"""Consume queues in RocksDB: every damage is found and nothing else, and verify says OK once all of it was read."""

from __future__ import annotations

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from tests.conftest import Unpacked
from tests.rocksdb_cases import BY_NAME, CASES, MANIFEST_CUT, NAME, Case
from tests.store_state import assert_store_unchanged

OFTEN_BESIDE = {
    # A wrong end hides units that are there, and the end's own place is wrong in most of these cases.
    "rocksdb-behind": {"rocksdb.stale-unit", "rocksdb.wrong-end"},
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_damage_is_found(golden_copy: Unpacked, case: Case) -> None:
    path = golden_copy(NAME)
    case.apply(path)
    findings: list[Finding] = []
    with assert_store_unchanged(path):
        summary = verify_store(survey(open_directory(path)), rules_for("5.5.0"), None, findings.append)
    assert summary.complete == case.is_read
    found = {each.id for each in findings}
    assert set(case.findings) <= found <= set(case.findings) | OFTEN_BESIDE.get(case.name, set()), findings
    if case.is_read:
        assert (summary.unit_count >= 100) == (case.opens and case is not MANIFEST_CUT)


def test_messages_that_are_missing_are_counted(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    BY_NAME["rocksdb-units-missing"].apply(path)
    findings: list[Finding] = []
    verify_store(survey(open_directory(path)), rules_for("5.5.0"), None, findings.append)
    (missing,) = findings
    assert (missing.topic, missing.queue_id, missing.queue_offset, missing.count) == ("Audit", 0, 10, 3)
    assert missing.file == "consumequeue"

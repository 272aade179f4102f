"""What people do to a healthy store leaves it healthy: an upgrade, a downgrade, a clock that is set back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged
from tests.verify.stores import above_note, verified

VERSIONS = ("4.4.0", "4.9.7", "5.3.3", "5.4.0", "5.5.0")
CHANGED_VERSION = ("upgraded-4.9.7-5.5.0", "downgraded-5.5.0-4.9.7")
CLOCK = "clock-set-back-5.4.0"
KILLED = {CLOCK: {"store.abort-present": 1}}
"""Its broker was killed at the end."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [*CHANGED_VERSION, CLOCK])
def test_a_store_that_outlived_it_is_healthy_by_the_rules_of_any_version(
    golden: Unpacked, name: str, version: str
) -> None:
    with assert_store_unchanged(golden(name)):
        summary, findings = verified(golden(name), version)
    assert summary.complete
    assert above_note(findings) == KILLED.get(name, {})


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("name", CHANGED_VERSION)
def test_nothing_is_repaired_after_a_change_of_versions(
    golden: Unpacked, tmp_path: Path, name: str, version: str, *, full: bool
) -> None:
    store = survey(open_directory(golden(name)))
    planned = plan_recover(store, rules_for(version), tmp_path, RecoverOptions(full=full))
    assert planned.steps == ()


def test_times_that_fall_are_notes_with_each_reading_and_without_a_command(golden: Unpacked) -> None:
    _, findings = verified(golden(CLOCK), "5.4.0")
    of_times = [finding for finding in findings if finding.id.startswith("commitlog.")]
    assert [finding.id for finding in of_times] == ["commitlog.store-time-regress", "commitlog.resurrected-tail"]
    for finding in of_times:
        assert "the clock was set back" in finding.message
        assert "came back" in finding.message
        assert finding.repair is None
    assert of_times[1].count == 30


@pytest.mark.parametrize("name", CHANGED_VERSION)
def test_a_key_that_is_lost_is_found_beside_what_older_rules_left(golden_copy: Unpacked, name: str) -> None:
    """The newest entry but one of each index file is that of a key, or of tags with a key before."""
    path = golden_copy(name)
    for file in sorted((path / "index").iterdir()):
        content = bytearray(file.read_bytes())
        slots = 100
        count = int.from_bytes(content[36:40], "big") - 1
        for number in (count - 1, count):
            at = 40 + 4 * slots + 20 * number
            content[at : at + 4] = (int.from_bytes(content[at : at + 4], "big") ^ 1).to_bytes(4, "big")
        file.write_bytes(content)
    _, findings = verified(path, "5.5.0")
    found = above_note(findings)
    assert found["index.bad-entry"] == 4
    assert found["index.missing-key"] >= 2


def test_records_with_ipv6_hosts_are_none_that_an_old_version_reads(golden_copy: Unpacked) -> None:
    path = golden_copy("4.9.7-ipv6")
    options = ("--broker-version", "4.4.0", "--format", "json")
    finding_ids = {row["id"] for row in json.loads(rmqtool("verify", path, *options).out)["findings"]}
    assert "commitlog.not-readable-by-version" in finding_ids
    plan = json.loads(rmqtool("salvage", path, "--dry-run", *options).out)
    assert (plan["next_step"]["command"], plan["needs_decision"]) == (None, True)
    assert "4.6.0 or later" in plan["next_step"]["reason"]


def test_light_queues_are_judged_by_a_version_that_knows_them(golden_copy: Unpacked) -> None:
    path = golden_copy("4.9.7-lmq")
    findings = json.loads(rmqtool("verify", path, "--broker-version", "4.4.0", "--format", "json").out)["findings"]
    assert [row["id"] for row in findings if row["id"].startswith("consumequeue.")] == []

"""Compacted topics: what a real broker has compacted is right; damage of each kind is in tests/fixtures."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.findings.finding import Finding
from rmqtool.forecast.forecast import forecast_store
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from tests import golden_stores
from tests.broker.broker import Judge
from tests.broker.toolchain import require_tools
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

GOLDEN = "broker-5.5.0-compaction"
LOG = "compaction/compactionLog/settings/0/00000000000000069000"
QUEUE = "compaction/compactionCq/settings/0/00000000000000069000"


def verified(path: Path) -> tuple[bool, list[Finding]]:
    findings: list[Finding] = []
    summary = verify_store(survey(open_directory(path)), rules_for("5.5.0"), None, findings.append)
    return summary.complete, [finding for finding in findings if finding.id.startswith("compaction.")]


def test_what_a_broker_compacted_is_looked_at_and_right(golden: Unpacked) -> None:
    assert verified(golden(GOLDEN)) == (True, [])


def test_compacted_messages_and_their_units_are_dumped(golden: Unpacked) -> None:
    rows = {}
    for name in ("compactionLog", "compactionCq"):
        ran = rmqtool("dump", golden(GOLDEN) / "compaction" / name, "--format", "jsonl")
        assert (ran.code, ran.err) == (0, "")
        rows[name] = [json.loads(line) for line in ran.out.splitlines()]
    logged = Counter((row["queue_id"], row["physical_offset"], row["size"]) for row in rows["compactionLog"])
    units = Counter((row["queue_id"], row["physical_offset"], row["record_size"]) for row in rows["compactionCq"])
    assert logged == units
    assert logged.total() == 109
    newest = {row["keys"][0]: row for row in rows["compactionLog"]}
    assert rmqtool("dump", golden(GOLDEN) / "compaction/compactionLog", "--key", next(iter(newest))).code == 0
    assert "queueOffsetMap" in rmqtool("dump", golden(GOLDEN) / "compaction/position-checkpoint").out


@pytest.mark.parametrize("name", [LOG, QUEUE])
def test_damaged_bytes_are_findings(golden_copy: Unpacked, name: str) -> None:
    path = golden_copy(GOLDEN)
    chance = random.Random(name)
    for _ in range(8):
        content = bytearray((path / name).read_bytes())
        for _ in range(4):
            content[chance.randrange(400)] ^= 1 << chance.randrange(8)
        (path / name).write_bytes(content)
        assert all(finding.message for finding in verified(path)[1])
    assert verified(path)[1]


@pytest.mark.broker
@pytest.mark.parametrize(("name", "loads"), [(LOG, False), (QUEUE, True)])
def test_a_broker_needs_the_log_of_each_queue_file(golden_copy: Unpacked, name: str, loads: bool) -> None:
    require_tools()
    path = golden_copy(GOLDEN)
    (path / name).unlink()
    kinds = {finding.id for finding in verified(path)[1]}
    assert kinds == {"compaction.missing-message", "compaction.missing-unit" if loads else "compaction.unpaired-file"}
    assert forecast_store(survey(open_directory(path)), rules_for("5.5.0")).starts is loads
    config = golden_stores.broker_manifest(GOLDEN)["config"]
    judge = Judge("5.5.0")
    try:
        assert judge.examine(path, config)["load"] is loads
    finally:
        judge.close()

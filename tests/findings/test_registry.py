"""The catalogue: sorted, whole, used, and its page fresh."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqtool.findings import finding as catalog
from rmqtool.findings.finding import Severity
from rmqtool.findings.registry import CATALOG, finding

ROOT = Path(__file__).resolve().parent.parent.parent
PROMISED = {
    Severity.ERROR: """commitlog: bad-size bad-magic body-crc-mismatch record-crc-mismatch self-offset-mismatch
        bad-lengths hole missing-end-blank missing-file wrong-file-size stray-file empty-file unreadable-range
        not-readable-by-version; compaction: leftover-file""",
    Severity.WARNING: """commitlog: torn-record stale-tail resurrected-tail store-time-regress queue-offset-repeated;
        consumequeue: missing-queue missing-file missing-unit dangling-unit wrong-record wrong-record-size
        wrong-tags-code wrong-position gap ahead-of-log behind-log zero-file filler-readable stale-unit wrong-file-size
        stray-file unsafe-name bad-extension bad-batch-unit; index: bad-header chain-loop bad-entry wrong-slot
        dangling-entry missing-key missing-file; checkpoint: missing bad-size bad-time ahead-of-queues ahead-of-log;
        store: abort-present repair-unfinished; rocksdb: ahead-of-log;
        config: unreadable backup-better consumer-offset-beyond-queue queue-without-topic""",
    Severity.NOTE: """commitlog: tombstone; consumequeue: below-log dead-unit; index: would-be-dropped;
        store: lock-held""",
}
"""Ids that scripts rely on, with the severity that they were given."""


def test_it_is_sorted_and_unique() -> None:
    ids = [entry.id for entry in CATALOG]
    assert ids == sorted(set(ids), key=lambda name: (name.partition(".")[0], name))


@pytest.mark.parametrize("severity", Severity)
def test_what_scripts_rely_on_is_there(severity: Severity) -> None:
    promised = {
        f"{place.strip()}.{name}"
        for part in PROMISED[severity].split(";")
        for place, _, names in [part.partition(":")]
        for name in names.split()
    }
    assert promised <= {entry.id for entry in CATALOG if entry.severity is severity}


def test_every_kind_is_found_by_some_check() -> None:
    checks = "\n".join(
        path.read_text("utf-8")
        for folder in ("verify", "sides", "scan", "dump")
        for path in (ROOT / "rmqtool" / folder).rglob("*.py")
    )
    named = {name for name, value in vars(catalog).items() if name.isupper() and isinstance(value, str)}
    used = set(re.findall(r'"([a-z]+\.[a-z-]+)"', checks))
    used |= {getattr(catalog, name) for name in named if re.search(rf"\b{name}\b", checks)}
    assert [entry.id for entry in CATALOG if entry.id not in used] == []


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry.id)
def test_an_entry_says_enough(entry: object) -> None:
    found = next(known for known in CATALOG if known is entry)
    assert found.meaning.endswith(".")
    assert found.brokers
    assert all(versions and text for versions, text in found.brokers)
    assert not found.remedy.endswith(".")
    assert all(re.fullmatch(r"[\w-]+/[\w.-]+#\d+", thread) for thread in found.upstream)
    if found.severity is Severity.NOTE:
        assert found.repair is None


def test_a_finding_has_what_the_catalogue_says() -> None:
    found = finding("consumequeue.gap", "consumequeue/T/0/00000000000000000000", "12 units are zero", count=12)
    assert (found.severity, found.repair, found.count) == (Severity.WARNING, "rebuild --queues", 12)
    assert found.as_json()["severity"] == "warning"
    with pytest.raises(KeyError):
        finding("consumequeue.unheard-of", "", "")

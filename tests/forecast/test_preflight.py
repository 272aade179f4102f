"""Why a store changes with the broker's version: which reasons there are, how many of each, and what each costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.engine.rules.changes import VERSION_CHANGES
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.preflight import Preflight, preflight
from rmqtool.store.directory import Store
from tests.conftest import Unpacked
from tests.repair.golden_repairs import store_of
from tests.store_state import assert_store_unchanged

LOG = "commitlog/00000000000000000000"
PACKED = "batchconsumequeue/InnerBatch/0"
COMPACTED = "compaction/compactionLog/settings/0/00000000000000000000"


def checked(store: Store, before: str, after: str, options: ForecastOptions | None = None) -> Preflight:
    options = options or ForecastOptions()
    versions = (before, after)
    forecasts = {version: forecast_store(store, rules_for(version), options) for version in versions}
    return preflight(store, rules_for(before), rules_for(after), options, forecasts)


@pytest.mark.parametrize(
    ("name", "before", "after", "reason", "count", "first", "lost"),
    [
        ("5.5.0-v2", "5.5.0", "4.9.7", "commitlog.v2-records", 40, (LOG, 120), 59),
        ("5.5.0-ipv6", "5.5.0", "4.4.0", "commitlog.ipv6-hosts", 32, (LOG, 143), 39),
        ("5.5.0-inner-batch", "5.5.0", "4.9.7", "commitlog.inner-batches", 30, (LOG, 0), 0),
        ("5.5.0-inner-batch", "5.5.0", "4.9.7", "consumequeue.batch-queues", 2, (PACKED, None), 30),
        ("5.5.0-lmq", "5.5.0", "4.4.0", "commitlog.multi-dispatch", 30, (LOG, 0), 0),
        ("5.5.0-record-crc", "5.5.0", "4.9.7", "commitlog.record-crcs", 2, (LOG, 0), 0),
        ("4.9.7-multi-path", "4.9.7", "4.4.0", "commitlog.several-directories", 2, ("commitlog-a", None), 260),
        ("5.5.0-rocksdb-cq", "5.5.0", "5.1.4", "consumequeue.in-rocksdb", 6, ("consumequeue", None), 150),
        ("4.9.7-many-no-queues", "4.9.7", "5.5.1", "recovery.ten-files", 15, (LOG, 0), 62),
        ("4.9.7-clean-basic", "4.9.7", "5.4.0", "index.missing-tags", 232, (LOG, 0), 0),
        ("5.5.0-clean-basic", "5.5.0", "5.3.3", "index.unused-tags", 232, (LOG, 0), 0),
        ("4.9.7-crashed", "4.9.7", "5.5.1", "checkpoint.missing-fields", 3, ("checkpoint", None), 0),
        ("5.5.0-clean-basic", "5.5.0", "5.4.0", "checkpoint.unknown-fields", 1, ("checkpoint", None), 0),
        ("broker-5.5.0-timer", "5.5.0", "4.9.7", "timer.waiting-messages", 41, (LOG, 1159), 0),
        ("broker-5.5.0-compaction", "5.5.0", "4.9.7", "compaction.topics", 1, (COMPACTED, None), 0),
        ("broker-5.5.0-pop", "5.5.0", "4.9.7", "pop.revive-topics", 1, None, 0),
    ],
)  # fmt: skip
def test_a_reason_is_counted(
    golden: Unpacked, name: str, before: str, after: str, reason: str, count: int, first: tuple[str, int | None] | None,
    lost: int,
) -> None:  # fmt: skip
    with assert_store_unchanged(golden(name)):
        result = checked(store_of(golden(name), name), before, after)
    row = {row.id: row for row in result.reasons}[reason]
    assert (row.count, row.lost_messages) == (count, lost)
    if first is not None:
        assert (row.file, row.physical_offset) == first


@pytest.mark.parametrize("name", ["5.5.0-clean-single", "5.5.0-v2", "5.5.0-ipv6", "broker-5.5.0-timer"])
def test_versions_that_know_all_have_no_reason_to_lose(golden: Unpacked, name: str) -> None:
    result = checked(store_of(golden(name), name), "5.5.0", "5.5.1")
    assert [reason.id for reason in result.reasons if not reason.is_harmless] == []


@pytest.mark.parametrize("name", ["4.9.7-many-no-queues", "5.5.0-v2", "5.5.0-inner-batch", "4.9.7-damage-size-huge"])
@pytest.mark.parametrize("after", EXAMINED)
def test_what_only_the_later_version_loses_has_a_reason(golden: Unpacked, name: str, after: str) -> None:
    store = store_of(golden(name), name)
    before = "5.5.0" if name.startswith("5.5.0") else "4.9.7"
    earlier, later = (forecast_store(store, rules_for(version)) for version in (before, after))
    result = checked(store, before, after)
    costs = [reason for reason in result.reasons if not reason.is_harmless or reason.id == "start.several-differences"]
    if earlier.starts and (not later.starts or later.lost.messages > earlier.lost.messages):
        assert costs
    if later.starts and not later.lost.messages and not later.messages_without_log:
        assert not any(reason.lost_messages or reason.prevents_start for reason in result.reasons)


def test_a_start_that_is_prevented_names_its_reason(golden_copy: Unpacked) -> None:
    path = golden_copy("4.9.7-clean-basic")
    (path / "commitlog" / "lost+found").mkdir()
    result = checked(store_of(path, "4.9.7-clean-basic"), "5.5.1", "4.9.8")
    assert [reason.id for reason in result.reasons if reason.prevents_start] == ["load.odd-files"]


def test_required_record_crcs_are_the_reason_where_records_have_none(golden: Unpacked) -> None:
    name = "4.9.7-clean-basic"
    options = replace(ForecastOptions(), record_crc=True)
    result = checked(store_of(golden(name), name), "4.9.7", "5.5.1", options)
    costs = {reason.id: reason.lost_messages for reason in result.reasons}
    assert costs["commitlog.missing-record-crcs"] == max(costs.values()) > 0


def test_configuration_in_rocksdb_is_named(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    (path / "config" / "topics").mkdir(parents=True)
    (path / "config" / "topics" / "000008.sst").write_bytes(b"x")
    result = checked(store_of(path, "5.5.0-clean-basic"), "5.5.0", "4.9.7")
    (reason,) = result.harmful
    assert (reason.id, reason.count, reason.file) == ("config.in-rocksdb", 1, "config/topics")


def test_queues_that_cannot_be_counted_are_not_looked_at(golden_copy: Unpacked) -> None:
    name = "5.5.0-rocksdb-cq"
    path = golden_copy(name)
    queue = path / "consumequeue" / "T" / "0" / f"{0:020}"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(bytes(600))
    result = checked(store_of(path, name), "5.5.0", "4.9.7")
    reason = next(reason for reason in result.reasons if reason.id == "consumequeue.in-rocksdb")
    assert reason.count is None
    assert "queues in RocksDB, beside those in files" in [files.reason for files in result.not_looked_at]


def test_every_way_around_is_a_sentence() -> None:
    for change in VERSION_CHANGES:
        assert change.way_around[0].isupper()
        assert change.way_around.endswith((".", ":"))
        assert change.way_around.endswith(":") <= (change.command is not None)


def test_a_large_log_is_counted_where_losses_are(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.forecast.preflight.COUNT_WHOLE_LOG_UP_TO", 0)
    monkeypatch.setattr("rmqtool.forecast.forecast.COUNT_WHOLE_LOG_UP_TO", 0)
    name = "4.9.7-many-files"
    result = checked(store_of(golden(name), name), "4.9.7", "5.5.1")
    (reason,) = [reason for reason in result.reasons if reason.id == "index.missing-tags"]
    assert reason.count is not None
    assert reason.count < 149
    assert Path(str(reason.file)).name > f"{0:020}"

"""Forecasts for brokers with settings that change a start, each held against what the real broker then does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.result import Forecast
from rmqtool.forecast.unsimulated import unsimulated_settings
from rmqtool.formats.commitlog import PHYSICAL_OFFSET_AT
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.test_forecast_rare import BODY_AT, CONFIG, JudgeOf, assert_same, killed_store, log_file
from tests.conftest import Unpacked
from tests.rocksdb_cases import Rows, edit

IN_ROCKSDB = "5.5.0-rocksdb-cq"
MESSAGES = 150


def remove_rows(units: Rows, ends: Rows) -> None:
    for rows in (units, ends):
        for key, _ in list(rows.items()):
            rows.delete(key)


def with_setting(judge: Judge, store: Path, copy: Path, config: Mapping[str, Any], more: Mapping[str, Any]) -> Forecast:
    """The forecast for a copy of a store and a broker with these settings more, which that broker then keeps."""
    copy_store(store, copy)
    settings = {**config, **more}
    options = forecast_options(broker_conf({key: str(value) for key, value in settings.items()}))
    return assert_same(judge, copy, settings, options)


@pytest.mark.parametrize("version", ["5.5.0", "5.5.1"])
def test_a_broker_that_checks_offsets_ends_at_a_record_that_was_moved(
    judge_of: JudgeOf, tmp_path: Path, version: str
) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    answers = killed_store(judge, path, CONFIG)
    file, position = log_file(path, answers[-20]["physicalOffset"])
    with file.open("r+b") as opened:
        opened.seek(position + PHYSICAL_OFFSET_AT)
        opened.write((1 << 20).to_bytes(8, "big"))
    ends = [
        with_setting(
            judge, path, tmp_path / f"{checks}", CONFIG, {"checkCommitLogOffsetOnRecover": checks}
        ).log_end_offset
        for checks in (True, False)
    ]
    last = answers[-1]
    assert ends == [answers[-20]["physicalOffset"], last["physicalOffset"] + last["size"]]


@pytest.mark.parametrize("version", ["5.4.0", "5.5.0"])
def test_a_broker_looks_into_so_many_files_of_a_log(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """Without a checkpoint, recovery after a crash goes back to the first file, or as far as it is told."""
    judge, path = judge_of(version), tmp_path / "store"
    answers = killed_store(judge, path, CONFIG, 200)
    (path / "checkpoint").unlink()
    assert len(list((path / "commitlog").iterdir())) > 3
    file, position = log_file(path, answers[10]["physicalOffset"])
    with file.open("r+b") as opened:
        opened.seek(position + BODY_AT)
        opened.write(b"x")
    ends = [
        with_setting(judge, path, tmp_path / f"{count}", CONFIG, {"commitLogRecoverMaxNum": count}).log_end_offset
        for count in (10, 2)
    ]
    last = answers[-1]
    assert ends == [answers[10]["physicalOffset"], last["physicalOffset"] + last["size"]]


@pytest.mark.parametrize(("version", "expected"), [("5.1.4", (150, 0)), ("5.5.0", (149, 1))])
def test_a_broker_that_asks_the_queues_dispatches_what_they_lack(
    judge_of: JudgeOf, tmp_path: Path, version: str, expected: tuple[int, int]
) -> None:
    judge, path = judge_of(version), tmp_path / "store"
    with judge.open(path, CONFIG) as store:
        store.put(*({"topic": "T", "queueId": 0, "body": bytes(400)} for _ in range(150)))
        store.wait_dispatched()
    last = max((path / "consumequeue/T/0").iterdir())
    with last.open("r+b") as opened:
        opened.seek((150 - 1) % 100 * 20 - 200)
        opened.write(bytes(220))
    ends = []
    for asks in (True, False):
        forecast = with_setting(judge, path, tmp_path / f"{asks}", CONFIG, {"recheckReputOffsetFromCq": asks})
        [queue] = [queue for queue in forecast.queues if queue.topic == "T"]
        ends.append((queue.max_queue_offset, forecast.lost.messages))
    assert ends[0] == expected


def test_an_index_that_is_not_written_is_not_simulated(judge_of: JudgeOf, tmp_path: Path) -> None:
    """The broker enters no keys into index files, which the forecast counts on; it says that it leaves this out."""
    judge, path = judge_of("5.5.0"), tmp_path / "store"
    config = CONFIG | {"maxHashSlotNum": 100, "maxIndexNum": 400}
    with judge.open(path, config | {"indexFileWriteEnable": False}) as store:
        store.put({"topic": "T", "queueId": 0, "body": b"x", "properties": {"KEYS": "k"}})
        store.wait_dispatched()
    assert not list((path / "index").glob("*"))
    conf = broker_conf({"indexFileWriteEnable": "false"})
    assert [row.path for row in unsimulated_settings(conf, survey(open_directory(path)))] == ["broker.conf"]


@pytest.mark.parametrize("has_rows", [True, False], ids=["rows", "no rows"])
@pytest.mark.parametrize(("version", "in_database"), [("5.3.1", False), ("5.5.0", False), ("5.5.0", True)])
def test_a_broker_whose_configuration_does_not_name_rocksdb_reads_files(
    golden_copy: Unpacked, judge_of: JudgeOf, version: str, *, in_database: bool, has_rows: bool
) -> None:
    path = golden_copy(IN_ROCKSDB)
    if not has_rows:
        edit(path, remove_rows)
    config = dict(golden_stores.manifest(IN_ROCKSDB).config)
    if not in_database:
        del config["storeType"]
    conf = broker_conf({key: str(value) for key, value in config.items()})
    forecast = forecast_store(survey(open_directory(path), conf.settings()), rules_for(version), forecast_options(conf))
    with judge_of(version).open(path, config) as store:
        served = {(queue["topic"], queue["queueId"]): queue for queue in store.read()["queues"]}
    kept = {name: (queue["min"], queue["max"]) for name, queue in served.items() if queue["max"]}
    assert {
        (each.topic, each.queue_id): (each.min_queue_offset, each.max_queue_offset) for each in forecast.queues
    } == kept
    count = sum(row[1] == "FOUND" for queue in served.values() for row in queue["messages"] if row[2] is not None)
    assert MESSAGES - forecast.lost.messages == count

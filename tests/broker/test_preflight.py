"""What a preflight says of a store is what a real broker of the other version then does with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnsupportedError
from rmqtool.forecast.forecast import forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.preflight import ChangeReason, preflight
from rmqtool.forecast.result import Forecast
from tests import golden_stores
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.conftest import Unpacked
from tests.repair.golden_repairs import store_of


def served_by(judge_of: JudgeOf, version: str, path: Path, name: str) -> tuple[set[tuple[str, int]], dict[str, Any]]:
    """Topic and physical offset of every message that a broker of this version serves of a copy, and its report."""
    config, topics = golden_stores.config_and_topics(name)
    if version < "5.2":
        config.pop("storeType", None)  # it has no such store
    report = judge_of(version).examine(copy_store(path, path.with_name(f"{name}-{version}")), config, topics)
    queues = report["served"]["queues"] if "served" in report else []
    return {(queue["topic"], row[2]) for queue in queues for row in queue["messages"] if row[1] == "FOUND"}, report


def reasons_of(
    path: Path, name: str, before: str, after: str
) -> tuple[Mapping[str, ChangeReason], Mapping[str, Forecast]]:
    store, forecasts = store_of(path, name), {}
    for version in (before, after):
        try:
            forecasts[version] = forecast_store(store, rules_for(version))
        except UnsupportedError:
            continue
    result = preflight(store, rules_for(before), rules_for(after), ForecastOptions(), forecasts)
    return {reason.id: reason for reason in result.reasons}, forecasts


@pytest.mark.parametrize(
    ("name", "before", "after", "id_"),
    [
        ("5.5.0-v2", "5.5.0", "4.9.7", "commitlog.v2-records"),
        ("5.5.0-v2", "5.5.0", "4.9.8", "commitlog.v2-records"),
        ("5.5.0-ipv6", "5.5.0", "4.4.0", "commitlog.ipv6-hosts"),
        ("5.5.0-inner-batch", "5.5.0", "4.9.7", "consumequeue.batch-queues"),
        ("4.9.7-multi-path", "4.9.7", "4.4.0", "commitlog.several-directories"),
        ("5.5.0-rocksdb-cq", "5.5.0", "5.1.4", "consumequeue.in-rocksdb"),
        ("4.9.7-many-no-queues", "4.9.7", "5.4.0", "recovery.ten-files"),
        ("4.9.7-many-no-queues", "4.9.7", "5.5.1", "recovery.ten-files"),
        ("4.9.7-clean-basic", "4.9.7", "5.5.0", None),
        ("4.9.7-clean-basic", "4.9.7", "5.3.1", None),
        ("5.5.0-clean-basic", "5.5.0", "4.4.0", None),
        ("5.5.0-record-crc", "5.5.0", "4.9.7", None),
        ("broker-5.5.0-compaction", "5.5.0", "4.9.7", None),
    ],
)  # fmt: skip
def test_the_reason_costs_what_the_other_broker_does_not_serve(
    golden: Unpacked, judge_of: JudgeOf, tmp_path: Path, name: str, before: str, after: str, id_: str | None
) -> None:
    path = copy_store(golden(name), tmp_path / name)
    reasons, forecasts = reasons_of(path, name, before, after)
    earlier, _ = served_by(judge_of, before, path, name)
    later, report = served_by(judge_of, after, path, name)
    missing = {(topic, at) for topic, at in earlier - later if not topic.startswith("SCHEDULE")}
    assert forecasts[after].starts == ("served" in report)
    assert len(missing) == forecasts[after].lost.messages
    costs = {reason.id: reason.lost_messages for reason in reasons.values() if reason.lost_messages}
    assert bool(missing) == bool(costs)
    assert id_ is None or costs[id_] == len(missing)
    first = reasons[id_].physical_offset if id_ in ("commitlog.v2-records", "commitlog.ipv6-hosts") else None
    if first is not None:  # the log ends there
        assert report["afterLoad"]["offsets"]["max"] == first


@pytest.mark.parametrize(("before", "after", "id_"), [("4.9.7", "5.4.0", "missing"), ("5.5.0", "4.9.7", "unused")])
def test_tags_are_found_as_the_reason_says(
    golden: Unpacked, judge_of: JudgeOf, tmp_path: Path, before: str, after: str, id_: str
) -> None:
    """5.4.0 looks tags up and finds none that 4.9.7 stored; 4.9.7 has no way to ask."""
    name = f"{before}-clean-basic"
    path = copy_store(golden(name), tmp_path / name)
    reasons, _ = reasons_of(path, name, before, after)
    reason = reasons[f"index.{id_}-tags"]
    tagged = [record for record in golden_stores.manifest(name).records if record.properties.get("TAGS")]
    assert (reason.count, reason.physical_offset) == (len(tagged), tagged[0].at)
    if id_ == "missing":
        config, topics = golden_stores.config_and_topics(name)
        with judge_of(after).open(path, config, topics) as store:
            row = tagged[0]
            answer = store.query(row.topic, row.properties["TAGS"], kind="T")
        assert str(row.at) not in str(answer)


def test_light_queues_get_nothing_new(golden: Unpacked, judge_of: JudgeOf, tmp_path: Path) -> None:
    name, before, after = "5.5.0-lmq", "5.5.0", "4.4.0"
    path = copy_store(golden(name), tmp_path / name)
    reasons, _ = reasons_of(path, name, before, after)
    assert reasons["commitlog.multi-dispatch"].count == 30
    config, topics = golden_stores.config_and_topics(name)
    with judge_of(after).open(path, config, topics) as store:
        light = {
            queue["topic"]: queue["max"] for queue in store.read(brief=True)["queues"] if "%LMQ%" in queue["topic"]
        }
        assert light
        properties = {"INNER_MULTI_DISPATCH": next(iter(light))}
        store.put({"topic": "T", "queueId": 0, "body": b"x", "properties": properties})
        store.wait_dispatched()
        after_put = {queue["topic"]: queue["max"] for queue in store.read(brief=True)["queues"]}
    assert {topic: after_put[topic] for topic in light} == light


def test_an_inner_batch_is_one_message(golden: Unpacked, judge_of: JudgeOf, tmp_path: Path) -> None:
    name = "5.5.0-inner-batch"
    path = copy_store(golden(name), tmp_path / name)
    reasons, _ = reasons_of(path, name, "5.5.0", "4.9.7")
    assert reasons["commitlog.inner-batches"].harm == "misread"
    config, topics = golden_stores.config_and_topics(name)
    with judge_of("4.9.7").open(path, config, topics) as store:
        store.put({"topic": "T", "queueId": 0, "body": b"x", "sysFlag": 0x80})
        store.wait_dispatched()
        queues = {queue["topic"]: queue for queue in store.read(brief=True)["queues"]}
    assert queues["T"]["max"] == 1


def test_a_dledger_log_is_not_served_by_a_broker_before_it(golden: Unpacked, judge_of: JudgeOf, tmp_path: Path) -> None:
    name = "broker-4.9.7-dledger"
    path = copy_store(golden(name), tmp_path / name)
    reasons, _ = reasons_of(path, name, "4.9.7", "4.4.0")
    assert reasons["commitlog.dledger"].harm == "not-served"
    served, report = served_by(judge_of, "4.4.0", path, name)
    assert (served, report["afterLoad"]["offsets"]["max"]) == (set(), 0)


def test_waiting_timer_messages_stay_where_they_are(golden: Unpacked, judge_of: JudgeOf, tmp_path: Path) -> None:
    """4.9.7 serves them in the timer's topic only."""
    name = "broker-5.5.0-timer"
    path = copy_store(golden(name), tmp_path / name)
    reasons, _ = reasons_of(path, name, "5.5.0", "4.9.7")
    reason = reasons["timer.waiting-messages"]
    served, _ = served_by(judge_of, "4.9.7", path, name)
    assert ("rmq_sys_wheel_timer", reason.physical_offset) in served
    assert reason.count is not None
    assert 0 < reason.count <= sum(topic == "rmq_sys_wheel_timer" for topic, _ in served)


@pytest.mark.parametrize(("version", "fields"), [("4.9.7", 3), ("5.4.0", 5)])
def test_a_version_writes_only_its_own_checkpoint_fields(
    golden: Unpacked, judge_of: JudgeOf, tmp_path: Path, version: str, fields: int
) -> None:
    """What it does not know is 0 after its clean stop, or stays as it was."""
    name = "5.5.0-clean-basic"
    path = copy_store(golden(name), tmp_path / name)
    reasons, _ = reasons_of(path, name, "5.5.0", version)
    before = (path / "checkpoint").read_bytes()[fields * 8 : 48]
    assert reasons["checkpoint.unknown-fields"].count == sum(
        any(before[at : at + 8]) for at in range(0, len(before), 8)
    )
    config, topics = golden_stores.config_and_topics(name)
    with judge_of(version).open(path, config, topics) as store:
        store.put({"topic": "OrderEvents", "queueId": 0, "body": b"x"})
        store.wait_dispatched()
    assert (path / "checkpoint").read_bytes()[fields * 8 : 48] in (before, bytes(len(before)))


def test_an_index_is_rebuilt_less_after_a_crash_of_an_older_version(
    golden: Unpacked, judge_of: JudgeOf, tmp_path: Path
) -> None:
    name = "4.9.7-crashed"
    path = copy_store(golden(name), tmp_path / name)
    reasons, forecasts = reasons_of(path, name, "4.9.7", "5.5.1")
    assert reasons["checkpoint.missing-fields"].count == 3
    served, report = served_by(judge_of, "5.5.1", path, name)
    assert report["lastExit"] == "abnormal"
    assert not forecasts["5.5.1"].lost.messages
    assert served_by(judge_of, "4.9.7", path, name)[0] == served


def test_a_directory_in_the_log_prevents_the_start(golden: Unpacked, judge_of: JudgeOf, tmp_path: Path) -> None:
    name = "4.9.7-clean-basic"
    path = copy_store(golden(name), tmp_path / name)
    (path / "commitlog" / "lost+found").mkdir()
    reasons, _ = reasons_of(path, name, "5.5.0", "4.9.8")
    assert reasons["load.odd-files"].prevents_start
    assert "served" in served_by(judge_of, "5.5.0", path, name)[1]
    assert "served" not in served_by(judge_of, "4.9.8", path, name)[1]


def test_records_without_a_required_crc_end_the_log(golden: Unpacked, judge_of: JudgeOf, tmp_path: Path) -> None:
    name, before, after = "4.9.7-clean-single", "4.9.7", "5.5.0"
    path = copy_store(golden(name), tmp_path / name)
    store, options = store_of(path, name), ForecastOptions(record_crc=True)
    forecasts = {version: forecast_store(store, rules_for(version), options) for version in (before, after)}
    result = preflight(store, rules_for(before), rules_for(after), options, forecasts)
    lost = {reason.id: reason.lost_messages for reason in result.reasons}["commitlog.missing-record-crcs"]
    config, topics = golden_stores.config_and_topics(name)
    report = judge_of(after).examine(path, {**config, "forceVerifyPropCRC": True}, topics)
    served = sum(row[1] == "FOUND" for queue in report["served"]["queues"] for row in queue["messages"])
    assert report["afterLoad"]["offsets"]["max"] == forecasts[after].log_end_offset
    assert lost == forecasts[after].lost.messages == len(golden_stores.manifest(name).records) - served > 0

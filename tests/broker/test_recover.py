"""Stores that we recovered, before real brokers: nothing is cut or rebuilt, all is served, and they continue."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from _pytest.mark import ParameterSet

from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from tests.broker.broker import Judge, OpenStore, served_places
from tests.broker.files import changes, snapshot
from tests.broker.versions import ROUTINE
from tests.golden_stores import Manifest, Record, config_and_topics, crashed_names, damaged_names, manifest
from tests.repair.golden_repairs import options_of, rules_of, settings_of, store_of
from tests.repair.recover.test_plan import SALVAGED
from tests.verify.test_golden import damage_of

JudgeOf = Callable[[str], Judge]
Unpacked = Callable[[str], Path]

OFTEN = (
    "4.9.7-crashed",
    "4.9.7-damage-cq-entry-zero-first-file",
    "5.5.0-crashed",
    "5.5.0-crashed-no-dispatch",
    "5.5.0-damage-cq-dir-missing-abort",
    "5.5.0-damage-torn-last-record-abort",
    "5.5.0-many-no-queues",
    "5.5.0-inner-batch-crashed",
)
NOT_HELD = {
    ("log-stray-directory", "4.9.7"): "a directory in the log stops 4.9, and is not removed",
    ("inner-batch-crashed", "4.9.7"): "4.9 does not know inner batches, and dispatches them otherwise",
}
EMPTY_LAST = ("4.9.7-damage-log-zero-last-file", "5.5.0-damage-log-zero-last-file")
OF_THE_STORE = ("commitlog", "consumequeue", "batchconsumequeue", "index")
FURTHER_QUEUES = ("lmq",)
"""Stores in which a record stands in other queues too."""


def recovered() -> list[ParameterSet]:
    """Stores, versions, and whether all of the store is looked at; a crash needs a look at the end only."""
    crashed = list(crashed_names())
    return [
        pytest.param(name, version, full, marks=() if name in OFTEN else pytest.mark.slow)
        for name in [*crashed, *damaged_names()]
        if not damage_of(name).startswith((*SALVAGED, "log-dir"))
        for version in ROUTINE
        if version in manifest(name).reads and (damage_of(name), version) not in NOT_HELD
        for full in ((True, False) if name in crashed else (True,))
    ]


def recover(
    path: Path, name: str, staging: Path, *, cut_at_damage: bool = False, full: bool = True, cut_at: int | None = None
) -> None:
    """Recover in place, as the command does."""
    store = store_of(path, name)
    directories = settings_of(name).commitlog_directories
    places = StorePaths(path, directories or ("commitlog",))
    before = fingerprint(places)
    staging.mkdir()
    options = RecoverOptions(options_of(name), cut_at_damage=cut_at_damage, full=full, cut_at=cut_at)
    made = plan_recover(store, rules_of(name), staging, options)
    plan = Plan("recover", before, rules_of(name).version, made.steps, made.loss)
    if not plan.is_empty:
        apply_plan(plan, places)


def intact(path: Path, found: Manifest) -> list[Record]:
    """Messages that a queue should have and that lie in the log byte for byte as a broker once read them."""
    size = found.config.get("mappedFileSizeCommitLog", 1 << 30)
    files = {int(place.name): place for place in path.glob("commitlog*/*") if place.name.isdigit()}
    kept = []
    for record in found.records:
        place = files.get(record.at - record.at % size)
        if place is None or record.body_crc_bad or record.sys_flag & 12 not in (0, 8):
            continue
        with place.open("rb") as file:
            file.seek(record.at % size)
            if crc32(file.read(record.size)) == record.record_crc32:
                kept.append(record)
    return kept


def assert_serves(read: Mapping[str, Any], records: list[Record], name: str) -> None:
    found = served_places(read)
    if "inner-batch" in name:  # one record stands for several queue offsets
        assert {record.at for record in records} <= set(found.values())
        return
    for record in records:
        assert found.get((record.topic, record.queue_id, record.queue_offset)) == record.at, record
    if not any(kind in name for kind in FURTHER_QUEUES):
        assert set(found.values()) <= {record.at for record in records}


def assert_keys_found(read: Mapping[str, Any], records: list[Record]) -> None:
    by_key = {(row[0], row[1]): row[2] for row in read["keys"] if len(row) < 4 or "type" not in row[3]}
    for record in records:
        for key in record.properties.get("KEYS", "").split():
            hits = by_key.get((record.topic, key))
            if hits is not None and len(hits) < 32:
                assert record.at in hits, (key, record)


def changed(store: OpenStore) -> list[str]:
    """Files of log, queues and index that are not as they were when the store was opened."""
    found = changes(store.before, snapshot(store.directory))
    return [path for kind in found.values() for path in kind if path.startswith(OF_THE_STORE)]


def put_to_all(store: OpenStore, read: Mapping[str, Any]) -> int:
    """A further message for each queue gets the queue offset that comes next; how many were put."""
    queues = [
        queue for queue in read["queues"] if queue["max"] and not queue["topic"].startswith(("%LMQ%", "SCHEDULE"))
    ]
    answers = store.put(
        *(
            {"topic": queue["topic"], "queueId": queue["queueId"], "body": b"more", "properties": {"KEYS": "more"}}
            for queue in queues
        )
    )
    assert [answer["status"] for answer in answers] == ["PUT_OK"] * len(queues)
    assert [answer["queueOffset"] for answer in answers] == [queue["max"] for queue in queues]
    store.wait_dispatched()
    return len(answers)


@pytest.mark.parametrize(("name", "version", "full"), recovered())
def test_brokers_are_content(
    judge_of: JudgeOf, golden_copy: Unpacked, tmp_path: Path, name: str, version: str, *, full: bool
) -> None:
    path, found = golden_copy(name), manifest(name)
    records = intact(path, found)
    recover(path, name, tmp_path / "staging", full=full)
    config, topics = config_and_topics(name)
    store = judge_of(version).open(path, config, topics)
    assert store.serving, store.opened
    read = store.read()
    # A clean store is left alone even if a file that was made in advance lies behind its log, which brokers unlink.
    empty = sorted(path for path in found.files if path.startswith("commitlog"))[-1:] if name in EMPTY_LAST else []
    assert set(changed(store)) <= set(empty)
    assert_serves(read, records, name)
    assert_keys_found(read, records)
    count = put_to_all(store, read) if config.get("brokerRole") != "SLAVE" else 0
    store.halt()
    again = judge_of(version).open(path, config, topics)
    assert again.serving, again.opened
    now = served_places(again.read())
    before = served_places(read)
    assert {place: now.get(place) for place in before} == before
    assert len(now) - len(before) >= count
    again.shutdown()


CUT = ("4.9.7-damage-flip-body-middle-file-abort", "5.5.0-damage-zero-hole-abort")


@pytest.mark.parametrize("version", ROUTINE)
@pytest.mark.parametrize("name", CUT)
def test_a_log_cut_at_damage_is_served_up_to_there(
    judge_of: JudgeOf, golden_copy: Unpacked, tmp_path: Path, name: str, version: str
) -> None:
    path, found = golden_copy(name), manifest(name)
    recover(path, name, tmp_path / "staging", cut_at_damage=True)
    records = intact(path, found)
    config, topics = config_and_topics(name)
    store = judge_of(version).open(path, config, topics)
    assert store.serving, store.opened
    read = store.read()
    assert changed(store) == []
    assert records
    assert_serves(read, records, name)
    put_to_all(store, read)
    store.shutdown()


@pytest.mark.parametrize("version", ROUTINE)
@pytest.mark.parametrize(
    ("name", "number", "full"),
    [
        ("5.5.0-crashed", 40, False),
        ("5.5.0-many-files", -3, True),
        pytest.param("4.9.7-crashed", 40, True, marks=pytest.mark.slow),
        pytest.param("5.5.0-many-files", -3, False, marks=pytest.mark.slow),
    ],
)
def test_a_log_cut_where_a_person_says_is_served_up_to_there(
    judge_of: JudgeOf, golden_copy: Unpacked, tmp_path: Path, name: str, number: int, version: str, *, full: bool
) -> None:
    path, found = golden_copy(name), manifest(name)
    cut = sorted(record.at for record in found.records)[number]
    recover(path, name, tmp_path / "staging", cut_at=cut, full=full)
    records = [record for record in found.records if record.at < cut and record.sys_flag & 12 in (0, 8)]
    assert intact(path, found) == records
    config, topics = config_and_topics(name)
    store = judge_of(version).open(path, config, topics)
    assert store.serving, store.opened
    read = store.read()
    assert changed(store) == []
    assert_serves(read, records, name)
    assert_keys_found(read, records)
    before = served_places(read)
    count = put_to_all(store, read)
    store.halt()
    again = judge_of(version).open(path, config, topics)
    assert again.serving, again.opened
    now = served_places(again.read())
    assert {key: now.get(key) for key in before} == before
    assert len(now) == len(before) + count
    again.shutdown()

"""Queues in files and in RocksDB as real brokers write and read them (`rocksdbCQDoubleWriteEnable`)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet

from rmqtool.formats.rocksdb.queue import DISPATCHED_KEY, offset_key, unit_key
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.databases.queue_database import read_queue_database
from rmqtool.store.directory import survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.view import Entry, open_directory
from tests import golden_stores
from tests.broker.broker import (
    Judge,
    OpenStore,
    served_places,
    setting_texts,
)
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.rocksdb_cases import Rows, edit, numbers

NAME: Final = "5.5.0-many-files"
VERSIONS: Final = ("5.4.0", "5.5.0", "5.5.1")
DOUBLE: Final = {"rocksdbCQDoubleWriteEnable": True}
READS_DATABASE: Final = {"combineCQPreferCQType": "defaultRocksDB"}
ASSIGNS_BY_DATABASE: Final = {"combineAssignOffsetCQType": "defaultRocksDB"}
ROLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "files": {},
    "database read": READS_DATABASE,
    "database assigns": ASSIGNS_BY_DATABASE,
    "database does both": {**READS_DATABASE, **ASSIGNS_BY_DATABASE},
    "light queues in database": {"combineCQUseRocksdbForLmq": True},
}
AUDIT: Final = ("Audit", 0)
MESSAGES: Final = 190
CONFIG: Final[Mapping[str, Any]] = golden_stores.manifest(NAME).config


def findings_in(path: Path) -> tuple[set[str], bool]:
    """Ids of the findings that are no notes, and whether everything was looked at."""
    report = json.loads(rmqtool("verify", path, "--broker-version", "5.5.0", "--format", "json").out)
    ids = {finding["id"] for finding in report["findings"] if finding["severity"] != "note"}
    return ids, report["summary"]["complete"]


def put_some(store: OpenStore, count: int) -> None:
    messages = [{"topic": "Audit" if at % 2 else "New", "queueId": 0, "body": b"x" * 40} for at in range(count)]
    assert {answer["status"] for answer in store.put(*messages)} == {"PUT_OK"}
    store.wait_dispatched()


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_that_a_broker_began_later_is_in_order(
    golden_copy: Unpacked, judge_of: JudgeOf, tmp_path: Path, version: str, *, killed: bool
) -> None:
    path = golden_copy(NAME)
    with judge_of(version).open(path, {**CONFIG, **DOUBLE}) as store:
        put_some(store, 20)
    assert findings_in(copy_store(path, tmp_path / "stopped")) == (set(), True)  # the process keeps the lock
    with judge_of(version).open(path, {**CONFIG, **DOUBLE}) as store:
        put_some(store, 20)
        if killed:
            store.halt()
    expected = {"store.abort-present", "consumequeue.behind-log"} if killed else set()
    ids, complete = findings_in(copy_store(path, tmp_path / "at last"))
    assert (ids <= expected, complete) == (True, True), ids


def shorten(path: Path) -> None:
    """Take the last unit of a queue from the database, as if it had not been written."""
    units = [record for record in golden_stores.manifest(NAME).records if (record.topic, record.queue_id) == AUDIT]
    key = AUDIT[0].encode(), AUDIT[1]

    def change(rows: Rows, ends: Rows) -> None:
        rows.delete(unit_key(*key, units[-1].queue_offset))
        ends.put(offset_key(*key, is_maximum=True), numbers(units[-2].physical_offset, units[-2].queue_offset))

    edit(path, change)


def both_sides(path: Path) -> Path:
    sizes = ("--queue-file-size", CONFIG["mappedFileSizeConsumeQueue"])
    ran = rmqtool("convert", path, "--queues", "both", "--broker-version", "5.5.0", *sizes, "--yes")
    assert ran.code == 0, ran.out
    return path


@pytest.mark.parametrize("version", VERSIONS)
def test_the_files_are_read_and_a_database_that_is_wrong_may_stop_the_start(
    golden_copy: Unpacked, judge_of: JudgeOf, tmp_path: Path, version: str
) -> None:
    path = both_sides(golden_copy(NAME))
    shorten(path)
    assert findings_in(path) == ({"consumequeue.missing-unit"}, True)
    judge = judge_of(version)
    by_files = judge.examine(copy_store(path, tmp_path / "files"), {**CONFIG, **DOUBLE}, brief=True)
    assert len(served_places(by_files["served"])) == MESSAGES
    by_database = judge.examine(copy_store(path, tmp_path / "database"), {**CONFIG, **DOUBLE, **READS_DATABASE})
    assert "served" not in by_database
    next((path / "consumequeue").glob("CURRENT")).write_bytes(b"")
    assert findings_in(path)[0] == {"rocksdb.not-loadable"}
    assert not judge.examine(path, {**CONFIG, **DOUBLE})["load"]


@pytest.mark.parametrize("version", ["5.5.0", "5.5.1"])
def test_a_broker_that_reads_a_database_which_is_not_there_serves_almost_nothing(
    golden_copy: Unpacked, judge_of: JudgeOf, version: str
) -> None:
    report = judge_of(version).examine(golden_copy(NAME), {**CONFIG, **DOUBLE, **READS_DATABASE}, brief=True)
    assert len(served_places(report["served"])) == 2


def stop_earlier(path: Path) -> None:
    """Leave the database as it was when it had half of the messages."""
    records = golden_stores.manifest(NAME).records
    half = len(records) // 2

    def change(rows: Rows, ends: Rows) -> None:
        for record in records[half:]:
            rows.delete(unit_key(record.topic.encode(), record.queue_id, record.queue_offset))
        for (topic, queue_id), record in {(record.topic, record.queue_id): record for record in records[:half]}.items():
            key = offset_key(topic.encode(), queue_id, is_maximum=True)
            ends.put(key, numbers(record.physical_offset, record.queue_offset))
        ends.put(DISPATCHED_KEY, numbers(records[half].physical_offset))

    edit(path, change)


def shorten_files(path: Path) -> None:
    for file in sorted((path / "consumequeue" / AUDIT[0] / str(AUDIT[1])).iterdir())[1:]:
        file.unlink()


def drop_database(path: Path) -> None:
    for file in (path / "consumequeue").iterdir():
        if file.is_file():
            file.unlink()


def break_database(path: Path) -> None:
    (path / "consumequeue" / "CURRENT").write_bytes(b"")


STATES: Final[Mapping[str, Sequence[Callable[[Path], object]]]] = {
    "healthy": (),
    "database short": (shorten,),
    "database behind": (stop_earlier,),
    "database gone": (drop_database,),
    "database broken": (break_database,),
    "files behind": (shorten_files,),
    "both behind": (shorten_files, stop_earlier),
}


OFTEN: Final = ("healthy", "database behind", "files behind")
"""States with which each role is tried in every run."""


def starts() -> Iterator[ParameterSet]:
    for version in VERSIONS:
        for role, state, crashed in product(ROLES, STATES, (False, True)):
            often = version == "5.5.0" and (role == "files" or (state in OFTEN and not crashed))
            name = f"{role}-{state}-{'killed' if crashed else 'stopped'}-{version}"
            yield pytest.param(role, state, version, crashed, marks=() if often else pytest.mark.slow, id=name)


@pytest.mark.parametrize(("role", "state", "version", "crashed"), list(starts()))
def test_a_start_is_what_is_forecast(
    golden_copy: Unpacked, judge_of: JudgeOf, role: str, state: str, version: str, *, crashed: bool
) -> None:
    path = both_sides(golden_copy(NAME))
    for change in STATES[state]:
        change(path)
    if crashed:
        (path / "abort").write_text("1", "utf-8")
    config = {**CONFIG, **DOUBLE, **ROLES[role]}
    assert_started_as_forecast(judge_of(version), path, config, MESSAGES)


@pytest.mark.parametrize("state", OFTEN)
def test_earlier_versions_have_no_settings_for_the_sides(golden_copy: Unpacked, judge_of: JudgeOf, state: str) -> None:
    path = both_sides(golden_copy(NAME))
    for change in STATES[state]:
        change(path)
    settings = {name: value for role in ROLES.values() for name, value in role.items()}
    ignored = assert_started_as_forecast(judge_of("5.3.3"), path, {**CONFIG, **DOUBLE, **settings}, MESSAGES)
    assert ignored == set(settings)


@pytest.mark.parametrize("version", ["5.5.0", pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_a_database_with_light_queues_cannot_assign_offsets(
    golden_copy: Unpacked, judge_of: JudgeOf, version: str
) -> None:
    path = both_sides(golden_copy(NAME))
    config = {**CONFIG, **DOUBLE, **ASSIGNS_BY_DATABASE, **ROLES["light queues in database"]}
    assert not forecast_of(path, version, config)["starts"]
    with pytest.raises(JudgeError, match="maybe incorrect config"):
        judge_of(version).examine(path, config)


@pytest.mark.parametrize("is_old", [False, True], ids=["database as it was left", "database restored"])
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("role", [{}, READS_DATABASE], ids=["files read", "database read"])
@pytest.mark.parametrize("version", ["5.5.0", pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_light_queues_are_read_from_the_database(
    judge_of: JudgeOf, tmp_path: Path, version: str, role: Mapping[str, Any], *, killed: bool, is_old: bool
) -> None:
    light = {"enableLmq": True, "enableMultiDispatch": True, "combineCQUseRocksdbForLmq": True}
    path, config = tmp_path / "store", {**CONFIG, **DOUBLE, **light, **role}
    for is_last in (False, True):
        with judge_of(version).open(path, config) as store:
            put_light(store, 20)
            if is_last and killed:
                store.halt()
        if not is_last:
            copy_store(path / "consumequeue", tmp_path / "old")
    if is_old:
        drop_database(path)
        for file in (tmp_path / "old").iterdir():
            if file.is_file():
                shutil.copy2(file, path / "consumequeue")
    copy = copy_store(path, tmp_path / "copy")  # the process of a killed one keeps the lock
    assert_started_as_forecast(judge_of(version), copy, config, 2 * 20)


def put_light(store: OpenStore, count: int) -> None:
    properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    messages = [{"topic": "New", "queueId": 0, "body": b"x" * 40, "properties": properties} for _ in range(count)]
    assert {answer["status"] for answer in store.put(*messages)} == {"PUT_OK"}
    store.wait_dispatched()


def forecast_of(path: Path, version: str, config: Mapping[str, Any]) -> dict[str, Any]:
    settings = [part for name, text in setting_texts(config).items() for part in ("--set", f"{name}={text}")]
    ran = rmqtool("forecast", path, "--broker-version", version, *settings, "--format", "json")
    report = json.loads(ran.out)
    assert report["not_looked_at"] == []
    (forecast,) = report["forecasts"]
    return dict(forecast)


def assert_started_as_forecast(judge: Judge, path: Path, config: Mapping[str, Any], message_count: int) -> set[str]:
    """Compare a start with its forecast; the settings that the version does not know."""
    forecast = forecast_of(path, judge.version, config)
    with judge.open(path, config, start=False) as store:
        if store.opened["load"]:
            wait_for_database(store, forecast, config)
            store.start()
        assert forecast["starts"] == store.serving, forecast["why_not"]
        if not forecast["starts"]:
            return set(store.opened["configIgnored"])
        store.read(brief=True)  # the first question about a queue in RocksDB may change its minimum
        queues = store.read(brief=True)["queues"]
        named = {(queue["topic"], queue["queueId"]) for queue in queues}
        further = [(each["topic"], each["queue_id"]) for each in forecast["queues"]]
        further = [name for name in further if name not in named]  # a broker that reads files names only their queues
        queues += [{"topic": name[0], "queueId": name[1], **store.get(*name, [])} for name in (*further, *further)]
        ignored = set(store.opened["configIgnored"])
    expected = {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"]) for queue in queues if queue["max"]}
    bounds = {
        (queue["topic"], queue["queue_id"]): (queue["min_queue_offset"], queue["max_queue_offset"])
        for queue in forecast["queues"]
        if queue["max_queue_offset"]
    }
    assert bounds == expected
    own = [queue for queue in queues if not queue["topic"].startswith("%LMQ%")]
    assert message_count - forecast["lost"]["messages"] == len(served_places({"queues": own}))
    return ignored


def wait_for_database(store: OpenStore, forecast: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Wait for the thread that enters what recovery read into RocksDB; a whole broker takes longer from load to start.

    A store that is started before has other ends in RocksDB than in files, and fails.
    """
    if not forecast["starts"] or "combineCQPreferCQType" not in config:
        return
    ends = {(each["topic"], each["queue_id"]): each["max_queue_offset"] for each in forecast["queues"]}
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(store.get(*name, [])["max"] != end for name, end in ends.items()):
        time.sleep(0.05)


def test_a_store_type_of_rocksdb_goes_before_writing_twice(judge_of: JudgeOf, tmp_path: Path) -> None:
    config = {**CONFIG, **DOUBLE, "storeType": "defaultRocksDB"}
    with judge_of("5.5.0").open(tmp_path / "store", config) as store:
        put_some(store, 4)
    assert not [folder for folder in (tmp_path / "store" / "consumequeue").iterdir() if folder.is_dir()]
    conf = broker_conf(setting_texts(config))
    assert conf.settings().queue_kind == "rocksdb"


def test_topics_of_another_type_are_in_files_alone(judge_of: JudgeOf, tmp_path: Path) -> None:
    config = {**CONFIG, **DOUBLE, "rocksdbCQSelectiveDoubleWriteEnable": True}
    topics = {"Lite": {"attributes": {"message.type": "LITE"}}, "New": {}}
    path = tmp_path / "store"
    with judge_of("5.5.1").open(path, config, topics) as store:
        assert store.opened["configIgnored"] == []
        store.put(*({"topic": topic, "queueId": 0, "body": b"x"} for topic in ("Lite", "New", "Lite", "New")))
        store.wait_dispatched()
    database = read_queue_database(open_directory(path), database_files(path))
    assert {topic for topic, _ in database.names} == {"Lite"}
    assert findings_in(copy_store(path, tmp_path / "copy")) == (set(), True)


@pytest.mark.parametrize("version", ["5.5.0", "5.5.1"])
def test_light_queues_are_in_the_database_alone(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    light = {"enableLmq": True, "enableMultiDispatch": True, "combineCQUseRocksdbForLmq": True}
    path, properties = tmp_path / "store", {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    with judge_of(version).open(path, {**CONFIG, **DOUBLE, **light}) as store:
        messages = [{"topic": "New", "queueId": 0, "body": b"x", "properties": properties} for _ in range(5)]
        assert {answer["status"] for answer in store.put(*messages)} == {"PUT_OK"}
        store.wait_dispatched()
        assert store.get("%LMQ%a", 0, [0])["rows"][0][3] == 5
    database = read_queue_database(open_directory(path), database_files(path))
    assert {"%LMQ%a", "%LMQ%b", "New"} == {topic for topic, _ in database.names}
    assert [folder.name for folder in (path / "consumequeue").iterdir() if folder.is_dir()] == ["New"]
    assert findings_in(copy_store(path, tmp_path / "copy")) == (set(), True)


def database_files(path: Path) -> tuple[Entry, ...]:
    return survey(open_directory(path)).files[FileKind.CONSUMEQUEUE_ROCKSDB]

"""What real brokers do with consume queues in RocksDB is what forecast, get and info say, for each damage."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.forecast.forecast import forecast_store
from rmqtool.formats.checkpoint import CHECKPOINT
from rmqtool.formats.rocksdb.queue import unit_key
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.broker.broker import Answer, OpenStore
from tests.broker.conftest import JudgeOf
from tests.broker.program import JudgeError
from tests.conftest import Unpacked
from tests.rocksdb_cases import BY_NAME, CASES, MAXIMUM, MINIMUM, NAME, QUEUE, Case, edit, numbers

pytestmark = pytest.mark.broker

CONFIG: Mapping[str, Any] = golden_stores.manifest(NAME).config
MESSAGES = 150
CHANGED_BY_A_START = ("MANIFEST cut", "rocksdb-behind")
"""A start puts units into these; `get` answers as before it."""


def store_at(path: Path) -> Store:
    sizes = Settings(commitlog_file_size=CONFIG["mappedFileSizeCommitLog"], index_slot_count=CONFIG["maxHashSlotNum"])
    return survey(open_directory(path), sizes)


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    "version", ["5.5.0", *(pytest.param(v, marks=pytest.mark.slow) for v in ("5.3.1", "5.3.3", "5.4.0", "5.5.1"))]
)
@pytest.mark.parametrize("case", [case for case in CASES if case.is_read], ids=lambda case: case.name)
def test_a_start_is_what_is_forecast(
    golden_copy: Unpacked, judge_of: JudgeOf, case: Case, version: str, *, crashed: bool
) -> None:
    path = golden_copy(NAME)
    case.apply(path)
    if crashed:
        (path / "abort").write_text("1", "utf-8")
    store = store_at(path)
    forecast = forecast_store(store, rules_for(version))
    # Before the broker changes anything: answers are those of a store as it lies there.
    is_same = case.loads and not crashed and case.name not in CHANGED_BY_A_START
    with open_reader(store, rules_for(version)) as reader:
        before = {name: queue_answers(reader, name) for name in reader.queues()} if is_same else {}
    with judge_of(version).open(path, CONFIG) as broker:
        assert forecast.starts == broker.opened["load"] == case.loads
        if not case.loads:
            return
        broker.read(brief=True)  # the first question about a queue may change its minimum
        answers = broker.read()["queues"]
    queues = {(queue["topic"], queue["queueId"]): queue for queue in answers if "error" not in queue}
    served = sum(row[1] == "FOUND" for queue in queues.values() for row in queue["messages"] if row[2] is not None)
    if case.name != "rocksdb-other-record":  # which message that is counts, not that one is given
        assert MESSAGES - forecast.lost.messages == served
    bounds = {(each.topic, each.queue_id): (each.min_queue_offset, each.max_queue_offset) for each in forecast.queues}
    expected = {name: (queue["min"], queue["max"]) for name, queue in queues.items() if queue["max"]}
    assert {name: bound for name, bound in bounds.items() if bound[1]} == expected
    assert before.keys() - queues.keys() <= {(QUEUE[0].decode(), QUEUE[1])}
    for name in before.keys() & queues.keys():
        assert before[name] == broker_answers(queues[name]), name


def queue_answers(reader: Reader, name: tuple[str, int]) -> dict[str, Any]:
    queue = reader.queue(*name)
    minimum, maximum = queue.min_queue_offset, queue.max_queue_offset
    messages = {}
    for queue_offset in range(minimum, maximum):
        try:
            result = reader.get_message(*name, queue_offset, 1)
            messages[queue_offset] = [message.physical_offset for message in result.messages]
        except UnreadableError:
            messages[queue_offset] = []
    return {"min": minimum, "max": maximum, "messages": messages}


def broker_answers(queue: Answer) -> dict[str, Any]:
    messages = {row[0]: [row[2]] if row[1] == "FOUND" else [] for row in queue["messages"]}
    return {"min": queue["min"], "max": queue["max"], "messages": messages}


@pytest.mark.parametrize("version", ["5.3.1", "5.5.0"])
def test_a_key_that_names_too_long_a_topic(golden_copy: Unpacked, judge_of: JudgeOf, version: str) -> None:
    path = golden_copy(NAME)
    edit(path, lambda _, ends: ends.put(b"x" * 50, b""))
    forecast = forecast_store(store_at(path), rules_for(version))
    report = judge_of(version).examine(path, CONFIG)
    assert forecast.starts == report["load"] == (version == "5.3.1")


@pytest.mark.parametrize("version", ["5.3.1", "5.5.0"])
def test_index_files_are_dropped_before_a_cut_row_ends_the_start(
    golden_copy: Unpacked, judge_of: JudgeOf, version: str
) -> None:
    path = golden_copy(NAME)
    BY_NAME["rocksdb-dispatched-cut"].apply(path)
    (path / "abort").write_text("1", "utf-8")
    with (path / "checkpoint").open("r+b") as checkpoint:
        checkpoint.seek(CHECKPOINT.position("index_timestamp_ms"))
        checkpoint.write(numbers(1))
    forecast = forecast_store(store_at(path), rules_for(version))
    report = judge_of(version).examine(path, CONFIG)
    dropped = {name for name in report["files"]["removed"] if name.startswith("index/")}
    assert dropped
    assert (forecast.starts, {*forecast.dropped_index_files}) == (report["load"], dropped)


@pytest.mark.parametrize("table", ["000010.sst", "000011.sst"], ids=["ends", "units"])
@pytest.mark.parametrize("version", ["5.3.1", "5.3.3", "5.4.0", "5.5.0", "5.5.1"])
def test_no_start_is_forecast_over_a_damaged_block(
    golden_copy: Unpacked, judge_of: JudgeOf, version: str, table: str
) -> None:
    """Over one of units a broker starts, without those; not over one of ends that has `CHECKPOINT_TOPIC`."""
    path = golden_copy(NAME)
    content = bytearray((path / "consumequeue" / table).read_bytes())
    content[20] ^= 1
    (path / "consumequeue" / table).write_bytes(content)
    with pytest.raises(UnsupportedError, match="Corruption"):
        forecast_store(store_at(path), rules_for(version))
    assert judge_of(version).examine(path, CONFIG)["load"] == (table == "000011.sst")


@pytest.mark.parametrize("version", ["5.3.1", "5.3.3", "5.5.0"])
def test_times_are_found_as_brokers_find_them(golden_copy: Unpacked, judge_of: JudgeOf, version: str) -> None:
    path = golden_copy(NAME)
    BY_NAME["rocksdb-units-missing"].apply(path)
    topic = QUEUE[0].decode()
    with open_reader(store_at(path), rules_for(version)) as reader:
        queue = reader.queue(topic, 0)
        with judge_of(version).open(path, CONFIG) as store:
            records = store.read()["records"]
            times = sorted({row[4] + step for row in records if row[1] == topic for step in (-1, 0, 1)})
            answers = store.offsets_by_time(topic, 0, [times[0] - 1000, *times, times[-1] + 1000])
        for asked in answers:
            for boundary in Boundary:
                assert queue.offset_by_time(reader.log, asked["time"], boundary) == asked[boundary.value], asked


@pytest.mark.parametrize("version", ["5.3.1", "5.5.0", pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_a_unit_that_leads_before_the_log_vanishes_in_a_compaction(
    golden_copy: Unpacked, judge_of: JudgeOf, version: str
) -> None:
    """A start over two tables of units begins a compaction, which removes such units; 5.5.0 fails next to the gap."""
    path = golden_copy(NAME)

    def change(units: Any, _ends: Any) -> None:
        for queue_offset, place in ((5, numbers(-1)), (6, b"")):
            key = unit_key(*QUEUE, queue_offset)
            units.put(key, place + units[key][len(place) :])
            units.flush()

    edit(path, change)
    forecast = forecast_store(store_at(path), rules_for(version))
    deadline = time.monotonic() + 60
    with judge_of(version).open(path, CONFIG) as broker:
        while (rows := _rows_of(broker))[5][3] is not None and time.monotonic() < deadline:
            time.sleep(0.1)
        served = sum(row[1] == "FOUND" for queue in broker.read(brief=True)["queues"] for row in queue["messages"])
    assert rows[5][3] is None
    assert (forecast.starts, MESSAGES - forecast.lost.messages) == (True, served)
    assert {at for at, row in rows.items() if row[1] != "FOUND"} == ({5} if version == "5.3.1" else {4, 5})


def _rows_of(broker: OpenStore) -> dict[int, list[Any]]:
    """What is served of `QUEUE`, by queue offset."""
    queues = {(queue["topic"], queue["queueId"]): queue for queue in broker.read(brief=True)["queues"]}
    return {row[0]: row for row in queues[QUEUE[0].decode(), QUEUE[1]]["messages"]}


LOG_ENDS = {
    "log gone": (0, lambda _units, _ends: None),
    "log ends in the middle": (75, lambda _units, _ends: None),
    "log ends before the first message of a queue": (2, lambda _units, _ends: None),
    "log ends, all units of a queue gone": (75, lambda units, _ends: _remove_queue(units)),
    "log ends, last unit of a queue cut": (75, lambda _units, ends: ends.put(MAXIMUM, bytes(7))),
    "log ends, first unit of a queue cut": (75, lambda _units, ends: ends.put(MINIMUM, bytes(7))),
    "log ends, a unit cut to its place": (75, lambda units, _ends: _cut(units, 8)),
    "log ends, a unit empty": (75, lambda units, _ends: _cut(units, 0)),
    "log ends and has expired, a unit cut to its place": (75, lambda units, _ends: _cut(units, 8)),
    "log ends and has expired, a unit empty": (75, lambda units, _ends: _cut(units, 0)),
    "log has expired, a unit cut to its place": (MESSAGES, lambda units, _ends: _cut(units, 8)),
    "log has expired, a unit empty": (MESSAGES, lambda units, _ends: _cut(units, 0)),
    "log ends, a unit longer": (75, lambda units, _ends: _cut(units, 29)),
    "last unit too high": (MESSAGES, lambda _units, ends: ends.put(MAXIMUM, numbers(500_000, 60))),
}
"""How many messages the log keeps, and what is changed in the database."""


@pytest.mark.parametrize(
    "version", ["5.3.1", "5.5.0", *(pytest.param(v, marks=pytest.mark.slow) for v in ("5.3.3", "5.4.0", "5.5.1"))]
)
@pytest.mark.parametrize("name", LOG_ENDS)
def test_ends_in_a_log_that_ends_early_are_what_is_forecast(
    golden_copy: Unpacked, judge_of: JudgeOf, name: str, version: str
) -> None:
    path = golden_copy(NAME)
    kept, change = LOG_ENDS[name]
    records = golden_stores.manifest(NAME).records
    edit(path, change)
    if kept < MESSAGES or name == "log gone":
        _end_log(path / "commitlog", records[kept].physical_offset if kept else None)
    if "expired" in name:
        min((path / "commitlog").iterdir()).unlink()
    topics = {record.topic: {"topicName": record.topic, "writeQueueNums": 8, "readQueueNums": 8} for record in records}
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    forecast = forecast_store(store_at(path), rules_for(version))
    names = {(record.topic, record.queue_id) for record in records}
    with judge_of(version).open(path, CONFIG, topics) as store:
        assert forecast.starts == store.serving
        if not store.serving:
            return
        served = {each: _ends_of(store, *each) for each in (*names, *names)}  # the first question may change them
    ends = {(each.topic, each.queue_id): (each.min_queue_offset, each.max_queue_offset) for each in forecast.queues}
    assert {each: ends.get(each, (0, 0)) for each in names} == served


def _ends_of(store: OpenStore, topic: str, queue_id: int) -> tuple[int, int]:
    try:
        answer = store.get(topic, queue_id, [])
    except JudgeError as trouble:
        if "IndexOutOfBounds" not in str(trouble):
            raise
        return 0, 0  # it throws on every question about the queue
    return answer["min"], answer["max"]


def _remove_queue(units: Any) -> None:
    for queue_offset in range(44):
        units.delete(unit_key(*QUEUE, queue_offset))


def _cut(units: Any, size: int) -> None:
    """Give other sizes to the units at which a search for the log's end looks first."""
    for queue_offset in (21, 22):
        key = unit_key(*QUEUE, queue_offset)
        units.put(key, units[key][:size].ljust(size, b"\0"))


def _end_log(directory: Path, end: int | None) -> None:
    """Zero the log from a physical offset on; without any message its files are gone."""
    for file in sorted(directory.iterdir()) if end is not None else ():
        start, size = int(file.name), file.stat().st_size
        if end <= start:
            file.unlink()
        elif end < start + size:
            file.write_bytes(file.read_bytes()[: end - start].ljust(size, b"\0"))

"""What real brokers do with consume queues in RocksDB is what forecast, get and info say, for each damage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.queues.unit import Boundary
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError
from rmqtool.forecast.forecast import forecast_store
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.view import open_directory
from tests import golden_stores
from tests.broker.broker import Answer
from tests.broker.conftest import JudgeOf
from tests.conftest import Unpacked
from tests.rocksdb_cases import CASES, NAME, QUEUE, Case, edit

pytestmark = pytest.mark.broker

CONFIG: Mapping[str, Any] = golden_stores.manifest(NAME).config
MESSAGES = 150
CHANGED_BY_A_START = ("MANIFEST cut", "dispatched less")
"""A start puts units into these; `get` answers as before it."""


def store_at(path: Path) -> Store:
    sizes = Settings(commitlog_file_size=CONFIG["mappedFileSizeCommitLog"], index_slot_count=CONFIG["maxHashSlotNum"])
    return survey(open_directory(path), sizes)


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    "version", ["5.5.0", *(pytest.param(v, marks=pytest.mark.slow) for v in ("5.3.1", "5.3.3", "5.4.0", "5.5.1"))]
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
    report = judge_of(version).examine(path, CONFIG)
    assert forecast.starts == report["load"] == case.loads
    if not case.loads:
        return
    queues = {(queue["topic"], queue["queueId"]): queue for queue in report["served"]["queues"] if "error" not in queue}
    served = sum(row[1] == "FOUND" for queue in queues.values() for row in queue["messages"] if row[2] is not None)
    if case.name != "unit of another record":  # which message that is counts, not that one is given
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


@pytest.mark.parametrize("version", ["5.3.1", "5.3.3", "5.5.0"])
def test_times_are_found_as_brokers_find_them(golden_copy: Unpacked, judge_of: JudgeOf, version: str) -> None:
    path = golden_copy(NAME)
    next(case for case in CASES if case.name == "middle units gone").apply(path)
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

"""Through queues messages are those that a walk over the log has, and little else is read.

A message that no unit names is found only where its neighbours in the queue show that one is missing: at the end of a
queue nothing does.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from struct import Struct
from typing import Any

import pytest

from benchmarks.stores import write_store
from rmqtool.errors import UsageError
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.table import parts, read_part, table_of
from rmqtool.pipeline.tables.through_queues import QueuesTask
from rmqtool.store.directory import Settings
from rmqtool.store.source import READS
from tests.conftest import Unpacked
from tests.golden_stores import broker_names, names

LOGS = [name for name in [*names(), *broker_names()] if not name.endswith("-dledger")]
WINDOW = 5 << 20
"""Bytes that are read after the last record, and of each queue."""
Rows = list[dict[str, Any]]


def rows_of(store: Path, **options: str) -> tuple[Rows, bool]:
    """The rows in the order of the log, and whether queues were used."""
    asked = {"path": str(store), **({} if "table" in options else {"profile": "properties"}), **options}
    table = table_of(SourceOptions.parse(asked))
    planned = parts(table)
    rows = [row for part in planned for batch in read_part(table, part) for row in batch.to_pylist()]
    rows.sort(key=lambda row: (row["physical_offset"] or 0, row["size"]))
    return rows, any(isinstance(part, QueuesTask) for part in planned)


def assert_same(store: Path, *, is_damaged: bool = False, **options: str) -> bool:
    """Messages are equal; what is wrong is told where it may hide one of them."""
    expected, _ = rows_of(store, **options)
    found, used_queues = rows_of(store, through="queues", **options)
    messages = [row for row in expected if row["type"] == "message"]
    asked = {name: options[name] for name in ("topics", "queue_ids") if name in options}
    units = rows_of(store, table="consumequeue", **asked)[0]
    named = {unit["physical_offset"] for unit in units if unit["type"] == "unit"}
    last = {(row["topic"], row["queue_id"]): row["queue_offset"] for row in messages if row["physical_offset"] in named}
    may_lack = [row for row in messages if row["queue_offset"] > last.get((row["topic"], row["queue_id"]), -1)]
    assert [row for row in found if row["type"] == "message" and row not in may_lack] == [
        row for row in messages if row not in may_lack
    ]
    assert is_damaged or not may_lack or not used_queues
    known = {(row["physical_offset"], row["finding"]) for row in expected}
    assert {(row["physical_offset"], row["finding"]) for row in found} <= known
    return used_queues


def topics_of(store: Path) -> list[str]:
    return sorted({row["topic"] for row in rows_of(store)[0] if row["topic"]})


@pytest.mark.parametrize("name", LOGS[::4])
def test_messages_are_those_of_the_log(golden: Unpacked, name: str) -> None:
    store, random = golden(name), Random(name)
    topics = [topic for topic in topics_of(store) if "," not in topic]
    for topic in random.sample(topics, min(2, len(topics))):
        assert_same(store, topics=topic, is_damaged="damage" in name or "missing" in name or "no-" in name)


DERIVED = [name for name in DAMAGES if name.startswith("queue-")]


@pytest.mark.parametrize("damage", DERIVED)
def test_where_units_and_log_disagree_the_log_is_read(golden_copy: Unpacked, damage: str) -> None:
    store = golden_copy("5.5.0-many-files")
    try:
        damage_store(DAMAGES[damage], store, 1, Settings())
    except UsageError as error:  # a damage that this store has nothing for
        pytest.skip(str(error))
    used = [assert_same(store, topics=topic, is_damaged=True) for topic in topics_of(store)]
    assert used


def test_times_offsets_and_queues_choose_too(golden: Unpacked) -> None:
    store = golden("5.5.0-many-files")
    topic = topics_of(store)[0]
    rows = [row for row in rows_of(store, topics=topic)[0] if row["type"] == "message"]
    middle = rows[len(rows) // 2]
    for options in (
        {"from_offset": str(middle["physical_offset"])},
        {"to_offset": str(middle["physical_offset"])},
        {"from_time_ms": str(middle["store_timestamp_ms"])},
        {"queue_ids": "0"},
    ):
        assert assert_same(store, topics=topic, **options)
    assert assert_same(store, queue_ids="1")
    assert not assert_same(store)
    assert not assert_same(store, topics=topic, stale="true")


def test_of_a_rare_topic_little_is_read(tmp_path: Path) -> None:
    """A hundredth of the messages of a store."""
    store = tmp_path / "store"
    write_store(store, 40_000, 1 << 10, 16 << 20)
    log_bytes = sum(path.stat().st_blocks * 512 for path in (store / "commitlog").iterdir())
    (store / "abort").unlink(missing_ok=True)
    read = READS.byte_count
    rows, used_queues = rows_of(store, topics="TopicTest0", queue_ids="0", columns="physical_offset,size,type,finding")
    whole = READS.byte_count - read
    read = READS.byte_count
    found, used_queues = rows_of(
        store, through="queues", topics="TopicTest0", queue_ids="0", columns="physical_offset,size,type,finding"
    )
    assert used_queues
    assert found == rows
    asked = sum(row["size"] for row in rows)
    assert whole > log_bytes * 0.9
    assert READS.byte_count - read < 1.5 * asked + WINDOW < log_bytes / 4


UNIT = Struct(">qiq")


def small_store(folder: Path) -> tuple[Path, Path]:
    """A store of two topics, and the first queue file of one."""
    store = folder / "store"
    write_store(store, 400, 200, 32 << 10, topic_count=2)
    (store / "abort").unlink(missing_ok=True)
    return store, next((store / "consumequeue/TopicTest0/0").iterdir())


@pytest.mark.parametrize(
    ("unit", "options"),
    [
        (lambda begin, size, code: (begin - (1 << 63), size, code), {}),
        (lambda begin, size, code: (begin | 1 << 50, size, code), {"to_offset": str(1 << 40)}),
        (lambda begin, size, code: (begin | 1 << 50, size, code), {}),
        (lambda _begin, _size, code: (5, 100, code), {"from_offset": "1000"}),
        (lambda begin, size, code: (begin, -size - (1 << 30), code), {}),
        (lambda *_: (0, 0x7FFFFFFF, 0), {}),
    ],
    ids=["negative", "far, with an end", "far", "expired", "negative size", "filler"],
)
def test_a_unit_that_lies_hides_no_message(tmp_path: Path, unit: Any, options: dict[str, str]) -> None:
    store, queue = small_store(tmp_path)
    raw = bytearray(queue.read_bytes())
    UNIT.pack_into(raw, 10 * UNIT.size, *unit(*UNIT.unpack_from(raw, 10 * UNIT.size)))
    queue.write_bytes(raw)
    asked = {"topics": "TopicTest0", "queue_ids": "0", **options}
    expected, found = rows_of(store, **asked)[0], rows_of(store, through="queues", **asked)[0]
    assert [row for row in found if row["type"] == "message"] == [row for row in expected if row["type"] == "message"]


def test_a_last_unit_that_lies_hides_nothing_behind_all_queues(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path)
    other = next((store / "consumequeue/TopicTest1/3").iterdir())
    raw = bytearray(other.read_bytes())
    at = len(raw.rstrip(b"\0")) // UNIT.size * UNIT.size
    begin, size, code = UNIT.unpack_from(raw, at)
    UNIT.pack_into(raw, at, begin | 1 << 50, size, code)
    other.write_bytes(raw)
    queue = next((store / "consumequeue/TopicTest0/0").iterdir())
    dispatched = bytearray(queue.read_bytes())
    dispatched[20 * UNIT.size :] = bytes(len(dispatched) - 20 * UNIT.size)
    queue.write_bytes(dispatched)
    table = table_of(SourceOptions.parse({"path": str(store), "topics": "TopicTest0", "through": "queues"}))
    tasks = [part for part in parts(table) if isinstance(part, QueuesTask)]
    assert {task.dispatched_end < 1 << 40 for task in tasks} == {True}


def test_what_is_dispatched_after_the_plan_is_read_once(tmp_path: Path) -> None:
    store, queue = small_store(tmp_path)
    whole = queue.read_bytes()
    asked = {"path": str(store), "topics": "TopicTest0", "through": "queues", "columns": "physical_offset,type"}
    files = [path for folder in ("TopicTest0", "TopicTest1") for path in (store / "consumequeue" / folder).rglob("0*")]
    contents = {path: path.read_bytes() for path in files if path.is_file()}
    for path, content in contents.items():
        path.write_bytes(content[: 10 * UNIT.size].ljust(len(content), b"\0"))
    table = table_of(SourceOptions.parse(asked))
    planned = parts(table)
    for path, content in contents.items():
        path.write_bytes(content)
    assert queue.read_bytes() == whole
    rows = [row for part in planned for batch in read_part(table, part) for row in batch.to_pylist()]
    places = [row["physical_offset"] for row in rows if row["type"] == "message"]
    assert len(places) == len(set(places)) == 200

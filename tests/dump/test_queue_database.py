"""`dump` of consume queues in RocksDB: every unit and end that real brokers wrote, filters, damage, and both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.rocksdb.queue import unit_key
from rmqtool.store.databases import rocksdb
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.dump.row_schema import validate_row
from tests.rocksdb_cases import BY_NAME, NAME, edit
from tests.store_state import assert_store_unchanged

QUEUES = ("--type", "consumequeue")
NO_QUEUE = (None, None)
JsonRow = dict[str, Any]


def dumped(path: Path, *options: str) -> tuple[Ran, list[JsonRow]]:
    """What ran and its rows, one of each kind as the schema says."""
    with assert_store_unchanged(path):
        ran = rmqtool("dump", path, "--format", "jsonl", *options)
    assert "internal error" not in ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    for row in {(row["type"], *row): row for row in rows}.values():
        validate_row(row)
    return ran, rows


def of_type(rows: list[JsonRow], kind: str) -> list[JsonRow]:
    return [row for row in rows if row["type"] == kind]


def units_by_the_log(path: Path) -> list[tuple[Any, ...]]:
    """Queue, queue offset, physical offset, size and store time of every message, in the order of queues."""
    ran = rmqtool("dump", path, "--format", "jsonl")
    messages = [json.loads(line) for line in ran.out.splitlines()]
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "size", "store_timestamp_ms")
    return sorted(tuple(row[name] for name in names) for row in messages if row["type"] == "message")


def test_units_and_ends_are_what_the_broker_wrote(golden: Unpacked) -> None:
    path = golden(NAME)
    ran, rows = dumped(path, *QUEUES)
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "record_size", "store_timestamp_ms")
    units = [tuple(row[name] for name in names) for row in of_type(rows, "unit")]
    assert (ran.code, len(units)) == (0, 150)
    assert units == units_by_the_log(path)
    last = {(topic, queue_id): (number, place) for topic, queue_id, number, place, *_ in units}
    ends = {(row["topic"], row["queue_id"]): (row["queue_offset"], row["physical_offset"]) for row in rows[150:-1]}
    assert {(row["type"], row["end"]) for row in rows[150:-1]} == {("queue-end", "max")}
    assert ends == last
    assert rows[-1] == {"type": "queue-checkpoint", "physical_offset": 129_221, "file": "consumequeue"}
    assert dumped(path / "consumequeue")[1] == rows


def test_a_database_that_a_killed_broker_left(golden: Unpacked) -> None:
    path = golden("5.5.0-rocksdb-cq-crashed")
    ran, rows = dumped(path, *QUEUES)
    answer = json.loads(rmqtool("info", path, "--format", "json").out)["consumequeue"]
    assert ran.code == 0
    assert {(row["topic"], row["queue_id"]) for row in of_type(rows, "unit")} == {
        (queue["topic"], queue["queue_id"]) for queue in answer["queues"] if queue["max_queue_offset"]
    }


def test_filters_are_those_of_queues_in_files(golden: Unpacked) -> None:
    path = golden(NAME)
    audit = ("--topic", "Aud*", "--queue-id", "0")
    _, rows = dumped(path, *QUEUES, *audit, "--from-offset", "42")
    assert [(row["type"], row["queue_offset"]) for row in rows] == [("unit", 42), ("unit", 43), ("queue-end", 43)]
    _, rows = dumped(path, *QUEUES, *audit, "--from-offset", "3", "--to-offset", "5")
    assert [(row["type"], row["queue_offset"]) for row in rows] == [("unit", 3), ("unit", 4)]
    _, rows = dumped(path, *QUEUES, "--reverse", "--limit", "2")
    assert [(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows] == [
        ("TopicTest", 2, 12),
        ("TopicTest", 2, 11),
    ]
    assert {row["topic"] for row in dumped(path, *QUEUES, "--topic", "Audit")[1]} == {"Audit"}
    assert dumped(path, *QUEUES, "--topic", "none")[1] == []
    assert rmqtool("dump", path, *QUEUES, "--key", "k").code == 2


def test_bytes_and_columns(golden: Unpacked) -> None:
    path = golden(NAME)
    _, rows = dumped(path, *QUEUES, "--hex")
    lengths = {row["type"]: sum(part["length"] for part in row["bytes"]) for row in rows}
    assert lengths == {"unit": 28, "queue-end": 16, "queue-checkpoint": 8}
    ran = rmqtool("dump", path, *QUEUES)
    assert ran.out.startswith("topic ")
    headings = [line.split() for line in ran.out.splitlines() if line.startswith("topic ")]
    assert [{"store_timestamp_ms", "end"} & {*heading} for heading in headings][1:] == [{"end"}]
    lines = rmqtool("dump", path, *QUEUES, "--format", "csv").out.splitlines()
    assert len(lines) == 1 + len(rows)


def test_without_the_library_one_line_says_so(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "LIBRARY", "no_such_library")
    ran, rows = dumped(golden(NAME), *QUEUES)
    assert (ran.code, rows) == (4, [])
    assert ran.err == "rmqtool: consumequeue: the consume queues are in RocksDB: install rmqtool[rocksdb] to read it\n"


def test_damage_is_shown(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    BY_NAME["rocksdb-minimum-high"].apply(path)
    BY_NAME["rocksdb-odd-rows"].apply(path)
    ran, rows = dumped(path, *QUEUES)
    assert (ran.code, len(of_type(rows, "unit"))) == (3, 150)
    assert [row["queue_offset"] for row in of_type(rows, "queue-end") if row["topic"] == "Audit"] == [20, 43]
    assert {row["finding"] for row in of_type(rows, "odd-row")} == {"rocksdb.odd-row"}
    assert "bad ranges: 3" in ran.err
    BY_NAME["rocksdb-one-table-missing"].apply(path)
    (path / "consumequeue" / "CURRENT").write_bytes(b"")
    ran, rows = dumped(path, *QUEUES)
    assert (ran.code, rows) == (4, [])
    assert ran.err.startswith("rmqtool: consumequeue: the consume queues are in RocksDB: ")


def test_a_file_of_a_database_alone_is_refused(golden: Unpacked) -> None:
    for options in ((), QUEUES):
        ran, rows = dumped(golden(NAME) / "consumequeue" / "CURRENT", *options)
        assert (ran.code, rows) == (4, [])
        assert "pass its directory" in ran.err


def test_of_both_sides_the_database_comes_first(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    _, in_files = dumped(path, *QUEUES)
    assert rmqtool("convert", path, "--queues", "both", "--yes").code == 0
    ran, rows = dumped(path, *QUEUES)
    units = of_type(rows, "unit")
    half = len(units) // 2
    assert ran.code == 0
    assert units[half:] == in_files
    assert {row["file"] for row in units[:half]} == {"consumequeue"}
    shared = ("topic", "queue_id", "queue_offset", "physical_offset", "record_size", "tags_code")
    sides = [[[row[name] for name in shared] for row in side] for side in (units[:half], in_files)]
    assert sides[0] == sides[1]
    assert dumped(path / "consumequeue")[1] == rows
    (path / "consumequeue_rocksdb").mkdir()
    for file in [file for file in (path / "consumequeue").iterdir() if file.is_file()]:
        file.rename(path / "consumequeue_rocksdb" / file.name)
    moved = [row | {"file": "consumequeue_rocksdb"} if "file" in row else row for row in rows]
    assert dumped(path, *QUEUES)[1] == moved
    assert dumped(path / "consumequeue_rocksdb")[1] == [row for row in moved if "file" in row]
    assert dumped(path / "consumequeue")[1] == in_files


@pytest.mark.parametrize(("name", "option"), [("5.5.0-transaction", "--transactions"), ("5.5.0-delay", "--pending")])
def test_messages_that_wait_are_listed_from_queues_in_rocksdb(golden_copy: Unpacked, name: str, option: str) -> None:
    path = golden_copy(name)
    places = sorted(row["physical_offset"] for row in dumped(path, option)[1])
    assert places
    assert rmqtool("convert", path, "--queues", "rocksdb", "--broker-version", "5.5.0", "--yes").code == 0
    assert sorted(row["physical_offset"] for row in dumped(path, option)[1]) == places


@pytest.mark.parametrize("version", ["5.3.1", "5.5.0"])
def test_messages_that_wait_after_a_missing_unit_are_not_passed_over_in_silence(
    golden_copy: Unpacked, version: str
) -> None:
    path, options = golden_copy("5.5.0-transaction"), ("--transactions", "--broker-version", version)
    assert rmqtool("convert", path, "--queues", "rocksdb", "--broker-version", "5.5.0", "--yes").code == 0
    edit(path, lambda units, _ends: units.delete(unit_key(b"RMQ_SYS_TRANS_HALF_TOPIC", 0, 3)))
    ran, _ = dumped(path, *options)
    assert ran.code != 0
    assert "no unit at queue offset 3" in ran.out + ran.err

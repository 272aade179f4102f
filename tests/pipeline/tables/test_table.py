"""The tables beside `messages` have the rows of `dump` and the findings of `verify`, of every golden store."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.table import parts, read_part, table_of, tasks
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.golden_stores import broker_names, names

JsonRow = dict[str, Any]
UNIT_NAMES = {"base_queue_offset": "queue_offset"}
QUEUE_COLUMNS = ("type", "topic", "queue_id", "queue_offset", "physical_offset", "record_size", "tags_code", "filler")
MORE_QUEUE_COLUMNS = ("extension_position", "store_timestamp_ms", "batch_size", "compacted_offset", "end", "finding")
ENTRY_COLUMNS = ("number", "slot", "key_hash", "physical_offset", "time_delta_seconds", "previous_entry")


def table_rows(store: Path, **options: str) -> list[JsonRow]:
    """All rows of a table, read in this process."""
    table = table_of(SourceOptions.parse({"path": str(store), **options}))
    return [row for part in parts(table) for batch in read_part(table, part) for row in batch.to_pylist()]


def dumped(store: Path, kind: str) -> list[JsonRow]:
    ran = rmqtool("dump", store, "--type", kind, "--format", "jsonl")
    return [json.loads(line) for line in ran.out.splitlines()]


def picked(rows: list[JsonRow], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    renamed = ({UNIT_NAMES.get(name, name): value for name, value in row.items()} for row in rows)
    return [tuple(row.get(name) for name in columns) for row in renamed]


@pytest.mark.parametrize("name", [*names(), *broker_names()])
def test_units_and_entries_are_those_of_dump(golden: Unpacked, name: str) -> None:
    path = golden(name)
    columns = (*QUEUE_COLUMNS, *MORE_QUEUE_COLUMNS)
    expected = picked([*dumped(path, "consumequeue"), *dumped(path, "batchconsumequeue")], columns)
    found = picked(table_rows(path, table="consumequeue"), columns)
    # Queues in the order of their numbers here, of their names there; each keeps its own.
    assert sorted(found, key=lambda row: row[:3]) == sorted(expected, key=lambda row: row[:3])
    entries = [row for row in dumped(path, "index") if row["type"] == "entry"]
    found = picked([row for row in table_rows(path, table="index") if row["type"] == "entry"], ENTRY_COLUMNS)
    assert found == picked(entries, ENTRY_COLUMNS)


def test_damaged_index_files_are_rows(golden: Unpacked) -> None:
    found = table_rows(golden("5.5.0-damage-index-short"), table="index")
    assert [row["finding"] for row in found if row["type"] == "bad"] == ["index.bad-header"]


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("5.5.0-damage")])
def test_findings_are_those_of_verify(golden: Unpacked, name: str) -> None:
    ran = rmqtool("verify", golden(name), "--format", "jsonl")
    expected = [row for row in map(json.loads, ran.out.splitlines()) if row.pop("type") == "finding"]
    found = table_rows(golden(name), table="findings")
    for rows in (expected, found):
        for row in rows:
            row.pop("repair")
            row.pop("store", None)
    assert found == expected


def test_wanted_topics_and_queues_leave_out_directories(golden: Unpacked) -> None:
    found = table_rows(golden("5.5.0-many-files"), table="consumequeue", topics="Au*", queue_ids="0")
    assert {(row["topic"], row["queue_id"]) for row in found} == {("Audit", 0)}


def grouped(paths: list[Path], **options: str) -> list[list[Any]]:
    """The parts that tasks read."""
    parsed = SourceOptions.parse({"paths": json.dumps([str(path) for path in paths]), **options})
    return tasks(lambda splitting: parts(table_of(replace(parsed, splitting=splitting))), parsed.splitting)


def test_small_files_are_read_by_one_task(golden: Unpacked) -> None:
    stores = [golden("5.5.0-clean-basic"), golden("5.5.0-many-files")]
    files = sum(len(list((store / "commitlog").iterdir())) for store in stores)
    assert [len(group) for group in grouped(stores, splits="1")] == [1] * files
    assert [len(group) for group in grouped(stores)] == [files]
    opened = grouped(stores, openCostInBytes="64m")
    assert [len(group) for group in opened] == [3] * (files // 3) + [files % 3] * (files % 3 > 0)
    many = grouped(stores, minPartitions="5", openCostInBytes="1")
    assert len(many) >= 5
    table = table_of(SourceOptions.parse({"paths": json.dumps([str(store) for store in stores])}))
    rows = [batch.num_rows for group in many for part in group for batch in read_part(table, part)]
    assert sum(rows) == sum(len(dumped(store, "commitlog")) for store in stores)


def test_holes_of_a_file_are_no_bytes_of_it(golden_copy: Unpacked) -> None:
    store = golden_copy("5.5.0-many-files")
    newest = max((store / "commitlog").iterdir())
    os.truncate(newest, 1 << 30)
    assert len(grouped([store], split_bytes="64m", openCostInBytes="1")) == 1


def test_a_path_without_a_store_and_other_tables_are_tasks_of_their_own(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("5.5.0-many-files")
    assert next(map(len, grouped([tmp_path, store]))) == 1
    assert all(len(group) == 1 for group in grouped([store], table="consumequeue"))

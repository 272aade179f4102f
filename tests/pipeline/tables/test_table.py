"""The tables beside `messages` have the rows of `dump` and the findings of `verify`, of every golden store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.table import parts, read_part, table_of
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

"""`dump` of a tiered store: each record and unit of its segments, and what is missing or damaged as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.store.config.tiered import METADATA
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.dump.row_schema import dumped
from tests.tiered_store import add_tiered

COUNT = 8
TIERED = ("--type", "tiered")


@pytest.fixture
def store(golden_copy: Unpacked) -> tuple[Path, list[str]]:
    path = golden_copy("5.5.0-clean-basic")
    return path, add_tiered(path, COUNT)


def test_records_and_units_belong_together(store: tuple[Path, list[str]]) -> None:
    code, rows = dumped(store[0], *TIERED)
    records = [row for row in rows if row["type"] == "tiered-record"]
    units = [row for row in rows if row["type"] == "tiered-unit"]
    assert (code, len(rows)) == (0, 2 * COUNT)
    assert [row["queue_offset"] for row in records] == list(range(COUNT))
    places = [(row["queue_offset"], row["physical_offset"]) for row in records]
    assert [(row["queue_offset"], row["physical_offset"]) for row in units] == places
    assert [row["record_size"] for row in units] == [row["size"] for row in records]
    assert dumped(store[0] / METADATA)[1] == rows
    assert dumped(store[0], *TIERED, "--topic", "tiered", "--queue-id", "0")[1] == rows
    assert dumped(store[0], *TIERED, "--topic", "orders")[1] == []
    assert dumped(store[0] / store[1][0])[1]  # a segment alone is told by its content


def test_damage_is_a_row(store: tuple[Path, list[str]]) -> None:
    path, (first, second, queue) = store
    (path / second).unlink()
    with (path / first).open("r+b") as file:
        file.seek(8)
        file.write(b"\1\2\3\4")
    with (path / queue).open("ab") as file:
        file.write(b"half a unit")
    code, rows = dumped(path, *TIERED)
    assert code == 3
    assert [(row["file"], row["finding"]) for row in rows if row["type"] == "bad"] == [
        (first, "tiered.bad-record"), (second, "tiered.missing-segment"), (queue, "tiered.short-segment"),
    ]  # fmt: skip
    (path / METADATA).write_text("{")
    ran = rmqtool("dump", path, *TIERED)
    assert (ran.code, ran.out) == (4, "")
    assert METADATA in ran.err

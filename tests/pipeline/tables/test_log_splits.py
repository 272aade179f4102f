"""The parts of a log, however it is cut, have the rows of `dump`: of every golden store, damaged ones included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rmqtool.errors import UnsupportedError
from rmqtool.pipeline.tables.log_splits import SEAM, Splitting, log_tasks
from rmqtool.pipeline.tables.schemas import message_schema
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.directory import Settings, Store, survey
from rmqtool.store.view import DirectoryView
from tests.conftest import Unpacked
from tests.golden_stores import broker_names, names
from tests.pipeline.stores import Rows, as_dumped, dump_rows, part_rows
from tests.scan.logs import log_bytes, numbered
from tests.scan.test_split_start import body_of_records

SPLITTINGS = [Splitting(1), Splitting(2, proof_bytes=4096), Splitting(7, proof_bytes=2048)]


def surveyed(path: Path) -> Store:
    return survey(DirectoryView(path), Settings())


def rows_of(store: Store, splitting: Splitting, wanted: RowFilter) -> Rows:
    return as_dumped(part_rows(log_tasks(store, [wanted], splitting), message_schema("properties"), [wanted]))


@pytest.mark.parametrize("name", [*names(), *broker_names()])
def test_parts_have_the_rows_of_dump(golden: Unpacked, name: str) -> None:
    path = golden(name)
    store = surveyed(path)
    if name.endswith("-dledger"):  # which only dump reads; no table of a part of it, or of nothing
        with pytest.raises(UnsupportedError, match="convert --from-dledger"):
            rows_of(store, SPLITTINGS[0], RowFilter())
        return
    expected = dump_rows(path, "--stale")
    for splitting in SPLITTINGS:
        assert rows_of(store, splitting, RowFilter()) == expected


LOGS = [name for name in [*names(), *broker_names()] if not name.endswith("-dledger")]


@pytest.mark.parametrize("name", sorted({*LOGS[::6], *(name for name in LOGS if "stale" in name or "hole" in name)}))
def test_a_range_has_the_rows_that_a_walk_over_its_files_has(golden: Unpacked, name: str) -> None:
    store, schema = surveyed(golden(name)), message_schema("properties")
    rows = part_rows(log_tasks(store, [RowFilter()], Splitting(1)), schema, [RowFilter(stale=False)])
    random, edges = Random(name), sorted({edge for row in rows for edge in ends_of(row)})
    for number in range(6 if edges else 0):
        low, high = sorted(random.choices(edges, k=2))
        begins_at_row = number % 2 == 0
        shift = 0 if begins_at_row else random.randrange(200)
        wanted = RowFilter(from_physical_offset=low + shift, to_physical_offset=high, stale=False)
        whole = part_rows(log_tasks(store, [RowFilter()], Splitting(1)), schema, [wanted])
        for splitting in SPLITTINGS:
            parts = log_tasks(store, [wanted], splitting, low if begins_at_row else None)
            assert part_rows(parts, schema, [wanted]) == whole, (low, shift, high)


def ends_of(row: dict[str, Any]) -> tuple[int, int]:
    return row["physical_offset"], row["physical_offset"] + row["size"]


def test_a_range_inside_a_body_made_of_records_is_read_from_before_it(tmp_path: Path) -> None:
    log = body_of_records(0)
    store, schema = two_files(tmp_path / "store", log.content), message_schema("properties")
    for low in range(0, len(log.content), 97):
        wanted = RowFilter(from_physical_offset=low, to_physical_offset=low + 300, stale=False)
        whole = part_rows(log_tasks(store, [RowFilter()], Splitting(1)), schema, [wanted])
        assert part_rows(log_tasks(store, [wanted], Splitting(1)), schema, [wanted]) == whole


@pytest.mark.parametrize("name", ["5.5.0-properties", "5.5.0-ipv6", "5.5.0-bodies", "4.9.7-damage-zero-hole"])
def test_the_compiled_reader_makes_the_same_rows(golden: Unpacked, name: str) -> None:
    store, schema = surveyed(golden(name)), message_schema("full")
    plain = log_tasks(store, [RowFilter()], Splitting(2, proof_bytes=4096))
    fast = [tuple(replace(split, compiled=True) for split in task) for task in plain]
    assert part_rows(fast, schema, [RowFilter()]) == part_rows(plain, schema, [RowFilter()])


def two_files(folder: Path, first: bytes) -> Store:
    """A store of a log in two files, of which the first is given."""
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / f"{0:020d}").write_bytes(first)
    second = log_bytes(numbered(3), physical_offset=len(first)).content
    (folder / "commitlog" / f"{len(first):020d}").write_bytes(second.ljust(len(first), b"\0"))
    return surveyed(folder)


def test_a_seam_that_does_not_join_is_a_finding(tmp_path: Path) -> None:
    store = two_files(tmp_path / "store", body_of_records(0).content)
    expected = dump_rows(tmp_path / "store")
    assert rows_of(store, Splitting(1), RowFilter()) == expected
    assert rows_of(store, Splitting(2), RowFilter()) == expected  # a look back as far as a message may be long
    assert SEAM in {row["finding"] for row in rows_of(store, Splitting(2, proof_bytes=400), RowFilter())}


@pytest.mark.parametrize(
    "options",
    [
        ["--topic", "Audit"],
        ["--topic", "*e*", "--queue-id", "1"],
        ["--from-offset", "70000", "--to-offset", "150000"],
        ["--from-time", "1795285225000"],
        ["--to-time", "1795285225000"],
    ],
)
@pytest.mark.parametrize("name", ["5.5.0-damage-flip-body-middle-file", "5.5.0-damage-log-middle-file-missing"])
def test_what_is_wanted_is_what_dump_filters(golden: Unpacked, name: str, options: list[str]) -> None:
    said = dict(zip(options[::2], options[1::2], strict=True))
    number = {flag: int(value) for flag, value in said.items() if value.isdecimal()}
    wanted = RowFilter(
        topics=(said["--topic"],) if "--topic" in said else None,
        queue_ids=frozenset({number["--queue-id"]}) if "--queue-id" in said else None,
        from_physical_offset=number.get("--from-offset"),
        to_physical_offset=number.get("--to-offset"),
        from_ms=number.get("--from-time"),
        to_ms=number.get("--to-time"),
        stale=False,
    )
    path = golden(name)
    assert rows_of(surveyed(path), Splitting(2), wanted) == dump_rows(path, *options)

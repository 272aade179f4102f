"""`dump`: filters, order, fields, forms of output, files of every kind, and following a log that grows."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.dump.follow import LogFollower
from rmqtool.dump.log import LogDump
from rmqtool.dump.request import Request
from rmqtool.dump.target import TargetOptions, find_target
from rmqtool.engine.rules.versions import NEWEST
from rmqtool.report.rows import MESSAGE_FIELDS, single_rows
from rmqtool.store.location import StoreLocation
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.dump.test_hostile import record

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "schema" / "dump.json").read_text("utf-8"))
STORE = "5.5.0-clean-basic"
BODIES = "5.5.0-bodies"


def rows_of(path: Path, *options: object) -> list[dict[str, Any]]:
    ran = rmqtool("dump", path, "--format", "jsonl", *options)
    assert ran.code in (0, 3), ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def messages_of(path: Path, *options: object) -> list[dict[str, Any]]:
    return [row for row in rows_of(path, *options) if row["type"] == "message"]


@pytest.fixture
def everything(golden: Unpacked) -> list[dict[str, Any]]:
    return messages_of(golden(STORE))


def test_filters_keep_what_the_whole_dump_shows(golden: Unpacked, everything: list[dict[str, Any]]) -> None:
    store = golden(STORE)
    some = everything[len(everything) // 2]
    stored = some["store_timestamp_ms"]
    keyed = next(row for row in everything if row["keys"])
    unique = next(row for row in everything if row["unique_key"])
    cases: list[tuple[list[object], list[dict[str, Any]]]] = [
        (["--topic", some["topic"]], [row for row in everything if row["topic"] == some["topic"]]),
        (["--topic", "A*", "--topic", "Topic?est"], [r for r in everything if r["topic"] in ("Audit", "TopicTest")]),
        (["--queue-id", 1], [row for row in everything if row["queue_id"] == 1]),
        (
            ["--from-offset", some["physical_offset"], "--to-offset", some["physical_offset"] + 1],
            [some],
        ),
        (["--from-time", stored], [row for row in everything if row["store_timestamp_ms"] >= stored]),
        (["--to-time", stored], [row for row in everything if row["store_timestamp_ms"] < stored]),
        (["--key", keyed["keys"][0]], [row for row in everything if keyed["keys"][0] in row["keys"]]),
        (["--key", unique["unique_key"]], [r for r in everything if r["unique_key"] == unique["unique_key"]]),
        (["--tag", "TagA"], [row for row in everything if row["tags"] == "TagA"]),
        (["--message-id", some["message_id"].lower()], [some]),
        (["--message-id", unique["unique_key"]], [r for r in everything if r["unique_key"] == unique["unique_key"]]),
        (["--topic", "none"], []),
    ]
    for options, wanted in cases:
        assert messages_of(store, *options) == wanted, options
        assert messages_of(store, *options, "--reverse") == wanted[::-1], options
        assert wanted or "none" in options
    assert messages_of(store, "--from-time", "2026-11-21") == everything


def test_both_readers_filter_alike(golden: Unpacked, everything: list[dict[str, Any]]) -> None:
    target = find_target(StoreLocation(golden(STORE)), TargetOptions())
    some = everything[70]
    for options in (
        {},
        {"reverse": True},
        {"topics": ("Or*",), "tag": "TagA"},
        {"queue_id": 0, "from_ms": some["store_timestamp_ms"], "reverse": True},
        {"to_offset": some["physical_offset"], "key": "none"},
    ):
        ask = Request(**options, broker_version=NEWEST)
        rows = [list(single_rows(LogDump(target, ask, compiled=compiled).rows())) for compiled in (False, True)]
        assert rows[0] == rows[1]
        assert bool(rows[0]) == ("key" not in options)


def test_reverse_and_limit_give_the_end_first(golden: Unpacked) -> None:
    rows = rows_of(golden(STORE))
    assert rows_of(golden(STORE), "--reverse") == rows[::-1]
    assert rows_of(golden(STORE), "--reverse", "--limit", 3) == rows[:-4:-1]
    assert rows_of(golden(STORE), "--limit", 3) == rows[:3]
    assert {row["type"] for row in rows} == {"message", "blank"}


def test_a_store_its_log_directory_and_its_files_give_the_same_rows(golden: Unpacked) -> None:
    store = golden(STORE)
    rows = rows_of(store)
    assert rows_of(store / "commitlog") == rows
    files = sorted((store / "commitlog").iterdir())
    assert list(itertools.chain.from_iterable(rows_of(path) for path in files)) == rows


def test_a_file_under_another_name_is_told_by_its_content(golden: Unpacked, tmp_path: Path) -> None:
    store = golden(STORE)
    logs = sorted((store / "commitlog").iterdir())
    queue = next((store / "consumequeue").glob("*/*/*"))
    index = next((store / "index").iterdir())
    for source, kind in (
        (logs[1], "message"),
        (queue, "unit"),
        (index, "header"),
        (store / "checkpoint", "checkpoint"),
    ):
        copy = tmp_path / f"copy-{kind}"
        copy.write_bytes(source.read_bytes())
        found = rows_of(copy)
        assert found[0]["type"] == kind
        if kind in ("message", "header"):
            expected = [
                row | {"file": copy.name} if kind == "header" and "file" in row else row for row in rows_of(source)
            ]
            assert found == expected


def test_every_row_of_every_kind_fits_the_schema(golden: Unpacked) -> None:
    seen = set()
    kinds = {
        STORE: ["commitlog", "consumequeue", "index", "checkpoint"],
        BODIES: ["commitlog"],
        "5.5.0-cq-ext": ["consumequeue", "consumequeue_ext"],
        "broker-5.5.0-batchcq": ["batchconsumequeue", "config"],
        "5.5.0-crashed": ["commitlog", "abort"],
    }
    for name, wanted in kinds.items():
        for kind in wanted:
            for options in ([], ["--hex"]) if kind != "commitlog" else ([], ["--hex", "--raw", "--body", "text"]):
                rows = rows_of(golden(name), "--type", kind, *options)
                assert rows, (name, kind)
                for row in rows:
                    assert schema_errors(row, SCHEMA) == []
                    seen.add(row["type"])
    assert seen >= {"message", "blank", "unit", "extension-unit", "batch-unit", "header", "slot", "entry"}
    assert seen >= {"checkpoint", "abort", "config"}


def test_the_schema_check_finds_what_does_not_fit(golden: Unpacked) -> None:
    row = rows_of(golden(STORE), "--limit", 1)[0]
    for wrong in (
        {**row, "size": "1"},
        {**row, "extra": 1},
        {**row, "type": "other"},
        {k: row[k] for k in row if k != "flag"},
    ):
        assert schema_errors(wrong, SCHEMA)


def test_hex_accounts_for_every_byte_of_a_record(golden: Unpacked) -> None:
    raw = (golden(BODIES) / "commitlog" / "00000000000000000000").read_bytes()
    for row in rows_of(golden(BODIES), "--hex", "--body-limit", 1 << 20):
        if row["type"] != "message":
            continue
        joined = b"".join(bytes.fromhex(part["hex"]) for part in row["bytes"])
        start = row["physical_offset"]
        assert sum(part["length"] for part in row["bytes"]) == row["size"]
        if all(part["length"] * 2 == len(part["hex"]) for part in row["bytes"]):
            assert joined == raw[start : start + row["size"]]
        assert [part["position"] for part in row["bytes"]] == [
            0,
            *itertools.accumulate(part["length"] for part in row["bytes"][:-1]),
        ]


def test_units_point_at_the_records_of_their_queue(golden: Unpacked, everything: list[dict[str, Any]]) -> None:
    places = {(row["topic"], row["queue_id"], row["queue_offset"]): row for row in everything}
    units = [row for row in rows_of(golden(STORE), "--type", "consumequeue") if not row["filler"]]
    assert len(units) == len(everything)
    for unit in units:
        message = places[unit["topic"], unit["queue_id"], unit["queue_offset"]]
        assert (unit["physical_offset"], unit["record_size"]) == (message["physical_offset"], message["size"])
    some = ["--type", "consumequeue", "--topic", "Audit", "--queue-id", 0, "--from-offset", 5, "--to-offset", 35]
    found = rows_of(golden(STORE), *some)
    assert [row["queue_offset"] for row in found] == list(range(5, 35))
    assert rows_of(golden(STORE), *some, "--reverse") == found[::-1]


def test_index_entries_name_their_slot_and_chains_begin_in_slots(golden: Unpacked) -> None:
    path = min((golden(STORE) / "index").iterdir())
    header, *rest = rows_of(path)
    slots = {row["slot"]: row["newest_entry"] for row in rest if row["type"] == "slot"}
    entries = {row["number"]: row for row in rest if row["type"] == "entry"}
    assert len(entries) == header["next_entry_number"] - 1
    assert all(entries[number]["slot"] == slot for slot, number in slots.items())
    reached = set()
    for number in slots.values():
        while number:
            reached.add(number)
            number = entries[number]["previous_entry"]  # noqa: PLW2901
    assert reached == set(entries)


def test_forms_of_output_agree(golden: Unpacked) -> None:
    store = golden(BODIES)
    rows = rows_of(store, "--body", "text")
    whole = json.loads(rmqtool("dump", store, "--format", "json", "--body", "text").out)
    assert whole == rows
    table = list(csv.DictReader(io.StringIO(rmqtool("dump", store, "--format", "csv", "--body", "text").out)))
    assert [int(line["physical_offset"]) for line in table] == [row["physical_offset"] for row in rows]
    assert list(table[0])[: len(MESSAGE_FIELDS)] == list(MESSAGE_FIELDS)
    assert json.loads(rmqtool("dump", store, "--format", "json", "--topic", "none").out) == []
    chosen = rows_of(store, "--fields", "topic, size")
    assert chosen == [{"topic": row.get("topic"), "size": row["size"]} for row in rows]
    assert all("topic" in row for row in rows_of(golden(STORE), "--fields", "topic"))  # a blank has none


def test_bodies_are_decompressed_unless_raw(golden: Unpacked) -> None:
    rows = {row["tags"]: row for row in messages_of(golden(BODIES), "--body", "hex")}
    assert rows["zlib"]["body"] == rows["lz4"]["body"] == rows["zstd"]["body"]
    assert len(rows["zlib"]["body"]) == 6000
    assert rows["lie"]["body"] is None
    assert "zlib" in rows["lie"]["body_error"]
    raw = {row["tags"]: row for row in messages_of(golden(BODIES), "--body", "hex", "--raw")}
    assert raw["zlib"]["body"].startswith("78")
    assert all(len(row["body"]) == 2 * row["body_length"] for row in raw.values())
    assert raw["zlib"]["properties_raw"].startswith("TAGS\x01zlib")
    assert {row["body"] for row in messages_of(golden(BODIES), "--body", "redacted", "--tag", "lie")} == {
        f"{raw['lie']['body_length']} bytes"
    }


@pytest.mark.parametrize(
    "options",
    [
        ["--type", "index", "--topic", "a"],
        ["--type", "consumequeue", "--key", "a"],
        ["--type", "checkpoint", "--reverse"],
        ["--fields", "nothing"],
        ["--fields", ","],
        ["--follow", "--reverse"],
        ["--follow", "--format", "json"],
        ["--hex", "--format", "csv"],
        ["--from-time", "tomorrow"],
        ["--limit", "0"],
        ["--broker-version", "3"],
    ],
    ids=" ".join,
)
def test_options_that_make_no_sense_are_usage_errors(golden: Unpacked, options: list[str]) -> None:
    ran = rmqtool("dump", golden(STORE), *options)
    assert ran.code == 2
    assert ran.out == ""


def test_stale_records_are_rows_only_on_request(tmp_path: Path) -> None:
    first = record(b"new")
    late = bytearray(record(b"new", at=len(first)))
    late[56:64] = (1_800_000_000_000).to_bytes(8, "big")
    hole = bytes(60)
    old = record(b"old", at=len(first) + len(late) + len(hole))
    path = tmp_path / "commitlog" / ("0" * 20)
    path.parent.mkdir()
    path.write_bytes(first + late + hole + old + bytes(50))
    assert [row["type"] for row in rows_of(tmp_path)] == ["message", "message"]
    rows = rows_of(tmp_path, "--stale")
    assert [row["type"] for row in rows] == ["message", "message", "bad", "stale"]  # what lies between is no record
    assert {row["finding"] for row in rows[2:]} == {"commitlog.stale-tail"}
    assert rows_of(tmp_path, "--stale", "--reverse") == rows[::-1]


def test_a_missing_file_of_the_log_is_a_bad_range(golden_copy: Unpacked) -> None:
    store = golden_copy(STORE)
    files = sorted((store / "commitlog").iterdir())
    assert len(files) > 2
    files[1].unlink()
    rows = [row for row in rows_of(store) if row["type"] == "bad"]
    assert [(row["physical_offset"], row["size"], row["finding"]) for row in rows] == [
        (int(files[1].name), 65536, "commitlog.missing-file")
    ]


def test_following_gives_each_record_once_and_waits_for_the_end_of_one(tmp_path: Path) -> None:
    path = tmp_path / "commitlog" / ("0" * 20)
    path.parent.mkdir()
    first = record(b"one")
    second = record(b"two", at=len(first))
    path.write_bytes(first + bytes(1000))
    target = find_target(StoreLocation(tmp_path), TargetOptions())
    follower = LogFollower(target, Request(follow=True, broker_version=NEWEST), poll_seconds=0)
    rows = follower.rows()

    def new() -> list[int]:
        return [row["physical_offset"] for row in single_rows(iter(rows.__next__, None))]

    def write(at: int, content: bytes, into: Path = path) -> None:
        with into.open("r+b") as file:
            file.seek(at)
            file.write(content)

    assert new() == [0]
    assert new() == []
    write(len(first), second[:50])
    assert new() == []
    write(len(first), second)
    assert new() == [len(first)]
    end = len(first) + len(second)
    size = path.stat().st_size
    write(end, (size - end).to_bytes(4, "big") + b"\xcb\xd4\x31\x94")
    assert new() == [end]
    following = path.parent / f"{size:020d}"
    following.write_bytes(bytes(size))
    assert new() == []
    write(0, record(b"three", at=size), following)
    assert new() == [size]
    assert new() == []


def test_a_terabyte_of_sparse_files_costs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for number in range(50):
        with (folder / f"{number << 30:020d}").open("wb") as file:
            file.write(record(at=number << 30) if number < 48 else b"")
            os.truncate(file.fileno(), 1 << 30)
    rows = rows_of(tmp_path, "--limit", 1)
    assert [row["physical_offset"] for row in rows] == [0]
    rows = rows_of(tmp_path, "--limit", 1, "--reverse")
    assert [row["physical_offset"] for row in rows] == [47 << 30]


def test_files_outside_of_the_range_are_not_read(golden_copy: Unpacked) -> None:
    store = golden_copy(STORE)
    files = sorted((store / "commitlog").iterdir())
    whole = [row for row in rows_of(store) if row["physical_offset"] < 131072]
    (files[0]).write_bytes(b"\xff" * 65536)
    part = ["--from-offset", 65536, "--to-offset", 131072]
    assert rows_of(store, *part) == [row for row in whole if row["physical_offset"] >= 65536]
    assert rmqtool("dump", store, *part).code == 0
    assert rmqtool("dump", store, *part, "--reverse").code == 0
    assert rmqtool("dump", store).code == 3


def test_csv_of_every_command_holds_no_formula(tmp_path: Path) -> None:
    store, formula = tmp_path / "store", "=HYPERLINK(1)"
    put = ("append", store, "--create", "--topic", "T", "--queue-id", "0", "--body", formula, "--tags", formula)
    assert rmqtool(*put).code == 0
    place = ("--topic", "T", "--queue-id", "0", "--queue-offset", "0")
    for command in (("dump", store), ("get", store, *place)):
        for form, cell in (("csv", f"'{formula}"), ("csv-raw", formula)):
            ran = rmqtool(*command, "--body", "text", "--format", form)
            (row,) = csv.DictReader(io.StringIO(ran.out))
            assert (row["tags"], row["body"], row["flag"]) == (cell, cell, "0")
    (row,) = map(json.loads, rmqtool("dump", store, "--body", "text", "--format", "jsonl").out.splitlines())
    assert (row["tags"], row["body"]) == (formula, formula)

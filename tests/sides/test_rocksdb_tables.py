"""`rocksdbstore/`: a whole one has no finding, each damage has its own, and nothing unread passes for checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqtool.engine.reading.message_places import search_log
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.rocksdb.store import HOUR_MS, LAST_OFFSET, index_texts
from rmqtool.scan.row_filter import RowFilter
from rmqtool.store.databases import rocksdb
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.run import verify_store
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.rocksdb_cases import numbers, write_rows
from tests.store_state import assert_store_unchanged

NAME = "5.5.0-keys-index"
RULES = rules_for("5.5.0")
Rows = dict[bytes, bytes]


def index_rows(path: Path) -> Rows:
    """What a broker with `indexRocksDBEnable` writes; that it does is shown in tests/broker/test_rocksdb_store.py."""
    rows: Rows = {}
    with open_reader(survey(open_directory(path)), RULES) as reader:
        for message in search_log(reader, RowFilter()):
            record = message.record
            assert record is not None
            if record.unique_key is None or record.transaction == "rollback":
                continue
            time = record.store_timestamp_ms
            keys, tag = tuple(key.encode() for key in record.keys), (record.tags or "").encode()
            for text in index_texts(record.topic.encode(), keys, tag, record.unique_key.encode()):
                rows[numbers(time - time % HOUR_MS) + text + numbers(message.physical_offset)] = numbers(time)
            rows[LAST_OFFSET] = numbers(message.physical_offset)
    return rows


def written(path: Path, index: Rows, **tables: Mapping[bytes, bytes]) -> Path:
    shutil.rmtree(path / "rocksdbstore", ignore_errors=True)
    write_rows(path / "rocksdbstore", {"default": index, "timer": {}, "trans": {}, **tables})
    return path


def findings_of(path: Path) -> set[str]:
    ids: list[str] = []
    with assert_store_unchanged(path):
        verify_store(survey(open_directory(path)), RULES, None, lambda each: ids.append(each.id))
    return {kind for kind in ids if kind.startswith("rocksdbstore.")}


def sizes(path: Path) -> tuple[int, int, bytes]:
    """Offset, size and unique key of a message."""
    with open_reader(survey(open_directory(path)), RULES) as reader:
        for message in search_log(reader, RowFilter()):
            if message.record is not None and message.record.unique_key is not None:
                return message.physical_offset, message.record.size, message.record.unique_key.encode()
    raise AssertionError("a message with a unique key is there")


def test_each_damage_has_its_finding(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    rows = index_rows(path)
    keys = sorted(key for key in rows if key != LAST_OFFSET)
    by_offset = sorted(keys, key=lambda key: key[-8:])
    middle = by_offset[len(by_offset) // 2]
    last = by_offset[-1][-8:]
    between = numbers(int.from_bytes(last) + 1)
    earlier = next(key[-8:] for key in reversed(by_offset) if key[-8:] < middle[-8:])
    cases = {
        "whole": (rows, set()),
        "row gone": ({key: rows[key] for key in rows if key != middle}, {"missing-row"}),
        "another time": (rows | {middle: numbers(1)}, {"missing-row", "wrong-row"}),
        "row that leads nowhere": (rows | {middle[:-8] + between: rows[middle]}, {"wrong-row"}),
        "row of no key": (rows | {middle[:8] + b"@T@K@none@none@" + middle[-8:]: rows[middle]}, {"wrong-row"}),
        "row after the log": (rows | {middle[:-8] + numbers(1 << 40): rows[middle]}, {"ahead-of-log"}),
        "end after the log": (rows | {LAST_OFFSET: numbers(1 << 40)}, {"ahead-of-log"}),
        "less indexed": (
            {key: rows[key] for key in keys if key[-8:] <= earlier} | {LAST_OFFSET: earlier},
            {"behind-log"},
        ),
        "odd row": (rows | {b"x": b"y"}, {"odd-row"}),
    }  # fmt: skip
    for name, (index, expected) in cases.items():
        assert findings_of(written(path, index)) == {f"rocksdbstore.{kind}" for kind in expected}, name


def test_timers_and_transactions_lead_to_their_messages(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    place, size, unique_key = sizes(path)
    due = 1_800_000_000_000
    timer = {numbers(due) + unique_key: size.to_bytes(4) + numbers(place)}
    transaction = {numbers(place) + b"@Orders@" + unique_key: bytes(4) + size.to_bytes(4)}
    assert findings_of(written(path, {}, timer=timer, trans=transaction)) == set()
    for timer_rows, transaction_rows in (
        ({numbers(due) + b"another": size.to_bytes(4) + numbers(place)}, {}),
        ({numbers(due) + unique_key: (size + 1).to_bytes(4) + numbers(place)}, {}),
        ({}, {numbers(place + 1) + b"@Orders@" + unique_key: bytes(4) + size.to_bytes(4)}),
        ({}, {numbers(1 << 40) + b"@Orders@" + unique_key: bytes(4) + size.to_bytes(4)}),
    ):
        written(path, {}, timer=timer_rows, trans=transaction_rows)
        assert findings_of(path) == {"rocksdbstore.wrong-row"}


def test_what_cannot_be_read_is_named(golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(golden_copy(NAME), {LAST_OFFSET: numbers(0)})
    with monkeypatch.context() as without:
        without.setattr(rocksdb, "LIBRARY", "no_such_library")
        summary = verify_store(survey(open_directory(path)), RULES)
        assert [(files.path, summary.complete) for files in summary.not_looked_at] == [("rocksdbstore", False)]
    partly = json.loads(rmqtool("verify", path, "--depth", "records", "--format", "json").out)["summary"]
    assert "rocksdbstore" in {each["path"] for each in partly["not_looked_at"]}
    for table in (path / "rocksdbstore").glob("*.sst"):
        table.write_bytes(bytes(range(100)))
    assert findings_of(path) == {"rocksdbstore.not-loadable"}


def test_an_empty_one_is_not_in_use(golden_copy: Unpacked) -> None:
    path = written(golden_copy(NAME), {})
    summary = verify_store(survey(open_directory(path)), RULES)
    assert summary.complete
    assert not any(entry.name.endswith(".sst") for entry in (path / "rocksdbstore").iterdir())


@pytest.mark.parametrize("name", ["rocksdbstore", "kvStore"])
def test_an_empty_one_has_to_open(golden_copy: Unpacked, name: str) -> None:
    """A broker makes a new one where CURRENT is gone, and fails where it names no manifest."""
    path = golden_copy(NAME)
    write_rows(path / name, {"default": {}})
    kind = {"rocksdbstore": "rocksdbstore.not-loadable", "kvStore": "pop.not-loadable"}[name]
    current = path / name / "CURRENT"
    named = current.read_text()
    for text, expected in ((named, set()), ("", {kind}), (named.strip(), {kind}), ("MANIFEST-000099\n", {kind})):
        current.write_text(text)
        answer = json.loads(rmqtool("verify", path, "--format", "json").out)
        assert {row["id"] for row in answer["findings"] if row["id"] == kind} == expected, text
        assert (name in {row["path"] for row in answer["summary"]["not_looked_at"]}) == bool(expected)
        forecast = json.loads(rmqtool("forecast", path, "--format", "json", "--broker-version", "5.5.0").out)
        assert (name in {row["path"] for row in forecast["not_looked_at"]}) == bool(expected)
    current.unlink()
    assert rmqtool("verify", path).code == 0


def test_rows_are_dumped(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    place, size, unique_key = sizes(path)
    rows = index_rows(path)
    timer = {numbers(7) + unique_key: size.to_bytes(4) + numbers(place), b"timeline_checkpoint": numbers(5)}
    transaction = {numbers(place) + b"@Orders@" + unique_key: bytes(4) + size.to_bytes(4)}
    written(path, rows, timer=timer, trans=transaction)
    for target in ([path, "--type", "rocksdbstore"], [path / "rocksdbstore"]):
        ran = rmqtool("dump", *target, "--format", "jsonl")
        dumped = [json.loads(line) for line in ran.out.splitlines()]
        assert ran.code == 0
        assert sum(row["type"] == "index-row" for row in dumped) == len(rows) - 1
        marks = {(row["table"], row["name"]): row["value"] for row in dumped if row["type"] == "mark"}
        assert marks == {
            ("default", "lastOffsetPy"): int.from_bytes(rows[LAST_OFFSET]),
            ("timer", "timeline_checkpoint"): 5,
        }
        (due,) = [row for row in dumped if row["type"] == "timer-row"]
        assert (due["due_timestamp_ms"], due["physical_offset"], due["unique_key"]) == (7, place, unique_key.decode())
        (half,) = [row for row in dumped if row["type"] == "transaction-row"]
        assert (half["topic"], half["transaction_id"], half["check_count"]) == ("Orders", unique_key.decode(), 0)
    assert rmqtool("dump", path / "rocksdbstore" / "CURRENT").code == 4

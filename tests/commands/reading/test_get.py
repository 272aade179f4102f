"""`get` gives each answer as the broker gave it, by the rules of the version that read the store."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.store.source import FileSource
from tests import golden_stores
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.golden_effects import load_effects
from tests.store_state import assert_store_unchanged

# One store of each kind and version here; every store is compared below the command line, in tests/engine.
NAMES = [
    name
    for name in golden_stores.names()
    if not golden_stores.manifest(name).damage or name.startswith("5.5.0-damage-cq-entry")
]
STORE = "5.5.0-crashed"
SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schema"
SCHEMA = json.loads((SCHEMAS / "get.json").read_text("utf-8"))
ROW_SCHEMA = json.loads((SCHEMAS / "dump.json").read_text("utf-8"))
QUEUE = ("--topic", "TopicTest", "--queue-id", "0")


def get(path: Path, *options: object) -> dict[str, Any]:
    """The JSON of an answer; the exit code says whether a message was found, and whether it is damaged."""
    ran = rmqtool("get", path, *options, "--format", "json")
    assert ran.out, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    is_damaged = any(row.get("finding") is not None for row in found["messages"])
    missed = 4 if found["not_looked_at"] else 6
    assert ran.code == (missed if found["status"] != "FOUND" else 3 if is_damaged else 0), ran.err
    assert schema_errors(found, SCHEMA) == []
    for row in found["messages"]:
        assert schema_errors({name: row[name] for name in row if name != "carries_key"}, ROW_SCHEMA) == []
    return found


@pytest.mark.parametrize("name", NAMES)
def test_edges_are_answered_as_by_the_broker(golden: Unpacked, name: str) -> None:
    path = golden(name)
    for version, read in golden_stores.manifest(name).reads.items():
        if read.served is None or load_effects(name, version, path):
            continue
        for queue in [queue for queue in read.served.queues if queue.known][:2]:
            if not (path / "consumequeue" / queue.topic / str(queue.queue_id)).is_dir():
                continue
            for queue_offset, status, next_offset, count, places in queue.edges.values():
                where = ("--topic", queue.topic, "--queue-id", queue.queue_id, "--queue-offset", queue_offset)
                answer = get(path, *where, "--broker-version", version)
                assert (answer["status"], answer["next_begin_offset"]) == (status, next_offset), (version, where)
                assert (answer["min_offset"], answer["max_offset"]) == (queue.min, queue.max)
                assert [row["physical_offset"] for row in answer["messages"]] == places
                assert len(places) == count


def test_a_message_row_is_the_record(golden: Unpacked) -> None:
    records = [
        record
        for record in golden_stores.manifest(STORE).records
        if (record.topic, record.queue_id) == ("TopicTest", 0)
    ]
    for record in records[:10]:
        (row,) = get(golden(STORE), *QUEUE, "--queue-offset", record.queue_offset)["messages"]
        assert row["physical_offset"] == record.at
        assert row["size"] == record.size
        assert row["properties"] == record.properties
        assert row["message_id"] == record.msg_id
        assert row["store_timestamp_ms"] == record.store_timestamp_ms
        assert (row["body_length"], row["body_crc_ok"], row["finding"]) == (record.body_length, True, None)


def test_each_way_leads_to_the_same_message(golden: Unpacked) -> None:
    path = golden(STORE)
    (row,) = get(path, *QUEUE, "--queue-offset", 5)["messages"]
    (by_id,) = get(path, "--message-id", row["message_id"])["messages"]
    assert by_id == row
    (by_unique_key,) = get(path, "--topic", row["topic"], "--message-id", row["unique_key"])["messages"]
    assert by_unique_key == {**row, "carries_key": True}
    by_time = get(path, *QUEUE, "--time", row["store_timestamp_ms"])
    assert by_time["queue_offset"] <= 5
    assert by_time["messages"][0]["store_timestamp_ms"] == row["store_timestamp_ms"]


def test_keys_are_found_within_their_times(golden: Unpacked) -> None:
    path = golden(STORE)
    record = next(
        record
        for record in golden_stores.manifest(STORE).records
        if "KEYS" in record.properties and record.at < 100_000
    )
    key = record.properties["KEYS"].split(" ")[0]
    at = record.store_timestamp_ms
    found = get(path, "--topic", record.topic, "--key", key, "--from-time", at - 2000, "--to-time", at + 2000)
    assert found["status"] == "FOUND"
    assert record.at in {row["physical_offset"] for row in found["messages"]}
    assert all(row["carries_key"] for row in found["messages"])
    late = get(path, "--topic", record.topic, "--key", key, "--from-time", "2100-01-01")
    assert (late["status"], late["messages"]) == ("QUERY_NOT_FOUND", [])


def test_a_tag_filter_passes_its_tags_only(golden: Unpacked) -> None:
    found = get(golden(STORE), *QUEUE, "--queue-offset", 0, "--count", 32, "--tag", "TagA || TagB")
    assert {row["tags"] for row in found["messages"]} == {"TagA", "TagB"}
    every = get(golden(STORE), *QUEUE, "--queue-offset", 0, "--count", 32, "--tag", "*")
    assert len(every["messages"]) == 25


def test_tags_are_looked_up_where_the_version_indexes_them(golden: Unpacked) -> None:
    found = get(golden(STORE), "--topic", "TopicTest", "--tag", "TagA", "--count", 5)
    assert {row["tags"] for row in found["messages"]} == {"TagA"}
    refused = rmqtool("get", golden(STORE), "--topic", "TopicTest", "--tag", "TagA", "--broker-version", "5.3.3")
    assert (refused.code, refused.out) == (2, "")


@pytest.mark.parametrize(
    ("edit", "finding"),
    [
        ((100, b"XX"), "commitlog.body-crc-mismatch"),
        ((28, bytes(8)), "commitlog.self-offset-mismatch"),
        ((4, b"\0\0\0\1"), "commitlog.bad-magic"),
        ((84, b"\x7f\xff\xff\xff"), "commitlog.bad-lengths"),
    ],
)
def test_what_is_handed_out_damaged_is_said_so(golden_copy: Unpacked, edit: tuple[int, bytes], finding: str) -> None:
    path = golden_copy(STORE)
    (row,) = get(path, *QUEUE, "--queue-offset", 3)["messages"]
    segment = sorted((path / "commitlog").iterdir())[row["physical_offset"] // 65536]
    with segment.open("r+b") as file:
        file.seek(row["physical_offset"] % 65536 + edit[0])
        file.write(edit[1])
    answer = get(path, *QUEUE, "--queue-offset", 3)
    assert answer["status"] == "FOUND"
    assert [found["finding"] for found in answer["messages"]] == [finding]
    assert rmqtool("get", path, *QUEUE, "--queue-offset", 3, "--count", 2).code == 3
    assert finding in rmqtool("get", path, *QUEUE, "--queue-offset", 3).out


def test_a_record_that_the_disk_does_not_give_is_a_finding(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    path = golden(STORE)
    read_into = FileSource.read_into

    def failing(source: FileSource, position: int, buffer: memoryview) -> int:
        if source.name.startswith("commitlog/"):
            raise OSError(5, "Input/output error")
        return read_into(source, position, buffer)

    monkeypatch.setattr(FileSource, "read_into", failing)
    answer = get(path, *QUEUE, "--queue-offset", 3)
    assert [row["finding"] for row in answer["messages"]] == ["commitlog.unreadable-range"]


def test_a_queue_that_cannot_be_read_is_an_error(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: object) -> FileSource:
        raise UnreadableError("consumequeue: permission denied")

    monkeypatch.setattr(FileSource, "open", refused)
    ran = rmqtool("get", golden(STORE), *QUEUE, "--queue-offset", 3)
    assert (ran.code, ran.out, ran.err) == (4, "", "rmqtool: consumequeue: permission denied\n")


def test_every_form_has_the_same_messages(golden: Unpacked) -> None:
    question = ("get", golden(STORE), *QUEUE, "--queue-offset", 0, "--count", 4, "--body", "hex")
    whole = json.loads(rmqtool(*question, "--format", "json").out)
    *rows, ending = map(json.loads, rmqtool(*question, "--format", "jsonl").out.splitlines())
    assert rows == whole["messages"]
    assert ending == {
        "type": "answer",
        "status": "FOUND",
        "source": "queue",
        "next_begin_offset": 4,
        "min_offset": 0,
        "max_offset": 25,
        "log_searched": None,
        "disagreements": [],
        "not_looked_at": [],
    }
    table = list(csv.DictReader(io.StringIO(rmqtool(*question, "--format", "csv").out)))
    assert [row["physical_offset"] for row in table] == [str(row["physical_offset"]) for row in rows]
    assert [row["body"] for row in table] == [row["body"] for row in rows]


def test_a_body_reaches_no_terminal_unescaped(golden_copy: Unpacked) -> None:
    path = golden_copy(STORE)
    (row,) = get(path, *QUEUE, "--queue-offset", 3)["messages"]
    segment = sorted((path / "commitlog").iterdir())[row["physical_offset"] // 65536]
    with segment.open("r+b") as file:
        file.seek(row["physical_offset"] % 65536 + 90)
        file.write("\x1b]0;title\x07\x1b[2J\u202e".encode())
    for form in ("table", "json", "jsonl", "csv"):
        out = rmqtool("get", path, *QUEUE, "--queue-offset", 3, "--body", "text", "--format", form).out
        assert all(character.isprintable() or character == "\n" for character in out)
        assert "\\" in out


def test_nothing_is_changed(golden_copy: Unpacked) -> None:
    path = golden_copy(STORE)
    with assert_store_unchanged(path):
        for question in ([*QUEUE, "--queue-offset", 3], [*QUEUE, "--time", 0], ["--topic", "TopicTest", "--key", "a"]):
            assert rmqtool("get", path, *question).code in (0, 6)


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("2026-11-21T18:16:07.048Z", 1795284967048),
        ("2026-11-21 19:16:07.048+01:00", 1795284967048),
        ("2026-11-21T18:16:07.048", 1795284967048),
        ("1795284967048", 1795284967048),
    ],
)
def test_a_time_can_be_written_in_several_ways(
    golden: Unpacked, text: str, timestamp_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert get(golden(STORE), *QUEUE, "--time", text) == get(golden(STORE), *QUEUE, "--time", timestamp_ms)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["tomorrow", "", "1e3", "٣", "99999999999999999999", "2026-13-01"])
def test_what_is_no_time_is_wrong_usage(golden: Unpacked, text: str) -> None:
    ran = rmqtool("get", golden(STORE), *QUEUE, "--time", text)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)

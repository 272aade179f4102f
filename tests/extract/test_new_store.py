"""New stores: what is chosen is there at its queue offset; what does not fit is refused and leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.commitlog import BODY_LENGTH_AT
from rmqtool.report.json_schemas import schema_text
from rmqtool.store.relaxed_json import parse_relaxed_json
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.store_state import store_state

VERSION = "5.5.0"
RULES = rules_for(VERSION)
START_MS = 1_700_000_000_000
CONFIG = WriterConfig(commitlog_file_size=4096, consumequeue_file_size=600, index_slot_count=100, index_entry_count=200)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, list[Message]], Path]:
    """Makes a store of messages, each a millisecond after the one before."""

    def write_store(name: str, messages: list[Message]) -> Path:
        now = iter(range(START_MS, START_MS + 10_000))
        with new_store(tmp_path / name, RULES, CONFIG, lambda: next(now)) as writer:
            for at, message in enumerate(messages):
                message.store_timestamp_ms = START_MS + at
                writer.put(message)
        return tmp_path / name

    return write_store


def orders(count: int) -> list[Message]:
    topics = ("Orders", "Other")
    return [
        Message(topic=topics[at % 2], queue_id=at // 2 % 2, body=b"%d" % at * 40, properties={"KEYS": f"k{at}"})
        for at in range(count)
    ]


def ran_json(*arguments: object) -> tuple[int, dict[str, Any]]:
    ran = rmqtool(*arguments, "--format", "json", "--broker-version", VERSION)
    assert ran.out, ran.err
    result = json.loads(ran.out)
    assert schema_errors(result, json.loads(schema_text("extract") or "")) == []
    return ran.code, result


def rows(store: Path, topic: str = "Orders") -> dict[tuple[int, int], str]:
    """Keys by queue id and queue offset."""
    ran = rmqtool("dump", store, "--topic", topic, "--format", "jsonl", "--broker-version", VERSION)
    return {(row["queue_id"], row["queue_offset"]): row["keys"][0] for row in map(json.loads, ran.out.splitlines())}


def assert_intact(store: Path) -> None:
    ran = rmqtool("verify", store, "--broker-version", VERSION)
    assert ran.code == 0, ran.out


@pytest.mark.parametrize("keeps", [True, False])
def test_a_topic_of_some_time(write: Callable[..., Path], tmp_path: Path, keeps: bool) -> None:
    source, new = write("source", orders(200)), tmp_path / "new"
    before = store_state(source)
    words = [source, "--topic", "Ord*", "--from-time", START_MS + 80, "--to-time", START_MS + 160]
    words += ["--output", new, *(["--keep-offsets"] if keeps else [])]
    assert ran_json("extract", *words, "--dry-run")[1]["messages"] == 40
    assert not new.exists()
    code, result = ran_json("extract", *words)
    first = 20 if keeps else 0
    assert (code, result["messages"], result["complete"]) == (0, 40, True)
    assert [(queue["min_queue_offset"], queue["max_queue_offset"]) for queue in result["queues"]] == [
        (first, first + 20)
    ] * 2
    old = rows(source)
    assert rows(new) == {(queue_id, offset): old[queue_id, offset - first + 20] for queue_id, offset in rows(new)}
    assert len(rows(new)) == 40
    assert_intact(new)
    assert store_state(source) == before
    got = rmqtool("get", new, "--topic", "Orders", "--key", "k84", "--format", "json", "--broker-version", VERSION)
    assert [row["keys"] for row in json.loads(got.out)["messages"]] == [["k84"]]


def test_parts_of_a_store_joined_are_the_store(write: Callable[..., Path], tmp_path: Path) -> None:
    source, parts = write("source", orders(200)), [tmp_path / "b", tmp_path / "a"]
    words = [source, "--topic", "*", "--keep-offsets"]
    assert ran_json("extract", *words, "--from-time", START_MS + 91, "--output", parts[0])[0] == 0
    assert ran_json("extract", *words, "--to-time", START_MS + 91, "--output", parts[1])[0] == 0
    code, result = ran_json("merge", *parts, "--output", tmp_path / "joined")
    assert (code, result["messages"]) == (0, 200)
    for topic in ("Orders", "Other"):
        assert rows(tmp_path / "joined", topic) == rows(source, topic)
    assert_intact(tmp_path / "joined")


def refused(*arguments: object) -> Ran:
    ran = rmqtool(*arguments, "--broker-version", VERSION)
    assert ran.code in (2, 4, 5), ran
    assert not ran.out
    return ran


def test_queues_that_do_not_continue_are_refused_and_nothing_is_left(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    source, new = write("source", orders(100)), tmp_path / "new"
    twice = refused("merge", source, write("again", orders(10)), "--output", new)
    assert "two messages would have the same queue offset" in twice.err
    words = [source, "--topic", "Orders", "--keep-offsets"]
    for name, begin, end in (("a", 0, 20), ("b", 60, 90)):
        times = ["--from-time", START_MS + begin, "--to-time", START_MS + end]
        assert ran_json("extract", *words, *times, "--output", tmp_path / name)[0] == 0
    gap = refused("merge", tmp_path / "a", tmp_path / "b", "--output", new)
    assert "queue 0 of topic Orders" in gap.err
    assert "the messages between would be missing" in gap.err
    assert "no message of these topics" in refused("extract", source, "--topic", "No", "--output", new).err
    assert not new.exists()


def test_an_interrupt_speaks_of_the_new_store(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        error = KeyboardInterrupt()
        error.add_note("the repair was rolled back, and the store is as it was before")
        raise error

    monkeypatch.setattr("rmqtool.repair.new_store.plan_rebuild", interrupted)
    new = tmp_path / "new"
    ran = rmqtool("extract", write("source", orders(10)), "--topic", "Orders", "--output", new)
    assert (ran.code, ran.err) == (130, f"rmqtool: interrupted; the stores were not changed, and {new} was removed\n")
    assert not new.exists()


def test_a_directory_in_use_is_refused(write: Callable[..., Path], tmp_path: Path) -> None:
    source = write("source", orders(10))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    words = ["extract", source, "--topic", "Orders", "--output"]
    assert "already exists" in refused(*words, tmp_path / "full").err
    assert "inside the store" in refused(*words, source / "new").err
    assert (tmp_path / "full" / "file").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert "no message" in refused("extract", source, "--topic", "No", "--output", tmp_path / "empty").err
    assert list((tmp_path / "empty").iterdir()) == []


def test_damage_is_left_out_or_refused_where_offsets_stay(write: Callable[..., Path], tmp_path: Path) -> None:
    source = write("source", orders(100))
    log = sorted((source / "commitlog").iterdir())
    with log[1].open("r+b") as file:
        file.seek(BODY_LENGTH_AT + 10)
        file.write(b"\xff")
    words = [source, "--topic", "*", "--output", tmp_path / "new"]
    assert "the messages between would be missing" in refused("extract", *words, "--keep-offsets").err
    code, result = ran_json("extract", *words)
    assert (code, result["messages"], result["left_out"]) == (3, 99, {"bad-range": 1})
    assert_intact(tmp_path / "new")


@pytest.mark.parametrize("name", ["5.5.0-record-crc", "5.5.0-v2", "4.9.7-ipv6", "4.9.7-multi-path", "5.5.0-rocksdb-cq"])
def test_stores_of_real_brokers(golden: Unpacked, tmp_path: Path, name: str) -> None:
    source, new = golden(name), tmp_path / "new"
    dirs = sorted(path for path in source.iterdir() if path.name.startswith("commitlog"))
    logs = [word for path in dirs for word in ("--commitlog", path)] if len(dirs) > 1 else []
    version = name.partition("-")[0]
    words = ["--broker-version", version, "--queue-file-size", "600"]
    ran = rmqtool("merge", source, *logs, "--output", new, *words, "--format", "json")
    assert ran.code == 0, ran.err
    assert rmqtool("verify", new, "--broker-version", version).code == 0

    def messages(store: Path, *options: object) -> list[Any]:
        dumped = rmqtool("dump", store, *options, "--body", "base64", "--format", "jsonl", "--broker-version", version)
        moved = ("physical_offset", "message_id", "prepared_transaction_offset", "properties_raw")
        read = [json.loads(line) for line in dumped.out.splitlines()]
        return [
            {key: value for key, value in row.items() if key not in moved and key != "properties"}
            for row in read
            if row["type"] == "message" and not row["topic"].startswith("rmq_sys_")
        ]

    assert messages(new) == messages(source, *logs)
    assert messages(new)


def test_messages_that_wait_are_counted(golden: Unpacked, tmp_path: Path) -> None:
    source = golden("5.5.0-delay")
    pending = rmqtool("dump", source, "--pending", "--format", "json", "--broker-version", VERSION)
    count = len(json.loads(pending.out))
    code, result = ran_json("merge", source, "--output", tmp_path / "new")
    assert (code, result["left_out"].get("waiting", 0)) == (3 if count else 0, count)
    assert_intact(tmp_path / "new")


def test_topics_and_consumers_go_along(golden: Unpacked, tmp_path: Path) -> None:
    source = golden("broker-5.5.0-mixed-clean")

    def table(store: Path, file: str, name: str) -> dict[str, Any]:
        path = store / "config" / file
        value = parse_relaxed_json(path.read_text("utf-8"))[name]
        table: dict[str, Any] = json.loads(json.dumps(value))  # brokers write numbers as keys
        return table

    all_topics = table(source, "topics.json", "topicConfigTable")
    messages = json.loads(rmqtool("info", source, "--format", "json").out)["consumequeue"]["queues"]
    topic = next(row["topic"] for row in messages if row["topic"] in all_topics and "_sys_" not in row["topic"].lower())
    words = ["extract", source, "--topic", topic, "--broker-version", VERSION]
    assert rmqtool(*words, "--output", tmp_path / "a", "--keep-offsets").code in (0, 3)
    assert rmqtool(*words, "--output", tmp_path / "b").code in (0, 3)
    assert table(tmp_path / "a", "topics.json", "topicConfigTable") == {topic: all_topics[topic]}
    offsets = table(source, "consumerOffset.json", "offsetTable")
    assert table(tmp_path / "a", "consumerOffset.json", "offsetTable") == {
        key: value for key, value in offsets.items() if key.partition("@")[0] == topic
    }
    assert not (tmp_path / "b/config/consumerOffset.json").exists()

"""A frame of messages is written as a store: the one that it was read from, or a new one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import rmqtool
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UsageError
from rmqtool.pipeline.source import FrameWriter
from rmqtool.pipeline.store_sink import SinkOptions, write_store
from tests.commands.transcripts import rmqtool as command
from tests.conftest import Unpacked
from tests.golden_stores import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHOLE = [
    *("5.5.0-clean-basic", "5.5.0-many-files", "4.9.7-properties", "5.5.0-ipv6", "5.5.0-v2", "5.5.0-bodies"),
    *("broker-5.5.0-mixed-clean", "broker-4.9.7-mixed-clean", "4.9.7-clean-restarted"),
]


def log_of(store: Path) -> bytes:
    """All bytes of a log up to its last one that is not zero."""
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir())).rstrip(b"\0")


def findings_of(store: Path) -> set[str]:
    """Errors and warnings."""
    rows = map(json.loads, command("verify", store, "--format", "jsonl").out.splitlines())
    return {row["id"] for row in rows if row.get("severity") in ("error", "warning")}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_log_is_written_as_it_was(golden: Unpacked, tmp_path: Path, name: str) -> None:
    store, again = golden(name), tmp_path / "again"
    file_size = next((store / "commitlog").iterdir()).stat().st_size
    rows = rmqtool.open(store).messages(profile="full")
    written = write_store(rows, again, SinkOptions(file_size))
    assert written is not None
    assert log_of(again) == log_of(store)
    compared = command("diff", store, again, "--as", "messages", "--format", "json")
    assert compared.code == 0, compared.out + compared.err
    waits = {"config.delay-offset-outdated"} if "mixed" in name else set()  # where delays are is not in the log
    assert findings_of(again) == waits


def test_new_messages_have_what_the_rows_say(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "topic": ["orders", "orders", "audit"],
            "body": [b"first", b"second", b"third"],
            "queue_id": [0, 0, 2],
            "tags": ["new", None, "x"],
            "keys": [["a", "b"], None, None],
        }
    )
    written = write_store(rows.to_batches(), tmp_path / "store", SinkOptions(1 << 20))
    assert written is not None
    assert written.row_count == 3
    found = rmqtool.open(tmp_path / "store").messages(
        ["topic", "queue_id", "queue_offset", "body", "tags", "keys"], mode="failfast"
    )
    assert found.read_all().to_pylist() == [
        {"topic": "orders", "queue_id": 0, "queue_offset": 0, "body": b"first", "tags": "new", "keys": ["a", "b"]},
        {"topic": "orders", "queue_id": 0, "queue_offset": 1, "body": b"second", "tags": None, "keys": []},
        {"topic": "audit", "queue_id": 2, "queue_offset": 0, "body": b"third", "tags": "x", "keys": []},
    ]
    assert findings_of(tmp_path / "store") == set()
    topics = json.loads((tmp_path / "store" / "config" / "topics.json").read_text())["topicConfigTable"]
    assert {name: entry["writeQueueNums"] for name, entry in topics.items()} == {"orders": 1, "audit": 3}


def test_what_is_no_message_is_refused_and_nothing_stays(golden: Unpacked, tmp_path: Path) -> None:
    damaged = rmqtool.open(golden("5.5.0-damage-flip-body-middle-file")).messages(profile="full").read_all()
    whole = rmqtool.open(golden("5.5.0-clean-basic")).messages(profile="full").read_all()
    wrong = [
        (damaged, SinkOptions(), "finding"),
        (whole.select(["topic"]), SinkOptions(), "no body"),
        (whole.sort_by([("physical_offset", "descending")]), SinkOptions(), "in the order"),
        (whole, SinkOptions(600), "does not fit"),
    ]
    for table, options, said in wrong:
        with pytest.raises(UsageError, match=said):
            write_store(table.to_batches(), tmp_path / "store", options)
        assert not (tmp_path / "store").exists()
    assert write_store([], tmp_path / "store", SinkOptions()) is None
    assert not (tmp_path / "store").exists()


def test_what_would_be_lost_is_refused(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, list[Any]], str]] = [
        ({"topic": ["a"], "body": [None]}, "no body"),
        ({"topic": ["a", "a"], "body": [b"1", b"2"], "queue_offset": [0, 0]}, "comes again"),
        ({"topic": ["a"], "body": [b"1"], "queue_id": [-1]}, "less than 0"),
        ({"topic": ["a"], "body": [b"1"], "type": ["stale"]}, "of type stale"),
        ({"topic": ["../../a"], "body": [b"1"]}, "no queue can have"),
        ({"topic": [""], "body": [b"1"]}, "no queue can have"),
        ({"topic": ["a" * 200], "body": [b"1"]}, "more than a record of version 1"),
    ]
    for columns, said in wrong:
        with pytest.raises(UsageError, match=said):
            write_store(pa.table(columns).to_batches(), tmp_path / "store", SinkOptions(rules=rules_for("4.9.7")))
        assert not (tmp_path / "store").exists()


def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path / "store", SinkOptions(1 << 20))
    batches = pa.table({"topic": ["a"], "body": [b"1"]}).to_batches()
    written = [writer.write(iter(batches)) for _ in range(2)]
    lost = replace(written[1], path=tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        writer.commit([written[0], lost])
    writer.abort([])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_a_frame_is_saved_as_stores(spark: SparkSession, golden: Unpacked, tmp_path: Path) -> None:
    store = golden("5.5.0-many-files")
    file_size = settings("5.5.0-many-files").commitlog_file_size or next((store / "commitlog").iterdir()).stat().st_size
    frame = spark.read.format("rocketmq-store").option("profile", "full").load(str(store))
    frame.write.parquet(str(tmp_path / "lake"))
    kept = spark.read.parquet(str(tmp_path / "lake")).coalesce(1).sortWithinPartitions("physical_offset")
    writer = kept.write.format("rocketmq-store").option("file_size", str(file_size))
    writer.mode("append").save(str(tmp_path / "again"))
    assert command("diff", store, tmp_path / "again", "--as", "messages").code == 0
    assert log_of(tmp_path / "again") == log_of(store)
    with pytest.raises(Exception, match="is there already"):
        writer.mode("append").save(str(tmp_path / "again"))
    topics = [("orders", b"one"), ("orders", b"two"), ("audit", b"three")]
    split = spark.createDataFrame(topics, "topic string, body binary").repartition(2, "topic")
    split.write.format("rocketmq-store").mode("append").save(str(tmp_path / "parts"))
    stores = rmqtool.open(f"{tmp_path}/parts") if (tmp_path / "parts" / "commitlog").exists() else None
    assert (stores or rmqtool.open(f"{tmp_path}/parts/part-*")).count_rows() == 3
    assert not list(tmp_path.glob(".*"))

"""`rmqtool.open` reads the table `messages` without Spark, and so do `stats` and `search` of small logs.

That they answer what they answer on Spark is seen in test_commands.py.
"""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqtool
from rmqtool.errors import DamageError, NotAStoreError, UsageError
from rmqtool.pipeline import stores as stores_module
from rmqtool.pipeline.tables import table as table_module
from rmqtool.pipeline.tables.log_splits import LogTask
from rmqtool.pipeline.tables.schemas import message_schema
from tests.commands.transcripts import rmqtool as command
from tests.conftest import Unpacked
from tests.pipeline.stores import as_dumped, dump_rows
from tests.pipeline.tables.test_table import table_rows

STORE = "5.5.0-damage-flip-body-middle-file"
STORES = [STORE, "5.5.0-damage-log-middle-file-missing", "5.5.0-stale-tail", "5.5.0-clean-empty", "5.5.0-ipv6"]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


@pytest.mark.parametrize("name", STORES)
def test_messages_are_the_dump(golden: Unpacked, name: str) -> None:
    reader = rmqtool.open(golden(name)).messages(profile="properties", stale=True)
    assert reader.schema == message_schema("properties")
    assert as_dumped(reader.read_all().to_pylist()) == dump_rows(golden(name), "--stale")


def test_arguments_choose_columns_and_rows(golden: Unpacked) -> None:
    path = golden("5.5.0-many-files")
    everything = [row for row in rmqtool.open(str(path)).messages().read_all().to_pylist() if row["type"] == "message"]
    middle = everything[len(everything) // 2]
    place, time_ms = middle["physical_offset"], middle["store_timestamp_ms"]
    asked: list[tuple[dict[str, Any], Any]] = [
        ({"topics": ["Au*"]}, lambda row: row["topic"].startswith("Au")),
        ({"queue_ids": [0, 1]}, lambda row: row["queue_id"] in (0, 1)),
        ({"to_offset": place}, lambda row: row["physical_offset"] < place),
        ({"from_offset": place}, lambda row: row["physical_offset"] >= place),
        ({"from_time_ms": time_ms}, lambda row: row["store_timestamp_ms"] >= time_ms),
        ({"to_time_ms": time_ms}, lambda row: row["store_timestamp_ms"] < time_ms),
    ]
    for arguments, is_wanted in asked:
        table = rmqtool.open(path).messages(["physical_offset", "type"], **arguments).read_all()
        assert table.column_names == ["physical_offset", "type"]
        offsets = [row["physical_offset"] for row in table.to_pylist() if row["type"] == "message"]
        expected = [row["physical_offset"] for row in everything if is_wanted(row)]
        assert offsets == expected
        assert 0 < len(expected) < len(everything)


def test_a_pattern_names_several_stores(golden: Unpacked) -> None:
    paths = [golden("5.5.0-clean-basic"), golden("5.5.0-clean-single")]
    table = rmqtool.open(paths[0].parent / "5.5.0-clean-[bs]*").messages(["store"]).read_all()
    assert {row["store"] for row in table.to_pylist()} >= {str(path) for path in paths}


def test_a_list_names_several_stores(golden: Unpacked) -> None:
    paths = [golden("5.5.0-clean-single"), golden("5.5.0-clean-basic")]
    table = rmqtool.open(paths).messages(["store"]).read_all()
    assert list(dict.fromkeys(table["store"].to_pylist())) == [str(path) for path in paths]


BROKERS = [
    *("broker-5.5.0-retry-clean", "broker-4.9.7-retry-clean", "broker-5.5.0-mixed-clean", "broker-4.9.7-mixed-clean"),
    *("broker-5.5.0-timer", "broker-5.5.0-transaction-killed", "broker-4.9.7-delay-killed", "broker-5.5.0-pop"),
]


@pytest.mark.parametrize("name", BROKERS)
def test_business_messages_are_those_of_the_queues_that_consumers_of_topics_read(golden: Unpacked, name: str) -> None:
    """Real brokers wrote these queues; what waits, comes again or is the broker's own lies in queues of its own."""
    stores = rmqtool.open(golden(name))
    units = stores.consumequeue(["topic", "queue_id", "queue_offset", "type"]).read_all().to_pylist()
    served = {
        (unit["topic"], unit["queue_id"], unit["queue_offset"])
        for unit in units
        if unit["type"] == "unit" and re.match("SCHEDULE_TOPIC|RMQ_SYS|rmq_sys|%RETRY%|%DLQ%", unit["topic"]) is None
    }
    rows = stores.business_messages().read_all().to_pylist()
    assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows} >= served
    assert len(rows) == len({row["identity"] for row in rows}) > 0
    assert len(rows) < stores.count_rows()


def test_what_records_are_for_and_where_they_were_sent(golden: Unpacked) -> None:
    columns = ["topic", "delivery", "is_system", "real_topic", "real_queue_id", "transaction"]
    rows = rmqtool.open(golden("broker-5.5.0-mixed-killed")).messages(columns, mode="dropmalformed").read_all()
    found = {
        (row["topic"], row["delivery"], row["is_system"], row["real_topic"], row["real_queue_id"] is None)
        for row in rows.to_pylist()
        if row["topic"] is not None
    }
    assert found >= {
        ("%DLQ%job-workers", "dead-letter", False, "jobs", True),
        ("%RETRY%job-workers", "retry", False, "jobs", True),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "half", True, "transfers", False),
        ("SCHEDULE_TOPIC_XXXX", "delayed", True, "reminders", False),
        ("orders", "normal", False, "orders", False),
        ("transfers", "normal", False, "transfers", False),
    }
    [timer] = {
        (row["delivery"], row["real_topic"])
        for row in rmqtool.open(golden("broker-5.5.0-timer")).messages(columns).read_all().to_pylist()
        if row["topic"] == "rmq_sys_wheel_timer"
    }
    assert timer == ("timer", "alarms")


def test_damage_is_a_row_of_business_messages_too(golden: Unpacked) -> None:
    stores = rmqtool.open(golden(STORE))
    bad = [row["finding"] for row in stores.messages(["finding"]).read_all().to_pylist() if row["finding"]]
    business = stores.business_messages(["finding", "topic"]).read_all().to_pylist()
    assert [row["finding"] for row in business if row["finding"]] == bad != []
    with pytest.raises(DamageError):
        stores.business_messages(mode="failfast").read_all()


def test_the_other_tables_are_those_of_spark(golden: Unpacked) -> None:
    path = golden("5.5.0-damage-cq-entry-wrong-tag")
    stores = rmqtool.open(path)
    assert stores.consumequeue().read_all().to_pylist() == table_rows(path, table="consumequeue")
    assert stores.index().read_all().to_pylist() == table_rows(path, table="index")
    assert stores.findings().read_all().to_pylist() == table_rows(path, table="findings") != []
    assert stores.index(["key_hash"]).schema.names == ["key_hash"]


def test_times_may_be_datetimes(golden: Unpacked) -> None:
    stores = rmqtool.open(golden("5.5.0-many-files"))
    times = [time for time in stores.messages(["store_time"]).read_all()["store_time"].to_pylist() if time]
    middle = sorted(times)[len(times) // 2]
    assert stores.count_rows(to_time_ms=middle) == sum(time < middle for time in times)
    with pytest.raises(UsageError, match="without a zone"):
        stores.count_rows(from_time_ms=middle.replace(tzinfo=None))


def test_fragments_are_read_elsewhere(golden: Unpacked) -> None:
    stores = rmqtool.open([golden("5.5.0-many-files"), golden(STORE)])
    fragments = stores.fragments(columns="physical_offset,topic", splits="2")
    assert len(fragments) > 4
    again = pickle.loads(pickle.dumps(fragments))  # noqa: S301 - our own
    tables = [fragment.to_table() for fragment in again]
    assert pa.concat_tables(tables) == stores.messages(["physical_offset", "topic"]).read_all()


def test_stores_are_a_stream_of_arrow(golden: Unpacked) -> None:
    stores = rmqtool.open(golden("5.5.0-clean-basic"))
    assert pa.RecordBatchReader.from_stream(stores).read_all() == stores.messages().read_all()


def test_batches_come_as_they_are_asked_for(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    read_task = table_module.read_task

    def noted(task: LogTask, *rest: Any) -> Iterator[pa.RecordBatch]:
        read.extend(split.path for split in task)
        return read_task(task, *rest)

    monkeypatch.setattr(table_module, "read_task", noted)
    reader = rmqtool.open(golden("5.5.0-many-files")).messages()
    assert read == []
    reader.read_next_batch()
    assert len(read) == 1


def test_errors_are_those_of_rmqtool(golden: Unpacked, tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError, match="no such directory"):
        rmqtool.open(tmp_path / "nothing")
    stores = rmqtool.open(golden(STORE))
    wrong: list[dict[str, Any]] = [
        {"columns": ["nonsense"]},
        {"columns": []},
        {"columns": "topic"},
        {"topics": ["a,b"]},
        {"profile": "nonsense"},
        {"mode": "nonsense"},
        {"queue_ids": ["one"]},
    ]
    for arguments in wrong:
        with pytest.raises(UsageError):
            stores.messages(**arguments)
    with pytest.raises(DamageError, match="body-crc-mismatch"):
        stores.messages(mode="failfast").read_all()
    rows = stores.messages().read_all().to_pylist()
    sound = [row for row in rows if row["finding"] is None]
    assert stores.messages(mode="dropmalformed").read_all().to_pylist() == sound != rows


def test_a_log_elsewhere_is_named(golden_copy: Unpacked) -> None:
    path = golden_copy("5.5.0-clean-basic")
    expected = rmqtool.open(path).messages().read_all().num_rows
    (path / "commitlog").rename(path / "old-log")
    assert rmqtool.open(path, commitlog=["old-log"]).messages().read_all().num_rows == expected > 0


@pytest.mark.parametrize("library", ["duckdb", "polars", "pyarrow"])
def test_the_examples_of_the_page_run(golden: Unpacked, library: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    examples = [block for block in blocks if f"import {library}" in block]
    assert examples
    for example in examples:
        exec(example.replace("/home/rocketmq/store", str(golden("5.5.0-clean-basic"))), {})  # noqa: S102 - our own page
        assert capsys.readouterr().out


def test_the_page_lists_every_column() -> None:
    text = PAGE.read_text("utf-8")
    assert [column.name for column in message_schema("full") if f"`{column.name}`" not in text] == []


def test_a_small_log_needs_no_spark(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert command("stats", golden("5.5.0-clean-basic")).code == 0
    assert command("search", golden("5.5.0-clean-basic"), "order-1", "--in", "keys").code == 0
    assert command("search", golden("5.5.0-clean-basic"), "nothing-like-it").code == 6


def test_a_large_log_is_read_on_spark(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "LOG_BYTES_MAX", 1000)
    monkeypatch.setenv("JAVA_HOME", "/nonsense")
    for words in (("stats",), ("search", ".")):
        ran = command(words[0], golden("5.5.0-clean-basic"), *words[1:])
        assert (ran.code, "Spark needs Java" in ran.err) == (4, True)


def test_the_columns_of_no_profile_are_the_headers(golden: Unpacked) -> None:
    reader = rmqtool.open(golden("5.5.0-clean-empty")).messages()
    assert reader.schema == message_schema("headers")
    assert reader.read_all().num_rows == 0

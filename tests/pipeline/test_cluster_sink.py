"""Rows are sent to a cluster as messages: each once, also after a try that ended; what is no message is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rmqtool
from rmqtool.errors import AnswerError, ConnectionLostError, UsageError, WriteError
from rmqtool.formats import system_flag
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.pipeline.cluster_sink import ClusterOptions, SentRows, TaskOfBatch, forget_before, send_rows
from rmqtool.replay import sender
from tests.conftest import Unpacked
from tests.remoting_server import Request, answer, serving
from tests.replay.broker_stub import BrokerStub

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK = TaskOfBatch("query", 4, 0)
NEW = pa.table({"topic": ["T"] * 20, "body": [b"%d" % (number // 2) for number in range(20)]})
"""New messages: each row twice, so that equal rows are told apart."""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(sender, "_PAUSES", (0.001, 0.01))


@contextmanager
def served(stub: BrokerStub, state: Path | None = None) -> Iterator[ClusterOptions]:
    with serving(stub.reply) as address:
        stub.address = address
        yield ClusterOptions(address, state, patience_seconds=0)


def send(stub: BrokerStub, table: pa.Table, state: Path | None = None, task: TaskOfBatch = TASK) -> SentRows:
    if state is not None:
        state.mkdir(exist_ok=True)
    with served(stub, state) as options:
        return send_rows(table.to_batches(max_chunksize=8), options, task)


def bodies(stub: BrokerStub) -> Counter[bytes]:
    return Counter(body for _, _, body, _ in stub.stored)


def of_table(table: pa.Table) -> Counter[bytes]:
    return Counter(table["body"].to_pylist())


def ends_at(stop_at: int) -> Any:
    """Ends a try at a message, whose answer is lost."""

    def stop(number: int, _request: Request) -> bytes | None:
        return None if number >= stop_at else b"go on"

    return stop


def goes_on(_number: int, _request: Request) -> bytes:
    return b"go on"


def test_a_message_has_what_its_row_says(golden: Unpacked) -> None:
    columns = [
        *("store", "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp_ms", "body", "properties"),
        *("born_timestamp_ms", "flag", "sys_flag", "reconsume_times", "message_id", "unique_key", "type"),
    ]
    table = rmqtool.open(golden("5.5.0-clean-basic")).messages(columns).read_all()
    table = table.filter(pc.equal(table["type"], "message"))
    stub = BrokerStub(dict.fromkeys(set(table["topic"].to_pylist()), 4))
    assert send(stub, table).sent == len(table)
    for row, (topic, queue_id, body, kept), request in zip(table.to_pylist(), stub.stored, stub.requests, strict=True):
        assert (topic, queue_id, body) == (row["topic"], row["queue_id"] % 4, row["body"])
        assert kept["RMQTOOL_MESSAGE_ID"] == row["message_id"]
        assert kept["RMQTOOL_STORE_TIME"] == str(row["store_timestamp_ms"])
        assert kept["RMQTOOL_QUEUE_OFFSET"] == f"{row['queue_id']}:{row['queue_offset']}"
        assert kept["UNIQ_KEY"] == (row["unique_key"] or row["message_id"])
        assert {name: kept.get(name) for name, _ in row["properties"]} == dict(row["properties"])
        fields = request["extFields"]
        assert (int(fields["g"]), int(fields["h"])) == (row["born_timestamp_ms"], row["flag"])


def test_new_messages_go_to_all_queues_and_have_unique_keys_of_their_own() -> None:
    stub = BrokerStub({"T": 4})
    send(stub, NEW)
    assert Counter(queue_id for _, queue_id, _, _ in stub.stored) == dict.fromkeys(range(4), 5)
    assert len({kept["UNIQ_KEY"] for _, _, _, kept in stub.stored}) == len(NEW)


@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("stop_at", [1, 2, 9])
def test_a_batch_that_is_sent_again_repeats_nothing(tmp_path: Path, stop_at: int, stage: str) -> None:
    """Twice it ends at a message; then its rows come in another order."""
    stub = BrokerStub({"T": 4})
    for count in (1, 2):
        setattr(stub, stage, ends_at(stub.sends + stop_at))
        with pytest.raises(ConnectionLostError):
            send(stub, NEW, tmp_path / "state")
        assert len(stub.stored) <= count * stop_at
    setattr(stub, stage, goes_on)
    before = len(stub.stored)
    assert send(stub, NEW.take(list(reversed(range(20)))), tmp_path / "state") == SentRows(20, before)
    assert bodies(stub) == of_table(NEW)
    sends = stub.sends
    assert send(stub, NEW, tmp_path / "state") == SentRows(20, 20)
    assert stub.sends == sends, "a batch that Spark runs again after it was complete"
    send(stub, NEW, tmp_path / "state", replace(TASK, batch=5))
    assert len(stub.stored) == 2 * len(NEW), "another batch has the same rows, and they are other messages"


def test_rows_of_a_store_are_recognized_in_whichever_task_they_are(tmp_path: Path) -> None:
    """Spark cuts a batch that it runs again otherwise, and an answer was lost in the first try."""
    place = {"store": ["/s"] * 20, "physical_offset": range(20)}
    table = pa.table({**{name: NEW[name] for name in NEW.column_names}, **place})
    stub = BrokerStub({"T": 2}, after=ends_at(15))
    with pytest.raises(ConnectionLostError):
        send(stub, table, tmp_path / "state")
    stub.after = goes_on
    parts = [send(stub, table.slice(7 * n, 7), tmp_path / "state", replace(TASK, partition=n)) for n in (2, 0, 1)]
    assert sum(part.found for part in parts) == 15
    assert bodies(stub) == of_table(table)


def test_without_a_journal_a_repeat_has_the_same_unique_key(tmp_path: Path) -> None:
    stub = BrokerStub({"T": 2})
    for folder in ("one", "two"):
        send(stub, NEW, tmp_path / folder)
    keys = Counter(kept["UNIQ_KEY"] for _, _, _, kept in stub.stored)
    assert (len(keys), set(keys.values())) == (len(NEW), {2})


def test_a_journal_without_a_whole_line_is_one_of_a_try_that_sent_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "query" / "4"
    folder.mkdir(parents=True)
    (folder / "00000-a").write_bytes(b"")
    (folder / "00001-b").write_bytes(b'{"format":2,"id"')
    assert send(BrokerStub({"T": 2}), NEW, tmp_path / "state") == SentRows(20, 0)


def test_journals_of_batches_before_the_last_one_are_removed(tmp_path: Path) -> None:
    for batch in (3, 4, 11):
        send(BrokerStub({"T": 1}), NEW, tmp_path / "state", replace(TASK, batch=batch))
    forget_before(tmp_path / "state", "query", 11)
    assert [path.name for path in (tmp_path / "state" / "query").iterdir()] == ["11"]


def test_a_directory_that_a_task_does_not_see_is_named(tmp_path: Path) -> None:
    with (
        served(BrokerStub({"T": 1}), tmp_path / "away") as options,
        pytest.raises(WriteError, match=r"must see .*away"),
    ):
        send_rows(NEW.to_batches(), options, TASK)


def test_what_the_query_itself_has_sent_is_not_sent_again() -> None:
    stub = BrokerStub({"T": 1})
    own = [("RMQTOOL_REPLAY", f"{TASK.replay_id}:3:x")]
    texts = pa.array([own, []], pa.map_(pa.string(), pa.string()))
    send(stub, pa.table({"topic": ["T", "T"], "body": [b"sent", b"new"], "properties": texts}))
    assert bodies(stub) == Counter([b"new"])


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"topic": ["rmq_sys_REVIVE_LOG_c"]}, "broker-topic"),
        ({"topic": ["%RETRY%group"]}, "retry-or-dead-letter"),
        ({"topic": ["RMQ_SYS_TRANS_OP_HALF_TOPIC"]}, "transaction-record"),
        ({"topic": ["SCHEDULE_TOPIC_XXXX"]}, "delivered-delayed"),
        ({"sys_flag": [system_flag.TRANSACTION_PREPARED]}, "transaction-record"),
        ({"sys_flag": [system_flag.INNER_BATCH]}, "inner-batch"),
        ({"prepared_transaction_offset": [TOMBSTONE]}, "tombstone"),
        ({"finding": ["commitlog.tombstone"]}, "tombstone"),
        ({"body": [b""]}, "no-body"),
        ({"body": [None]}, "a row has no body"),
        ({"topic": [""]}, "a row has no topic"),
        ({"type": ["stale"]}, "type = 'message'"),
        ({"finding": ["commitlog.bad-body-crc"]}, "finding IS NULL"),
        ({"keys": ["a\x02DELAY\x013"]}, "a character with which properties end"),
    ],
)
def test_what_replay_does_not_send_is_refused_before_a_message_of_its_part_is_sent(
    columns: dict[str, Any], text: str
) -> None:
    good = {"topic": ["T"], "body": [b"1"]}
    stub = BrokerStub({"T": 1, "": 1})
    wrong = pa.table({**good, **columns})
    whole = pa.concat_tables([pa.table(good), wrong], promote_options="default").combine_chunks()
    if "type" in columns:
        whole = wrong
    with pytest.raises(UsageError, match=text):
        send(stub, whole)
    assert stub.stored == []


def test_a_message_that_a_broker_refuses_ends_the_task() -> None:
    stub = BrokerStub({"T": 1}, lambda _number, request: answer(request, 13, remark="too long"))
    with pytest.raises(AnswerError, match="a message to topic T is refused: MESSAGE_ILLEGAL: too long"):
        send(stub, NEW)
    with pytest.raises(AnswerError, match="no route to topic T"):
        send(BrokerStub({}), NEW)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option to: a stream is sent to a cluster"),
        ({"to": "a:1:2"}, "is not HOST:PORT"),
        ({"to": "a:1"}, "option checkpointLocation or state"),
        ({"to": "a:1", "checkpointLocation": "s3a://bucket/c"}, "checkpointlocation is a URL"),
        ({"to": "a:1", "state": "s3://bucket/c"}, "state is a URL"),
        ({"to": "a:1", "state": "/s", "rate": "fast"}, "option rate: 'fast' is not a number from 0.001 on"),
        ({"to": "a:1", "state": "/s", "path": "/store"}, "no option path beside to"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        ClusterOptions.parse(options, is_stream=True)


def test_the_state_of_a_stream_is_in_its_checkpoint() -> None:
    for text in ("/c", "file:/c", "file:///c"):
        options = ClusterOptions.parse({"to": "a:1", "checkpointLocation": text, "wait": "5"}, is_stream=True)
        assert options == ClusterOptions("a:1", Path("/c/replay"), 5.0)
    assert ClusterOptions.parse({"to": "a:1"}, is_stream=False).state is None


@pytest.mark.spark
def test_a_frame_and_a_stream_are_sent(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("T", b"one"), ("T", b"two")], "topic string, body binary").coalesce(1)
    stub = BrokerStub({"T": 2, "S": 2})
    with serving(stub.reply) as address:
        stub.address = address
        writer = frame.write.format("rocketmq-store").option("to", address).mode("append")
        for count in (2, 4):
            writer.save()
            assert len(stub.stored) == count
        for _ in range(2):
            writer.option("state", f"{tmp_path}/state").save()
            assert bodies(stub) == {b"one": 3, b"two": 3}
        for number in (1, 2, 3):
            rows = spark.createDataFrame([("S", b"%d" % number)], "topic string, body binary")
            rows.write.mode("append").parquet(f"{tmp_path}/rows")
            stream = spark.readStream.schema("topic string, body binary").parquet(f"{tmp_path}/rows")
            sink = stream.writeStream.format("rocketmq-store").option("to", address)
            sink.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start().awaitTermination()
        assert Counter(body for topic, _, body, _ in stub.stored if topic == "S") == {b"1": 1, b"2": 1, b"3": 1}
        [query] = (tmp_path / "c" / "replay").iterdir()
        assert [folder.name for folder in query.iterdir()] == ["2"]
        wrong = stream.writeStream.format("rocketmq-store").option("checkpointLocation", f"{tmp_path}/d")
        with pytest.raises(Exception, match="a stream is sent to a cluster"):
            wrong.trigger(availableNow=True).start().awaitTermination()

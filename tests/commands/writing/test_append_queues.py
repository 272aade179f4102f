"""`append` and the queues of a message: those that no broker would take are refused, and so is what leads outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.files import snapshot
from tests.commands.transcripts import rmqtool
from tests.commands.writing.test_append import SMALL, append, create, process, rows


def with_four_queues(store: Path) -> Path:
    """A store whose broker knows the topic `orders` with four queues to write to, and one retry topic with one."""
    create(store, "--body", "first")
    counts = {"orders": 4, "%RETRY%shop": 1}
    table = {name: {"topicName": name, "readQueueNums": 9, "writeQueueNums": count} for name, count in counts.items()}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return store


@pytest.mark.parametrize("batch", [(), ("--batch", "--count", 2)])
@pytest.mark.parametrize(
    ("topic", "queue_id"), [("orders", -1), ("orders", 4), ("%RETRY%shop", 1), ("orders", 1 << 31)]
)
def test_a_queue_that_the_topic_does_not_have_is_refused(
    tmp_path: Path, topic: str, queue_id: int, batch: tuple[object, ...]
) -> None:
    store = with_four_queues(tmp_path / "s")
    before = snapshot(store)
    ran = rmqtool("append", store, "--topic", topic, "--queue-id", queue_id, "--body", "x", *batch)
    assert ran.code == 2
    assert "--queue-id" in ran.err
    assert snapshot(store) == before
    assert append(store, "--topic", "orders", "--queue-id", 3, "--body", "x")[0]["status"] == "PUT_OK"


def test_a_new_store_has_no_queue_below_zero(tmp_path: Path) -> None:
    ran = rmqtool("append", tmp_path / "s", "--create", *SMALL, "--topic", "t", "--queue-id", -1, "--body", "x")
    assert ran.code == 2
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("many", [1, 20])
def test_rows_for_a_queue_that_the_topic_does_not_have_are_refused_one_by_one(tmp_path: Path, many: int) -> None:
    store = with_four_queues(tmp_path / "s")
    rows_in = [{"topic": "orders", "queue_id": queue_id} for queue_id in (-1, 3, 4)] * many
    # A record that was dumped may be in a queue that its topic had once, but in none below zero.
    rows_in += [{"topic": "orders", "queue_id": queue_id, "properties_raw": ""} for queue_id in (-7, 8)]
    given = "\n".join(map(json.dumps, rows_in)).encode()
    ran = process("append", store, "--from", "-", "--format", "jsonl", given=given)
    assert ran.code == 3
    statuses = ["MESSAGE_ILLEGAL", "PUT_OK", "MESSAGE_ILLEGAL"] * many + ["MESSAGE_ILLEGAL", "PUT_OK"]
    assert [row["status"] for row in rows(ran)] == statuses
    assert "negative" in rows(ran)[0]["reason"]
    assert "4 queues" in rows(ran)[2]["reason"]
    assert not list((store / "consumequeue" / "orders").glob("-*"))
    assert rmqtool("verify", store).code == 0


@pytest.mark.parametrize("name", ["../x", "a,,b", "%LMQ%../../x", "x" * 256])
def test_further_queues_lie_in_the_store(tmp_path: Path, name: str) -> None:
    create(tmp_path / "s", "--body", "x", "--keys", "k")
    settings = ("--set", "enableMultiDispatch=true", "--set", "enableLmq=true", "--broker-version", "4.9.7")
    further = ("--property", f"INNER_MULTI_DISPATCH={name}")
    ran = rmqtool("append", tmp_path / "s", "--topic", "t", "--body", "x", *settings, *further, "--format", "jsonl")
    assert ran.code == 3, ran.err
    assert rows(ran)[0]["status"] == "MESSAGE_ILLEGAL"
    assert rmqtool("verify", tmp_path / "s").code == 0


def test_an_index_file_without_entries_is_gone_on_with(tmp_path: Path) -> None:
    """Nothing tells its slot count; a broker takes it for one of its own size."""
    create(tmp_path / "s", "--body", "no key")
    [first] = (tmp_path / "s" / "index").iterdir()
    append(tmp_path / "s", "--topic", "orders", "--body", "no key either")
    append(tmp_path / "s", *SMALL, "--topic", "orders", "--body", "x", "--keys", "k")
    assert list((tmp_path / "s" / "index").iterdir()) == [first]
    assert rmqtool("verify", tmp_path / "s").code == 0
    assert rmqtool("get", tmp_path / "s", "--topic", "orders", "--key", "k").code == 0

"""`append --as-client`: what a broker refuses, completes and answers; which bytes it stores, tests/broker shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.broker.files import snapshot
from tests.commands.transcripts import Ran, rmqtool
from tests.commands.writing.test_append import SMALL, process, rows

CLIENT = (*SMALL, "--as-client", "--broker-version", "5.5.0")


def asked(store: Path, *options: object) -> Ran:
    create = () if store.exists() else ("--create",)
    body = ("--body", "hello") if "--topic" in options and "--body" not in options else ()
    return rmqtool("append", store, *create, *CLIENT, *options, *body, "--format", "jsonl")


def dumped(store: Path) -> list[dict[str, Any]]:
    return rows(rmqtool("dump", store, "--format", "jsonl", "--body", "text"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--topic", "t", "--transaction", "commit"), "--half-offset"),
        (("--half-offset", 0), "--transaction commit or rollback"),
        (("--half-offset", 0, "--transaction", "prepared"), "--transaction commit or rollback"),
        (("--reconsume", 0), "--group"),
        (("--reconsume", 0, "--group", "g", "--topic", "t"), "use either"),
        (("--topic", "t", "--set", "brokerPermission=x", "--queue-id", -2), "--queue-id"),
    ],
)
def test_options_that_contradict_each_other(tmp_path: Path, options: tuple[object, ...], reason: str) -> None:
    ran = asked(tmp_path / "s", *options)
    assert (ran.code, reason in ran.err) == (2, True), ran.err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "code", "status"),
    [
        (("--topic", "a b"), 29, "INVALID_PARAMETER"),
        (("--topic", "t", "--queue-id", 4), 29, "INVALID_PARAMETER"),
        (("--topic", "SCHEDULE_TOPIC_XXXX"), 16, "NO_PERMISSION"),
        (("--topic", "t", "--set", "autoCreateTopicEnable=false"), 17, "TOPIC_NOT_EXIST"),
        (("--topic", "t", "--set", "startAcceptSendRequestTimeStamp=9000000000000"), 1, "SYSTEM_ERROR"),
        (("--topic", "t", "--transaction", "prepared", "--set", "rejectTransactionMessage=true"), 16, "NO_PERMISSION"),
        (("--reconsume", 7, "--group", "g" * 121), 26, "SUBSCRIPTION_GROUP_NOT_EXIST"),
        (("--reconsume", 7, "--group", "g"), 1, "SYSTEM_ERROR"),
        (("--half-offset", 7, "--transaction", "commit"), 1, "SYSTEM_ERROR"),
    ],
)
def test_a_refused_request_writes_no_message(
    tmp_path: Path, options: tuple[object, ...], code: int, status: str
) -> None:
    ran = asked(tmp_path / "s", *options)
    assert ran.code == 3, ran.err
    [row] = rows(ran)
    assert (row["response_code"], row["status"], row["physical_offset"]) == (code, status, None)
    assert row["reason"]
    assert not (tmp_path / "s" / "commitlog").exists() or not list((tmp_path / "s" / "commitlog").iterdir())


def test_the_version_decides_the_code(tmp_path: Path) -> None:
    ran = rmqtool(
        "append", tmp_path / "s", "--create", *SMALL, "--as-client", "--broker-version", "4.9.7", "--topic", "a b",
        "--format", "jsonl",
    )  # fmt: skip
    assert rows(ran)[0]["response_code"] == 1


def test_a_topic_is_made_and_kept(tmp_path: Path) -> None:
    store = tmp_path / "s"
    assert rows(asked(store, "--topic", "orders", "--queue-id", 3))[0]["response_code"] == 0
    table = json.loads((store / "config/topics.json").read_text())["topicConfigTable"]
    assert (table["orders"]["writeQueueNums"], table["orders"]["perm"]) == (4, 6)
    before = snapshot(store / "config")
    assert asked(store, "--topic", "orders", "--queue-id", 0, "--set", "autoCreateTopicEnable=false").code == 0
    assert snapshot(store / "config") == before
    assert rmqtool("verify", store).code == 0


def test_the_broker_chooses_the_same_queues_for_the_same_seed(tmp_path: Path) -> None:
    def queues(name: str, seed: int) -> list[int]:
        asked(tmp_path / name, "--topic", "orders", "--queue-id", -1, "--count", 20, "--seed", seed)
        return [row["queue_id"] for row in dumped(tmp_path / name)]

    assert queues("a", 1) == queues("b", 1)
    assert set(queues("a2", 1)) == {0, 1, 2, 3}
    assert queues("c", 2) != queues("d", 1)


def test_rows_that_were_dumped_whole_are_stored_as_they_were(tmp_path: Path) -> None:
    lines = [{"topic": "a b", "properties_raw": ""}, {"topic": "a b", "body": "x"}, {"topic": "ok", "body": "x"}]
    given = "\n".join(map(json.dumps, lines)).encode()
    ran = process("append", tmp_path / "s", "--create", *CLIENT, "--from", "-", "--format", "jsonl", given=given)
    assert ran.code == 3
    assert [(row["status"], row["response_code"]) for row in rows(ran)] == [
        ("PUT_OK", None), ("INVALID_PARAMETER", 29), ("PUT_OK", 0),
    ]  # fmt: skip
    stored = dumped(tmp_path / "s")
    assert [row["properties"].get("CLUSTER") for row in stored] == [None, "DefaultCluster"]


def test_a_transaction_from_its_half_message_to_its_end(tmp_path: Path) -> None:
    store = tmp_path / "s"
    halves = rows(asked(store, "--topic", "orders", "--body", "deal", "--transaction", "prepared", "--count", 3))
    first, second, _ = (half["physical_offset"] for half in halves)
    committed = rows(asked(store, "--half-offset", first, "--transaction", "commit"))
    assert [row["response_code"] for row in committed] == [0, 0]
    assert len(rows(asked(store, "--half-offset", second, "--transaction", "rollback"))) == 1
    listed = rows(rmqtool("dump", store, "--transactions", "--format", "jsonl"))
    assert sorted(row["state"] for row in listed) == ["ended", "ended", "open"]
    [final] = [row for row in dumped(store) if row["topic"] == "orders"]
    assert (final["transaction"], final["prepared_transaction_offset"], final["body"]) == ("commit", first, "deal")
    assert rmqtool("verify", store).code == 0


def test_a_message_is_sent_back_until_it_is_dead(tmp_path: Path) -> None:
    store = tmp_path / "s"
    [sent] = rows(asked(store, "--topic", "orders", "--body", "x"))
    again = ("--group", "buyers", "--max-reconsume", 1)
    [retried] = rows(asked(store, "--reconsume", sent["physical_offset"], *again))
    rows(asked(store, "--reconsume", retried["physical_offset"], *again))
    _, retry, dead = dumped(store)
    assert (retry["topic"], retry["queue_id"], retry["reconsume_times"]) == ("SCHEDULE_TOPIC_XXXX", 2, 1)
    assert retry["properties"]["REAL_TOPIC"] == "%RETRY%buyers"
    assert (dead["topic"], dead["reconsume_times"]) == ("%DLQ%buyers", 2)
    assert dead["properties"]["ORIGIN_MESSAGE_ID"] == sent["message_id"]
    table = json.loads((store / "config/topics.json").read_text())["topicConfigTable"]
    assert {"%RETRY%buyers", "%DLQ%buyers", "orders"} == set(table)

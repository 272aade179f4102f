"""`dump` with `--pending`, `--transactions` and `--pop`: what waits and what is open in stores of real brokers."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqtool.dump import listings
from rmqtool.formats.rocksdb.pop import POP_FAMILY, PopKeyRow, pop_key
from rmqtool.store.databases import rocksdb
from tests import golden_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.dump.row_schema import dumped
from tests.rocksdb_cases import write_rows
from tests.store_state import assert_store_unchanged

DELAY = "broker-5.5.0-delay-killed"
JsonRow = dict[str, Any]


def listed(path: Path, *options: str) -> tuple[int, list[JsonRow]]:
    """What `dumped` gives, of a store that stays as it is."""
    with assert_store_unchanged(path):
        return dumped(path, *options)


def sent(name: str) -> list[JsonRow]:
    rows: list[JsonRow] = golden_stores.broker_manifest(name)["acknowledged"]
    return rows


def test_timers_wait_by_their_time(golden: Unpacked) -> None:
    code, rows = listed(golden("broker-5.5.0-timer"), "--pending")
    assert code == 0
    assert Counter(row["waits_in"] for row in rows) == Counter({"timer": 42})
    assert [row["due_timestamp_ms"] for row in rows] == sorted(row["due_timestamp_ms"] for row in rows)
    known = {message["physical_offset"]: message for message in sent("broker-5.5.0-timer")}
    for row in rows:
        message = known[row["physical_offset"]]
        assert (row["topic"], row["queue_id"], row["unique_key"]) == ("alarms", message["queue"], message["msg_id"])
        assert row["deletes"] == ("TIMER_DEL_UNIQKEY" in message)


@pytest.mark.parametrize("chunk_max", [7, 61, listings.CHUNK_MAX])
def test_a_message_that_the_timer_has_not_taken_waits_in_its_queue(
    golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch, chunk_max: int
) -> None:
    monkeypatch.setattr(listings, "by_time", partial(listings.by_time, chunk_max=chunk_max))
    path = golden_copy("broker-5.5.0-timer")
    for name in ("timerwheel", "timerlog/00000000000000000000", "config/timercheck"):
        (path / name).unlink()
    code, rows = listed(path, "--pending")
    assert (code, Counter(row["waits_in"] for row in rows)) == (0, Counter({"queue": 61}))
    assert (times := [row["due_timestamp_ms"] for row in rows]) == sorted(times)
    places = [row["physical_offset"] for row in rows]
    assert places != sorted(places)


def test_delayed_messages_wait_from_the_offset_of_their_level_on(golden_copy: Unpacked) -> None:
    path = golden_copy(DELAY)
    messages = sent(DELAY)
    code, rows = listed(path, "--pending")
    assert code == 0
    assert {row["physical_offset"] for row in rows} == {message["physical_offset"] for message in messages}
    levels = Counter(row["delay_level"] for row in rows)
    assert levels == Counter(message["delay_level"] for message in messages)
    (path / "config/delayOffset.json").write_text('{"offsetTable":{1:3}}')
    _, later = listed(path, "--pending", "--topic", "reminders")
    assert Counter(row["delay_level"] for row in later) == levels - Counter({1: 3})
    assert listed(path, "--pending", "--topic", "nothing*") == (0, [])


@pytest.mark.parametrize("name", ["broker-4.9.7-transaction-killed", "broker-5.5.0-transaction-killed"])
def test_a_transaction_is_open_until_its_producer_ends_it(golden: Unpacked, name: str) -> None:
    code, rows = listed(golden(name), "--transactions")
    assert code == 0
    outcome = {message["msg_id"]: message.get("outcome") for message in sent(name)}
    assert [row["unique_key"] for row in rows if row["check_count"] == 0] == list(outcome)
    for row in rows:
        if row["state"] in ("open", "committed"):
            assert outcome[row["unique_key"]] not in ("committed", "rolled back")


def test_what_pop_consumers_hold_is_listed_until_the_broker_has_handled_it(golden_copy: Unpacked) -> None:
    path = golden_copy("broker-5.5.0-pop")
    code, rows = listed(path, "--pop")
    # All 60 messages came once, and 22 of them again, as the time of the consumer was over.
    assert (code, Counter((row["state"], row["topic"]) for row in rows)) == (
        0,
        Counter({("acknowledged", "tickets"): 60, ("acknowledged", "%RETRY%ticket-poppers_tickets"): 22}),
    )
    assert {row["unique_key"] for row in rows} == {message["msg_id"] for message in sent("broker-5.5.0-pop")}
    assert [row["revive_timestamp_ms"] for row in rows] == sorted(row["revive_timestamp_ms"] for row in rows)
    offsets = path / "config/consumerOffset.json"
    offsets.write_text(offsets.read_text().replace("CID_RMQ_SYS_REVIVE_GROUP", "ANOTHER"))
    _, again = listed(path, "--pop", "--topic", "tickets")
    assert Counter(row["state"] for row in again) == Counter({"acknowledged": 60, "in-flight": 22})
    assert all((row["state"] == "in-flight") == (row["revive_queue_offset"] is not None) for row in again)


def held_in_rocksdb(path: Path, *queue_offsets: int) -> None:
    """Rows of messages that a consumer received from one queue."""
    rows = {}
    for queue_offset in queue_offsets:
        value = {"popTime": 7, "groupId": "G", "topicId": "tickets", "queueId": 0, "invisibleTime": 3}
        key = PopKeyRow(10, b"G", b"tickets", 0, queue_offset)
        rows[pop_key(key)] = json.dumps(value | {"offset": queue_offset}).encode()
    write_rows(path / "kvStore", {POP_FAMILY: rows})


def test_messages_that_pop_consumers_hold_in_rocksdb_are_listed(golden_copy: Unpacked) -> None:
    path = golden_copy("broker-5.5.0-pop")
    held_in_rocksdb(path, 1, 3, 1000)
    code, rows = listed(path, "--pop")
    first, second, *others = rows
    assert (code, len(others)) == (3, 83)  # there is no message 1000
    assert (first["state"], first["queue_offset"], first["revive_timestamp_ms"]) == ("in-flight", 1, 10)
    assert (second["queue_offset"], second["revive_queue_id"], second["physical_offset"] is None) == (3, None, False)
    assert (others[0]["state"], others[0]["queue_offset"]) == ("unreadable", 1000)


def test_pop_consumption_in_rocksdb_without_the_library_is_named(
    golden_copy: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden_copy("broker-5.5.0-pop")
    held_in_rocksdb(path, 1)
    monkeypatch.setattr(rocksdb, "LIBRARY", "no_such_library")
    ran = rmqtool("dump", path, "--pop", "--format", "jsonl")
    assert (ran.code, "kvStore: what pop consumers hold is in RocksDB: install" in ran.err) == (4, True)
    verified = json.loads(rmqtool("verify", path, "--format", "json").out)
    assert [each["path"] for each in verified["summary"]["not_looked_at"]] == ["kvStore"]


def test_a_damaged_database_of_pop_consumption_is_named(golden_copy: Unpacked) -> None:
    path = golden_copy("broker-5.5.0-pop")
    held_in_rocksdb(path, 1)
    assert json.loads(rmqtool("verify", path, "--format", "json").out)["summary"]["not_looked_at"] == []
    write_rows(path / "kvStore", {POP_FAMILY: {b"odd": b"row"}})
    ran = rmqtool("dump", path, "--pop", "--format", "jsonl")
    assert (ran.code, "odd rows" in ran.err) == (4, True)
    (path / "kvStore/CURRENT").write_text("no database")
    answer = json.loads(rmqtool("verify", path, "--format", "json").out)
    assert "pop.not-loadable" in {each["id"] for each in answer["findings"]}
    assert rmqtool("dump", path, "--pop", "--format", "jsonl").code == 4


def test_a_store_without_either_has_no_rows(golden: Unpacked) -> None:
    path = golden("5.5.0-clean-basic")
    assert listed(path, "--pending") == (0, [])
    assert listed(path, "--transactions") == (0, [])
    assert listed(path, "--pop") == (0, [])


def test_options_that_say_nothing_about_a_listing_are_refused(golden: Unpacked) -> None:
    path = golden("5.5.0-clean-basic")
    for options in (("--pending", "--transactions"), ("--pending", "--type", "index"), ("--pending", "--reverse")):
        assert rmqtool("dump", path, *options).code == 2
    assert rmqtool("dump", path / "commitlog", "--pending").code == 2

"""`--decode` over stores of real brokers: system messages and failing decoders in `dump`, `get` and `search`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.decoders.chain import make_chain
from rmqtool.formats.properties import HALF_TOPIC, OPERATION_TOPIC, TIMER_TOPIC
from rmqtool.report.bodies import UNDECODED_LIMIT, MessageFacts
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
POP, TIMER, TRANSACTION = "broker-5.5.0-pop", "broker-5.5.0-timer", "5.5.0-transaction"


def rows(command: str, *words: object) -> list[dict[str, Any]]:
    ran = rmqtool(command, *words, "--format", "jsonl")
    assert ran.code == 0, ran.err
    found = [json.loads(line) for line in ran.out.splitlines()]
    schema = json.loads((SCHEMAS / f"{command}.json").read_text("utf-8"))
    assert [error for row in found for error in schema_errors(row, schema)] == []
    return [row for row in found if row["type"] == "message"]


def test_pop_records_say_which_messages_they_are_about(golden: Unpacked) -> None:
    shown = rows("dump", golden(POP), "--topic", "rmq_sys_REVIVE_LOG_*", "--decode", "system")
    by_kind = {row["tags"]: row["decoded"] for row in shown}
    assert by_kind["ck"]["kind"] == "pop-check-point"
    assert by_kind["ck"]["topic"] == "tickets"
    assert by_kind["ck"]["revive_timestamp_ms"] > by_kind["ck"]["pop_timestamp_ms"]
    assert all(row["decoder"] == "system" and row["body"] is None for row in shown)


def test_acknowledgements_name_the_messages() -> None:
    chain = make_chain(["system"])
    assert chain is not None
    fields = b'{"t": "a", "c": "g", "q": 1, "so": 5, "pt": 9, "bn": "b", '
    for tag, end in (("ack", b'"ao": 5}'), ("bAck", b'"aol": [5, 6]}')):
        value = chain.decode(fields + end, MessageFacts("rmq_sys_REVIVE_LOG_c", 0, 0, {"TAGS": tag})).value
        assert value["kind"].endswith("acknowledgement")
        assert value["queue_offsets"] == [5, 6][: 1 + (tag == "bAck")]


def test_the_ends_of_transactions_name_their_half_messages(golden: Unpacked) -> None:
    ends = rows("dump", golden(TRANSACTION), "--topic", OPERATION_TOPIC, "--decode", "system")
    assert ends
    halves = rows("dump", golden(TRANSACTION), "--topic", HALF_TOPIC, "--decode", "text")
    ended = {offset for row in ends for offset in row["decoded"]["half_queue_offsets"]}
    assert ended <= {row["queue_offset"] for row in halves}
    assert halves[0]["decoded"] | {"transaction_id": None} == {
        "kind": "half-message",
        "topic": "Payments",
        "queue_id": 0,
        "producer_group": "pg",
        "transaction_id": None,
        "body": "half 0",
    }


def test_messages_that_wait_are_decoded_by_the_further_decoders_too(golden: Unpacked) -> None:
    plain = rows("dump", golden(TIMER), "--topic", TIMER_TOPIC, "--decode", "system")[0]["decoded"]
    assert (plain["kind"], plain["topic"]) == ("timer-message", "alarms")
    assert plain["body"].startswith("colour")
    assert plain["due_timestamp_ms"] == 1795285289000
    row = rows("dump", golden(TIMER), "--topic", TIMER_TOPIC, "--decode", "json")[0]
    assert "body" not in row["decoded"]
    assert row["decoder_error"].startswith("json: Expecting value")
    assert row["body"].startswith("colour")


@pytest.mark.parametrize(
    ("topic", "tag", "body"),
    [
        (OPERATION_TOPIC, "d", b"1,x"),
        (OPERATION_TOPIC, "d", b""),
        (OPERATION_TOPIC, "d", b"9" * 30),
        ("rmq_sys_REVIVE_LOG_c", "ck", b"{"),
        ("rmq_sys_REVIVE_LOG_c", "ck", b'{"t": "a", "c": "g", "n": 999}'),
        ("rmq_sys_REVIVE_LOG_c", "zz", b"{}"),
        ("rmq_sys_REVIVE_LOG_c", "ack", b"[" * 100_000),
    ],
)
def test_a_damaged_system_message_gives_a_reason(topic: str, tag: str, body: bytes) -> None:
    chain = make_chain(["system"])
    assert chain is not None
    decoded = chain.decode(body, MessageFacts(topic, 0, 0, {"TAGS": tag}))
    assert decoded.value is None
    assert decoded.error


def test_a_body_that_is_not_decoded_is_shown_bounded_in_every_form(golden: Unpacked) -> None:
    store = golden("5.5.0-bodies")
    shown = rows("dump", store, "--decode", "json")
    failed = [row for row in shown if row["decoder_error"] is not None]
    assert failed
    assert all(len(row["body"] or "") <= 4 * UNDECODED_LIMIT for row in shown)
    assert any(row["body_truncated"] for row in failed)
    table = rmqtool("dump", store, "--decode", "json")
    assert f"could not be decoded: {len(failed)}" in table.err
    assert table.out.count("(not decoded by json: ") + table.out.count("(no body shown: ") == len(failed)
    lines = list(csv.DictReader(io.StringIO(rmqtool("dump", store, "--decode", "json", "--format", "csv").out)))
    assert [line["decoder"] for line in lines if line["type"] == "message"] == [row["decoder"] or "" for row in shown]


def test_get_and_search_decode_as_dump_does(golden: Unpacked) -> None:
    store = golden(TIMER)
    dumped = rows("dump", store, "--topic", TIMER_TOPIC, "--queue-id", 0, "--limit", 1, "--decode", "text")[0]
    words = ("--topic", TIMER_TOPIC, "--queue-id", 0, "--queue-offset", 0, "--decode", "text")
    answer = json.loads(rmqtool("get", store, *words, "--format", "json").out)
    assert answer["messages"] == [dumped]
    assert "decoded (system):" in rmqtool("get", store, *words).out
    found = rows("search", store, "colour", "--decode", "text")[0]
    names = ("decoded", "decoder", "decoder_error", "body")
    assert [found[name] for name in names] == [dumped[name] for name in names]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--decode", "json", "--raw"), "--decode and --raw exclude each other"),
        (("--decode", "json", "--body", "redacted"), "--body redacted exclude each other"),
        (("--decode", "josn"), "no decoder 'josn'; did you mean json?"),
        (("--decode", "json", "--type", "consumequeue"), "--decode: says nothing about consumequeue files"),
    ],
)
def test_what_does_not_fit_is_refused(golden: Unpacked, words: tuple[str, ...], error: str) -> None:
    ran = rmqtool("dump", golden(TIMER), *words)
    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err


def test_append_refuses_rows_without_their_body(golden: Unpacked, tmp_path: Path) -> None:
    lines = rmqtool("dump", golden(TIMER), "--limit", 1, "--decode", "text", "--format", "jsonl").out
    (tmp_path / "rows.jsonl").write_text(lines, "utf-8")
    ran = rmqtool("append", tmp_path / "new", "--create", "--from", tmp_path / "rows.jsonl")
    assert ran.code != 0
    assert "the body is not in the row" in ran.err

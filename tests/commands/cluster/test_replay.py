"""`replay` at the command line: what it sends, counts and prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.replay import sender as replay_sender
from rmqtool.report.json_schemas import schema_text
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.remoting_server import Request, answer, serving
from tests.replay.broker_stub import BrokerStub
from tests.store_state import store_state


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_sender, "SETTLE_SECONDS", 0.0)


def replayed(stub: BrokerStub, *arguments: object) -> tuple[int, dict[str, Any]]:
    with serving(stub.reply) as stub.address:
        ran = rmqtool("replay", *arguments, "--to", stub.address, "--format", "json")
    result = json.loads(ran.out)
    assert schema_errors(result, json.loads(schema_text("replay") or "")) == []
    return ran.code, result


def test_a_store_is_sent_and_not_changed(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("5.5.0-clean-basic")
    dumped = [json.loads(line) for line in rmqtool("dump", store, "--format", "jsonl").out.splitlines()]
    expected = [row for row in dumped if row["type"] == "message" and row["topic"] == "TopicTest"]
    before, stub = store_state(store), BrokerStub({"New": 4})
    words = [store, "--topic", "TopicTest", "--map", "TopicTest=New", "--state", tmp_path / "state"]
    code, preview = replayed(stub, *words, "--dry-run")
    assert (code, preview["sent"], stub.sends) == (0, {"TopicTest": len(expected)}, 0)
    assert not (tmp_path / "state").exists()
    for _ in range(2):
        code, result = replayed(stub, *words)
        assert (code, result["sent"], result["routes"]) == (0, {"TopicTest": len(expected)}, {"New": 4})
    assert [properties["RMQTOOL_MESSAGE_ID"] for _, _, _, properties in stub.stored] == [
        row["message_id"] for row in expected
    ]
    assert [queue_id for _, queue_id, _, _ in stub.stored] == [row["queue_id"] for row in expected]
    assert [len(body) for _, _, body, _ in stub.stored] == [row["body_length"] for row in expected]
    assert store_state(store) == before
    code, refused = rmqtool("replay", *words[:1], "--to", "127.0.0.1:1", *words[3:])[::2]
    assert (code, "another replay: topics differs" in refused) == (5, True)


def test_what_is_not_sent_is_counted(golden: Unpacked) -> None:
    store = golden("5.5.0-damage-zero-hole-abort")

    def refuse_first(number: int, request: Request) -> bytes:
        return answer(request, 13, remark="the message body size over max value") if number == 1 else b"go on"

    topics = {
        row["topic"] for row in json.loads(rmqtool("info", store, "--format", "json").out)["consumequeue"]["queues"]
    }
    stub = BrokerStub(dict.fromkeys(topics, 2), refuse_first)
    code, result = replayed(stub, store)
    assert code == 3
    assert result["not_sent"]["bad-range"] >= 1
    assert result["not_sent"]["refused"] == len(result["refusals"]) == 1
    assert sum(result["sent"].values()) == len(stub.stored) > 0
    with serving(stub.reply) as stub.address:
        screen = rmqtool("replay", store, "--to", stub.address, "--dry-run")
    assert screen.code == 3
    assert "ranges of the commit log that cannot be read" in " ".join(screen.out.split())


def test_a_topic_without_a_route_is_shown_before_anything_is_sent(golden: Unpacked) -> None:
    code, result = replayed(BrokerStub({}), golden("5.5.0-clean-basic"), "--dry-run")
    assert (code, result["routes"], result["complete"]) == (3, {}, False)

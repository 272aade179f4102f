"""Findings about what pop consumers hold: records that stop a broker, and messages that expired."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.pop import REVIVE_TOPIC
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

TOPIC = f"{REVIVE_TOPIC}DefaultCluster"
POPPED_MS = 1_700_000_000_000
SIZES = ("--set", "mappedFileSizeCommitLog=4096", "--set", "mappedFileSizeConsumeQueue=6000")


def pop_findings(path: Path) -> dict[str, int]:
    ran = rmqtool("verify", path, "--format", "json")
    rows = json.loads(ran.out)["findings"]
    return {row["id"]: row["count"] for row in rows if row["id"].startswith("pop.")}


def check_point(start: int, number: int) -> dict[str, object]:
    """Three messages that a consumer received 10 seconds after those before."""
    popped_ms = POPPED_MS + number * 10_000
    body = {"t": "orders", "c": "shop", "q": 0, "so": start, "pt": popped_ms, "it": 5000, "n": 3, "bm": 0, "bn": "a"}
    return record("ck", body, popped_ms + 4000)


def record(tag: str, body: object, deliver_ms: int) -> dict[str, object]:
    text = body if isinstance(body, str) else json.dumps(body)
    properties = {"TAGS": tag, "TIMER_DELIVER_MS": str(deliver_ms)}
    return {"topic": TOPIC, "queue_id": 0, "body": text, "properties": properties}


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Path]:
    """Makes a store with 60 messages, three check points and what else is given, of which the first file expired."""

    def make(*records: dict[str, object]) -> Path:
        path, lines = tmp_path / "store", tmp_path / "messages.jsonl"
        messages = [{"topic": "orders", "queue_id": 0, "body": "x" * 100} for _ in range(60)]
        points = [check_point(number * 20, number) for number in range(3)]
        lines.write_text("".join(json.dumps(row) + "\n" for row in (*messages, *points, *records)))
        created = rmqtool("append", path, "--create", "--broker-version", "5.5.0", "--from", lines, *SIZES)
        assert created.code == 0, created.out + created.err
        (path / "commitlog" / f"{0:020}").unlink()
        return path

    return make


def test_a_message_that_was_not_acknowledged_and_expired_is_lost(store: Callable[..., Path]) -> None:
    # The first check point is due, for the others have later times; only its messages have expired.
    assert pop_findings(store()) == {"pop.expired-message": 3}


def test_what_was_acknowledged_may_expire(store: Callable[..., Path]) -> None:
    ack = {"t": "orders", "c": "shop", "q": 0, "so": 0, "pt": POPPED_MS, "bn": "a", "aol": [0, 1, 2]}
    assert pop_findings(store(record("bAck", ack, POPPED_MS + 5000))) == {}


def test_a_broker_stops_at_a_record_that_is_no_check_point(store: Callable[..., Path]) -> None:
    assert pop_findings(store(record("ck", "no check point", POPPED_MS)))["pop.bad-record"] == 1


def test_only_records_that_the_broker_has_not_handled_count(store: Callable[..., Path]) -> None:
    path = store(record("ack", "[]", POPPED_MS))
    (path / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {f"{TOPIC}@CID_RMQ_SYS_REVIVE_GROUP": {"0": 2}}}
    (path / "config/consumerOffset.json").write_text(json.dumps(offsets))
    assert pop_findings(path) == {"pop.bad-record": 1}
    offsets["offsetTable"][f"{TOPIC}@CID_RMQ_SYS_REVIVE_GROUP"]["0"] = 3
    (path / "config/consumerOffset.json").write_text(json.dumps(offsets))
    assert pop_findings(path) == {}


def test_a_store_of_a_broker_has_none(golden: Unpacked) -> None:
    assert pop_findings(golden("broker-5.5.0-pop")) == {}

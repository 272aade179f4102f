"""`get` says where its answer comes from, and where commit log, queue and index disagree about a message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.reading import get_explained
from rmqtool.findings.finding import Finding
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests import golden_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged
from tests.verify.stores import verified

SOUND = (
    "5.5.0-clean-basic",
    "4.9.7-clean-basic",
    "5.5.0-cq-ext",
    "5.5.0-delay",
    "5.5.0-expired-head",
    "5.5.0-keys-index",
    "5.5.0-lmq",
    "5.5.0-properties",
    "5.5.0-transaction",
)


def get(path: Path, *options: object) -> tuple[int, dict[str, Any]]:
    with assert_store_unchanged(path):
        ran = rmqtool("get", path, *options, "--format", "json")
    assert ran.out, ran.err
    return ran.code, json.loads(ran.out)


@pytest.fixture
def damaged(tmp_path: Path) -> Any:
    """Makes a store with one kind of damage; its path, and the first finding with an id."""

    def make(damage: str, finding_id: str) -> tuple[Path, Finding]:
        recipe, path = RECIPES["many-files"], tmp_path / "store"
        make_store(recipe, path, "5.5.0")
        damage_store(DAMAGES[damage], path, 0, recipe.conf.settings())
        findings = verified(path, "5.5.0", settings=recipe.conf.settings())[1]
        return path, next(finding for finding in findings if finding.id == finding_id)

    return make


@pytest.mark.parametrize("name", SOUND)
def test_sound_stores_have_no_disagreement(golden: Unpacked, name: str) -> None:
    path = golden(name)
    for record in golden_stores.manifest(name).records[:40:7]:
        code, by_id = get(path, "--message-id", record.msg_id)
        assert (code, by_id["source"], by_id["disagreements"]) == (0, "log", [])
        assert by_id["log_searched"] is None
        if record.sys_flag & 12 not in (0, 8):
            continue
        queue = ("--topic", record.topic, "--queue-id", record.queue_id, "--queue-offset", record.queue_offset)
        _, by_queue = get(path, *queue)
        assert (by_queue["source"], by_queue["disagreements"]) == ("queue", [])
        for key in record.properties.get("KEYS", "").split()[:1]:
            code, by_key = get(path, "--topic", record.topic, "--key", key)
            assert (code, by_key["source"], by_key["disagreements"]) == (0, "index", [])


def test_a_message_that_the_index_lacks(damaged: Any) -> None:
    path, finding = damaged("index-wrong-hash", "index.missing-key")
    dump = rmqtool("dump", path, "--from-offset", finding.physical_offset, "--limit", 1, "--format", "json")
    (row,) = json.loads(dump.out)
    queue = ("--topic", row["topic"], "--queue-id", row["queue_id"], "--queue-offset", row["queue_offset"])
    code, answer = get(path, *queue)
    (disagreement,) = answer["disagreements"]
    assert (code, answer["status"], answer["source"]) == (0, "FOUND", "queue")
    assert (disagreement["in_queue"], disagreement["in_index"]) == (True, False)
    assert disagreement["command"] == f"rmqtool rebuild {path} --index"
    assert "consumers get it, queries by that key do not find it" in disagreement["message"]
    key = disagreement["message"].partition("under key ")[2].partition(":")[0]
    screen = rmqtool("get", path, *queue).out
    assert "from the queue" in screen
    assert f"Repair: rmqtool rebuild {path} --index" in screen

    code, answer = get(path, "--topic", row["topic"], "--key", key)
    assert row["physical_offset"] not in [found["physical_offset"] for found in answer["messages"]]
    if not answer["messages"]:
        assert (code, answer["status"], answer["log_searched"]) == (6, "QUERY_NOT_FOUND", True)
        assert [each["physical_offset"] for each in answer["disagreements"]] == [row["physical_offset"]]
    assert rmqtool("rebuild", path, "--index", "--yes").code == 0
    assert get(path, *queue)[1]["disagreements"] == []
    assert row["physical_offset"] in [
        found["physical_offset"] for found in get(path, "--topic", row["topic"], "--key", key)[1]["messages"]
    ]


def test_a_message_that_its_queue_lacks(damaged: Any) -> None:
    path, finding = damaged("queue-behind", "consumequeue.missing-unit")
    queue = ("--topic", finding.topic, "--queue-id", finding.queue_id, "--queue-offset", finding.queue_offset)
    code, answer = get(path, *queue)
    assert (code, answer["messages"], answer["log_searched"]) == (6, [], True)
    assert [each["queue_offset"] for each in answer["disagreements"]] == [finding.queue_offset]
    dump = rmqtool("dump", path, "--topic", finding.topic, "--queue-id", finding.queue_id, "--format", "json")
    row = next(row for row in json.loads(dump.out) if row["queue_offset"] == finding.queue_offset)
    code, answer = get(path, "--message-id", row["message_id"])
    (disagreement,) = answer["disagreements"]
    assert (code, answer["source"]) == (0, "log")
    assert (disagreement["in_queue"], disagreement["in_index"]) == (False, True)
    assert disagreement["command"] == f"rmqtool rebuild {path} --queues"
    assert "consumers do not get it, queries by key find it" in disagreement["message"]


def test_a_large_log_is_not_searched(golden: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    path = golden("5.5.0-clean-basic")
    code, answer = get(path, "--topic", "TopicTest", "--key", "no such key")
    assert (code, answer["log_searched"], answer["disagreements"]) == (6, True, [])
    monkeypatch.setattr(get_explained, "SEARCHED_MAX", 0)
    code, answer = get(path, "--topic", "TopicTest", "--key", "no such key")
    assert (code, answer["log_searched"]) == (6, False)
    assert "was not searched" in rmqtool("get", path, "--topic", "TopicTest", "--key", "no such key").err


def test_a_queue_that_leads_to_a_message_of_another_one(damaged: Any) -> None:
    path, finding = damaged("queue-other-record", "consumequeue.wrong-record")
    queue = ("--topic", finding.topic, "--queue-id", finding.queue_id, "--queue-offset", finding.queue_offset)
    _, answer = get(path, *queue)
    (row,) = answer["messages"]
    assert row["queue_offset"] != finding.queue_offset or row["topic"] != finding.topic
    assert answer["disagreements"]
    assert rmqtool("rebuild", path, "--queues", "--yes").code == 0
    assert get(path, *queue)[1]["disagreements"] == []

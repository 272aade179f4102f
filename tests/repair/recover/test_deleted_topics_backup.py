"""A lost topics.json whose backup still names a topic that somebody deleted: nothing of it comes back unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import life_stores
from tests.commands.transcripts import json_answer, rmqtool
from tests.conftest import Unpacked
from tests.forecast.test_floor import served
from tests.store_state import store_state


def with_older_copy(path: Path) -> None:
    """Empty topics.json; the copy is from before the deletion."""
    topics = path / "config/topics.json"
    config = json.loads(topics.read_text())
    config["topicConfigTable"]["orders"] = {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    (path / "config/topics.json.bak").write_text(json.dumps(config))
    topics.write_text("")


@pytest.mark.parametrize("name", ["deleted-topic-4.9.7", "deleted-topic-5.5.0"])
def test_what_a_backup_still_names_is_asked(golden_copy: Unpacked, name: str) -> None:
    path, version = golden_copy(name), life_stores.life_store(name).asked
    with_older_copy(path)
    state = store_state(path)
    _, forecast = json_answer("forecast", path, "--broker-version", version)
    assert (forecast["needs_decision"], "rebuild" in str(forecast["next_step"]["reason"])) == (True, True)
    for command in (("recover",), ("recover", "--full"), ("rebuild",), ("salvage",)):
        ran = rmqtool(*command, path, "--yes", "--broker-version", version)
        assert (ran.code, store_state(path) == state) == (3, True), ran
    _, plan = json_answer("recover", path, "--dry-run", "--broker-version", version)
    assert plan["needs_decision"]
    assert {left["id"] for left in plan["remaining"]} == {"topic.may-be-deleted", "config.backup-better"}
    for command in (("rebuild", "--topic", "orders"), ("recover",)):  # which a person has decided
        rmqtool(command[0], path, *command[1:], "--yes", "--broker-version", version)
    assert sum(place[0] == "orders" for place in served(path, version)) == 72
    assert rmqtool("verify", path, "--broker-version", version).code == 0

"""`rebuild --topics`: what real brokers wrote comes again, or is a guess; tests/broker/test_topics.py asks brokers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

RECIPE = RECIPES["basic"]
TOPICS = "config/topics.json"
OWN = (
    "rmq_sys_",
    "default",
    "benchmark",
    "offset_moved",
    "schedule_",
    "self_test",
    "tbw102",
    "broker-a",
    "trans_check",
)
"""Topics that a broker makes at each start."""
COUNTS = ("readQueueNums", "writeQueueNums")
DELAY, TRANSACTION = {"attributes": {"message.type": "DELAY"}}, {"attributes": {"message.type": "TRANSACTION"}}


def lose(path: Path) -> dict[str, Any]:
    """Remove the file and its copy; what was in the file."""
    content: dict[str, Any] = json.loads((path / TOPICS).read_text())
    (path / TOPICS).unlink()
    (path / f"{TOPICS}.bak").unlink(missing_ok=True)
    return content


def rebuild(path: Path, *options: object) -> tuple[int, dict[str, Any]]:
    ran = rmqtool("rebuild", path, "--topics", "--format", "json", *options)
    return ran.code, json.loads(ran.out)


def table(path: Path) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads((path / TOPICS).read_text())["topicConfigTable"]
    return entries


@pytest.mark.parametrize(
    ("name", "guessed"),
    [
        ("broker-4.9.7-mixed-clean", {}),
        ("broker-4.9.7-mixed-killed", dict.fromkeys(("reminders", "transfers"), dict.fromkeys(COUNTS, 3))),
        ("broker-4.9.7-retry-clean", {}),
        (
            "broker-5.5.0-mixed-clean",
            {"reminders": DELAY, "transfers": {**TRANSACTION, **dict.fromkeys(COUNTS, 2)}},
        ),
        ("broker-5.5.0-batchcq", {}),
        ("broker-5.5.0-compaction", {}),
        ("broker-5.5.0-lmq", {}),
        ("broker-5.5.0-longtopic", {}),
        ("broker-5.5.0-pop", {}),
        ("broker-5.5.0-timer", {"alarms": DELAY}),
    ],
)
def test_what_a_real_broker_wrote_comes_again(golden_copy: Unpacked, name: str, guessed: dict[str, Any]) -> None:
    """But for topics without a message, queues after the last one with a message, and types that nobody set."""
    path = golden_copy(name)
    real = lose(path)["topicConfigTable"]
    code, plan = rebuild(path, "--broker-version", name[7:12], "--yes")
    assert code == (3 if (path / "abort").exists() else 0), plan  # a crashed store has more to repair
    expected = {topic: real[topic] | guessed.get(topic, {}) for topic in table(path)}
    assert table(path) == expected
    without = {topic for topic in real.keys() - expected.keys() if not topic.lower().startswith(OWN)}
    assert all(topic.startswith("%RETRY%") for topic in without)
    assert len([note for note in plan["notes"] if "guessed" in note]) == len(expected)


@pytest.mark.parametrize("has_copy", [False, True])
def test_sound_entries_of_a_file_that_a_broker_refuses_stay(store: Path, *, has_copy: bool) -> None:
    content = json.loads((store / TOPICS).read_text())
    first, *others = sorted(content["topicConfigTable"])
    if has_copy:
        shutil.copy(store / TOPICS, store / f"{TOPICS}.bak")
    changed = {topic: entry | {"perm": 4} for topic, entry in content["topicConfigTable"].items()}
    (store / TOPICS).write_text(json.dumps({**content, "topicConfigTable": {**changed, first: 5}}))
    code, plan = rebuild(store, "--yes")
    assert code == 0, plan
    kept = {topic: entry["perm"] for topic, entry in table(store).items()}
    assert kept == {first: 6, **dict.fromkeys(others, 4)}
    assert f"topic {first}: its entry is not that of a topic" in plan["notes"]
    assert any(f"topic {first}: guessed" in note for note in plan["notes"]) is not has_copy


def test_an_entry_gets_its_name_and_keeps_the_rest(store: Path) -> None:
    content = json.loads((store / TOPICS).read_text())
    first, second = sorted(content["topicConfigTable"])[:2]
    before = json.loads(json.dumps(content["topicConfigTable"]))
    del content["topicConfigTable"][first]["topicName"]
    content["topicConfigTable"][second]["topicName"] = "Other"
    (store / TOPICS).write_text(json.dumps(content))
    code, plan = rebuild(store, "--yes")
    assert (code, table(store)) == (0, before), plan
    assert plan["notes"] == [
        f"topic {first}: its entry had no topicName", f"topic {second}: its entry had the topicName Other"
    ]  # fmt: skip


def test_topics_that_are_there_stay_as_they_are(store: Path) -> None:
    content = json.loads((store / TOPICS).read_text())
    first = min(content["topicConfigTable"])
    del content["topicConfigTable"][first]
    content["topicConfigTable"]["unused"] = {"perm": 2, "topicName": "unused"}
    content["dataVersion"] = {"counter": 7, "stateVersion": 3, "timestamp": 5}
    (store / TOPICS).write_text(json.dumps(content))
    before = table(store)
    assert rebuild(store, "--yes")[0] == 0
    assert {topic: entry for topic, entry in table(store).items() if topic != first} == before
    assert first in table(store)
    assert json.loads((store / TOPICS).read_text())["dataVersion"] == {"counter": 8, "stateVersion": 3, "timestamp": 5}
    assert rebuild(store, "--yes")[1]["steps"] == []


@pytest.mark.parametrize("name", ["topics-cut", "topic-forgotten"])
def test_damage_is_repaired_and_undone(store: Path, name: str) -> None:
    damage_store(DAMAGES[name], store, settings=RECIPE.conf.settings())
    broken = (store / TOPICS).read_bytes()
    with assert_store_unchanged(store):
        code, plan = rebuild(store, "--dry-run")
    assert (code, [step["file"] for step in plan["steps"]]) == (3, [TOPICS])
    assert rebuild(store, "--yes")[0] == 0
    findings = json.loads(rmqtool("verify", store, "--format", "json").out)["summary"]["findings"]
    assert not [kind for kind in findings if kind.startswith("config.")]
    assert rmqtool("undo", store, "--yes").code == 0
    assert (store / TOPICS).read_bytes() == broken


def test_the_copy_counts_where_the_file_is_lost(store: Path) -> None:
    (store / TOPICS).rename(store / f"{TOPICS}.bak")
    _, plan = rebuild(store, "--dry-run")
    assert (plan["steps"], plan["notes"][0]) == ([], f"{TOPICS}.bak has all topics that have queues")


def test_a_queue_id_that_no_topic_has_is_left_out(store: Path) -> None:
    lose(store)
    queue = next((store / "consumequeue").glob("*/0"))
    shutil.copytree(queue, queue.parent / "2147483647")
    shutil.copytree(queue, store / "consumequeue/half\\ud800 \"name'/65536")
    rebuild(store, "--yes")
    assert all(entry["readQueueNums"] <= 4 for entry in table(store).values())
    assert len(table(store)) == len({path.parent.name for path in (store / "consumequeue").glob("*/[0-9]")})


def test_what_cannot_be_known_is_refused(store: Path) -> None:
    ran = rmqtool("rebuild", store, "--topics", "--queues")
    assert (ran.code, "--topics: rebuild the topics alone" in ran.err) == (2, True)
    shutil.rmtree(store / "consumequeue")
    ran = rmqtool("rebuild", store, "--topics", "--yes")
    assert (ran.code, "run rmqtool recover first, then rebuild the topics" in ran.err) == (4, True)


def test_a_broker_does_not_start_without_the_topics_of_batch_queues(golden_copy: Unpacked) -> None:
    """Until they are rebuilt; tests/broker/test_topics.py asks the broker."""
    path = golden_copy("broker-5.5.0-batchcq")
    lose(path)
    line = ("--broker-version", "5.5.0", "--format", "json")
    (path / "abort").unlink()
    assert json.loads(rmqtool("forecast", path, *line).out)["verdict"] == "will-not-start"
    for broken in ("", '{"topicConfigTable":{'):
        (path / TOPICS).write_text(broken)
        assert json.loads(rmqtool("forecast", path, *line).out)["verdict"] == "will-not-start"
    (path / TOPICS).unlink()
    (path / "config/subscriptionGroup.json").write_text('{"subscriptionGroupTable":{}}')
    for command in ("forecast", "verify"):
        answer = json.loads(rmqtool(command, path, *line).out)
        answer = answer.get("summary", answer)
        assert answer["verdict"] == "will-not-start"
        step = answer["next_step"]["command"].split()
        assert step[:4] == ["rmqtool", "rebuild", str(path), "--topics"]
    assert rmqtool(*step[1:], "--yes").code == 0
    assert json.loads(rmqtool("forecast", path, *line).out)["verdict"] == "ok"

"""`rebuild --compaction`: compacted topics again, from the commit log and what their files still have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

GOLDEN = "broker-5.5.0-compaction"
QUEUE = "compaction/compactionCq/settings/0/00000000000000000000"


def compacted(path: Path) -> list[tuple[int, int, str]]:
    rows: list[dict[str, Any]] = [
        json.loads(line)
        for line in rmqtool("dump", path / "compaction/compactionLog", "--format", "jsonl").out.splitlines()
    ]
    return sorted((row["queue_id"], row["queue_offset"], row["keys"][0]) for row in rows if "keys" in row)


def last_of_keys(rows: list[tuple[int, int, str]]) -> dict[tuple[int, str], int]:
    return {(queue_id, key): offset for queue_id, offset, key in rows}


def findings(path: Path) -> set[str]:
    rows = rmqtool("verify", path, "--format", "jsonl").out.splitlines()
    return {row["id"] for line in rows if "id" in (row := json.loads(line))}


def test_all_messages_of_the_log_are_written_where_nothing_is_left(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN)
    before = compacted(path)
    for file in path.glob("compaction/compaction*/*/*/*"):
        if file.name.startswith("00000000000000000"):
            file.write_bytes(bytes(file.stat().st_size))
    assert findings(path) == {"compaction.missing-message"}
    rebuilt = rmqtool("rebuild", path, "--compaction", "--yes")
    assert rebuilt.code == 0, rebuilt.err
    after = compacted(path)
    assert (len(after), findings(path)) == (500, set())
    assert last_of_keys(before).items() <= last_of_keys(after).items()
    assert not list(path.glob("compaction/position-checkpoint*"))
    assert rmqtool("undo", path, "--yes").code == 0
    assert findings(path) == {"compaction.missing-message"}


def test_messages_that_the_log_does_not_have_are_kept(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN)
    before = compacted(path)
    topics = path / "config/topics.json"
    topics.write_text(topics.read_text().replace('"COMPACTION"', '"DELETE"'))  # so the commit log is not asked
    with (path / QUEUE).open("r+b") as file:
        file.write(bytes(92))
    assert findings(path) >= {"compaction.missing-unit"}
    assert rmqtool("rebuild", path, "--compaction", "--yes").code == 0
    assert compacted(path) == before


def test_a_topic_that_leads_outside_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    make_store(RECIPES["basic"], path, "5.5.0")
    damage_store(DAMAGES["log-topic-outside"], path, 0, RECIPES["basic"].conf.settings())
    rows = [json.loads(line) for line in rmqtool("verify", path, "--format", "jsonl").out.splitlines()]
    (topic,) = {row["topic"] for row in rows if row.get("id") == "consumequeue.unsafe-name"}
    topics = path / "config/topics.json"
    config = json.loads(topics.read_text())
    config["topicConfigTable"][topic] = {"attributes": {"cleanup.policy": "COMPACTION"}}
    topics.write_text(json.dumps(config))
    assert "compaction.missing-message" not in findings(path)
    plan = rmqtool("rebuild", path, "--compaction", "--dry-run")
    assert "compacted topics match the commit log" in plan.out, plan.err
    assert "internal error" not in rmqtool("recover", path, "--dry-run").err


def test_nothing_is_changed_where_nothing_is_wrong(golden_copy: Unpacked) -> None:
    plan = rmqtool("rebuild", golden_copy(GOLDEN), "--compaction", "--dry-run")
    assert (plan.code, "compacted topics match the commit log" in plan.out) == (0, True)


def test_it_is_rebuilt_alone_and_by_brokers_that_know_it(golden_copy: Unpacked) -> None:
    path = golden_copy(GOLDEN)
    assert rmqtool("rebuild", path, "--compaction", "--queues").code == 2
    assert rmqtool("rebuild", path, "--compaction", "--broker-version", "4.9.7").code == 4

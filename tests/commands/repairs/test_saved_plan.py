"""Plans that `--plan` saves, where other bytes are written each time: databases in RocksDB, and the timer."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.rocksdb_cases import edit

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "schema" / "plan.json").read_text("utf-8"))
VERSION = ("--broker-version", "5.5.0")


@pytest.mark.parametrize("command", [("convert", "--queues", "rocksdb"), ("rebuild", "--queues")])
def test_a_saved_plan_of_queues_in_rocksdb_can_be_applied(
    golden_copy: Unpacked, tmp_path: Path, command: tuple[str, ...]
) -> None:
    path, saved = golden_copy("5.5.0-transaction"), tmp_path / "plan.json"
    name, *options = command
    if name == "rebuild":
        assert rmqtool("convert", path, "--queues", "rocksdb", *VERSION, "--yes").code == 0
        edit(path, lambda units, _ends: units.delete(next(iter(units.keys()))))
    assert rmqtool(name, path, *options, *VERSION, "--plan", saved).code == 3
    plan = json.loads(saved.read_text("utf-8"))
    assert schema_errors(plan["steps"], SCHEMA["properties"]["steps"]) == []
    written = [step for step in plan["steps"] if "rows" in step]
    assert written

    for step in written:
        step["rows"] = "sha256:" + "0" * 64
    (tmp_path / "other.json").write_text(json.dumps(plan), "utf-8")
    refused = rmqtool(name, path, *options, *VERSION, "--apply", tmp_path / "other.json", "--yes")
    assert refused.code == 5
    assert "steps differ" in refused.out + refused.err

    applied = rmqtool(name, path, *options, *VERSION, "--apply", saved, "--yes")
    assert applied.code == 0, applied.out + applied.err


def test_a_saved_plan_of_the_timer_can_be_applied_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, saved = tmp_path / "store", tmp_path / "plan.json"
    make_store(RECIPES["timer"], path, "5.5.0")
    (path / "timerwheel").write_bytes(b"short")
    configuration = tmp_path / "broker.conf"
    configuration.write_text(f"mappedFileSizeTimerLog={1 << 20}\n")
    options = ("--timer", "--broker-conf", configuration)
    assert rmqtool("rebuild", path, *options, "--plan", saved).code == 3
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    applied = rmqtool("rebuild", path, *options, "--apply", saved, "--yes")
    assert applied.code == 0, applied.out + applied.err

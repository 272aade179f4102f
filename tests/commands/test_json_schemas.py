"""Every command's JSON is what its schema says, and the schemas ship with the package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands import app
from rmqtool.commands.writing import fixture
from rmqtool.report.json_schemas import SCHEMAS, schema_text
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

ROOT = Path(__file__).resolve().parents[2]
ON_SPARK = {"export", "stats", "search"}
"""tests/pipeline/test_commands.py holds their output against the schemas."""
ON_CLUSTER = {"mirror", "replay"}
"""tests/commands/cluster/test_replay.py likewise."""
AT_WORK = {"watch"}
"""tests/commands/reading/test_watch.py likewise."""
DOCUMENTS = {"report"}
"""It writes a file for people, and has no JSON of its own."""
STORE, DAMAGED = "5.5.0-crashed", "5.5.0-damage-zero-hole-abort"
RUNS: list[tuple[str, list[str]]] = [
    ("info", ["info", "STORE"]),
    ("info", ["info", "DAMAGED"]),
    ("dump", ["dump", "DAMAGED", "--limit", "300"]),
    ("dump", ["dump", "STORE/consumequeue"]),
    ("dump", ["dump", "STORE/index"]),
    ("dump", ["dump", "STORE/checkpoint"]),
    ("dump", ["dump", "DAMAGED", "--from-offset", "228590", "--limit", "2", "--hex"]),
    ("get", ["get", "STORE", "--topic", "TopicTest", "--queue-id", "0", "--queue-offset", "0"]),
    ("get", ["get", "STORE", "--topic", "TopicTest", "--key", "none"]),
    ("verify", ["verify", "DAMAGED"]),
    ("verify STORE...", ["verify", "DAMAGED", "STORE"]),
    ("forecast", ["forecast", "STORE"]),
    ("forecast", ["forecast", "DAMAGED", "--broker-version", "all"]),
    ("forecast", ["forecast", "DAMAGED", "--to", "4.4.0"]),
    ("diff", ["diff", "STORE", "STORE"]),
    ("diff --make-manifest", ["diff", "STORE", "--make-manifest", "TMP/manifest"]),
    ("recover", ["recover", "STORE", "--dry-run"]),
    ("recover", ["recover", "STORE"]),
    ("rebuild", ["rebuild", "STORE", "--dry-run"]),
    ("convert", ["convert", "CLEAN", "--queues", "rocksdb", "--dry-run"]),
    ("patch", ["patch", "CLEAN/commitlog/00000000000000000000", "--at", "0", "--set", "queue_id=3", "--dry-run"]),
    ("salvage", ["salvage", "DAMAGED", "--yes", "--output", "TMP/copy"]),
    ("salvage", ["salvage", "OWN", "--yes"]),
    ("undo", ["undo", "OWN", "--list"]),
    ("undo", ["undo", "OWN", "--yes"]),
    ("extract", ["extract", "STORE", "--topic", "TopicTest", "--output", "TMP/part"]),
    ("merge", ["merge", "STORE", "--output", "TMP/merged", "--dry-run"]),
    ("salvage --export", ["salvage", "DAMAGED", "--export", "TMP/export"]),
    ("append", ["append", "TMP/new", "--create", "--topic", "T", "--queue-id", "0", "--body", "x", "--count", "2"]),
    ("evidence", ["evidence", "STORE", "--output", "TMP/bundle"]),
    ("fixture list", ["fixture", "list"]),
    ("fixture damage", ["fixture", "damage", "log-bit-flip-late", "TMP/made"]),
    ("fixture check", ["fixture", "check", "TMP/made"]),
    ("formats", ["formats"]),
    ("formats", ["formats", "message-v1"]),
]


def checked(output: str, form: str, schema: dict[str, Any], *, is_object: bool) -> int:
    """Hold output against a schema; how many values there were."""
    values = [json.loads(line) for line in output.splitlines()] if form == "jsonl" else json.loads(output)
    values = [values] if is_object and form == "json" else values
    for value in values:
        assert schema_errors(value, schema) == []
    return len(values)


def test_every_command_has_a_schema() -> None:
    commands = {*app.COMMANDS} - {"fixture", "browse"} - DOCUMENTS
    commands |= {f"fixture {action}" for action in fixture.ACTIONS} - {"fixture make"}
    forms = {name for name in SCHEMAS if " --" in name or name.startswith("-") or name.endswith("...")}
    assert SCHEMAS.keys() - forms == commands
    assert {name for name, _ in RUNS} | ON_SPARK | ON_CLUSTER | AT_WORK | {"--progress json"} == set(SCHEMAS)


def test_the_output_of_every_command_is_what_its_schema_says(
    golden: Unpacked, golden_copy: Unpacked, tmp_path: Path
) -> None:
    own = golden_copy(DAMAGED)
    assert rmqtool("fixture", "make", "crashed", tmp_path / "made").code == 0
    places = {
        "STORE": golden(STORE),
        "CLEAN": golden("5.5.0-clean-basic"),
        "DAMAGED": golden(DAMAGED),
        "OWN": own,
        "TMP": tmp_path,
    }
    counts: dict[str, int] = {}
    for name, command in RUNS:
        words = list(command)
        for word, path in places.items():
            words = [text.replace(word, str(path)) if text.startswith(word) else text for text in words]
        ran = rmqtool(*words, "--format", "json")
        assert ran.code in (0, 3, 5, 6), (command, ran.err)
        text = schema_text(name)
        assert text is not None
        is_object = not ran.out.startswith("[")
        counts[name] = counts.get(name, 0) + checked(ran.out, "json", json.loads(text), is_object=is_object)
    assert all(counts.values()), counts
    shutil.rmtree(tmp_path / "made")


def test_progress_is_what_its_schema_says(golden: Unpacked) -> None:
    schema = json.loads(schema_text("progress") or "")
    for command in (["verify"], ["forecast", "--broker-version", "all"]):
        ran = rmqtool(command[0], golden(STORE), *command[1:], "--progress", "json")
        lines = [line for line in ran.err.splitlines() if line.startswith("{")]
        assert lines
        for line in lines:
            assert schema_errors(json.loads(line), schema) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_printed(name: str) -> None:
    schema = json.loads(rmqtool("formats", "--json-schema", name).out)
    assert schema["$id"].startswith("rmqtool:")
    page = ROOT / "docs" / "schema" / f"{SCHEMAS[name]}.json"
    assert schema == json.loads(page.read_text("utf-8"))


def test_a_schema_that_does_not_exist_is_refused() -> None:
    ran = rmqtool("formats", "--json-schema", "verfy")
    assert ran.code == 2
    assert "did you mean verify?" in ran.err
    assert rmqtool("formats", "message-v1", "--json-schema", "verify").code == 2
    assert schema_text("../schema/verify") is None


def test_every_schema_is_of_some_output() -> None:
    assert {path.stem for path in (ROOT / "docs" / "schema").glob("*.json")} == set(SCHEMAS.values())

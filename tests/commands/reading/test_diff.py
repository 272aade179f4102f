"""`diff` as scripts meet it: rows, exit codes, manifests, wrong usage, and that it changes nothing."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.reading.diff import FIELDS
from tests.commands.schema_check import schema_errors
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

SCHEMA = json.loads((Path(__file__).resolve().parents[3] / "docs" / "schema" / "diff.json").read_text("utf-8"))
BASE = "5.5.0-damage-base"
DAMAGED = "5.5.0-damage-zero-hole"


def diff(*words: object) -> Ran:
    ran = rmqtool("diff", *words)
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    return ran


def objects(ran: Ran) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [error for row in rows for error in schema_errors(row, SCHEMA)] == []
    return rows


@pytest.mark.parametrize("name", [BASE, DAMAGED, "5.5.0-expired-head", "5.5.0-transaction", "5.5.0-clean-empty"])
def test_json_keeps_to_its_schema(golden: Unpacked, name: str) -> None:
    with assert_store_unchanged(golden(name)):
        ran = diff(golden(BASE), golden(name), "--format", "json")
    found = json.loads(ran.out)
    assert schema_errors(found, SCHEMA) == []
    assert ran.code == (0 if name == BASE else 3)
    assert found["equal"] == (name == BASE)
    rows = objects(diff(golden(BASE), golden(name), "--format", "jsonl"))
    assert [row["type"] for row in rows][-1] == "summary"
    assert rows[: len(found["differences"])] == found["differences"]
    assert {key: rows[-1][key] for key in ("messages", "topics")} == {key: found[key] for key in ("messages", "topics")}


def test_csv_has_a_row_for_each_difference(golden: Unpacked) -> None:
    ran = diff(golden(BASE), golden(DAMAGED), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert list(rows[0]) == list(FIELDS)
    assert [row["type"] for row in rows] == ["only-a"] * 4
    assert rows[0]["physical_offset"] == "228590"


def test_the_limit_bounds_lists_and_no_counts(golden: Unpacked) -> None:
    found = json.loads(diff(golden(BASE), golden("5.5.0-expired-head"), "--limit", 3, "--format", "json").out)
    assert [row["type"] for row in found["differences"]] == ["only-a"] * 3 + ["only-b"] * 3
    assert found["messages"]["only_a"] == 200
    assert len(found["queues"]) == 3
    assert found["queue_difference_count"] == 6


@pytest.mark.parametrize("detail", ["messages", "blocks"])
@pytest.mark.parametrize("name", [BASE, DAMAGED])
def test_a_manifest_stands_for_the_store(golden: Unpacked, tmp_path: Path, detail: str, name: str) -> None:
    path = tmp_path / "manifest"
    with assert_store_unchanged(golden(name)):
        made = diff("--make-manifest", path, golden(name), "--detail", detail, "--format", "jsonl")
    assert made.code == 0
    (said,) = objects(made)
    assert said["messages"] == (200 if name == BASE else 196)
    assert said["manifest_bytes"] == path.stat().st_size
    found = diff(golden(BASE), "--manifest", path, "--format", "json")
    assert schema_errors(json.loads(found.out), SCHEMA) == []
    assert found.code == (0 if name == BASE else 3)
    assert diff(golden(BASE), "--manifest", path).code == found.code


def test_a_manifest_keeps_what_tells_messages_apart(golden: Unpacked, tmp_path: Path) -> None:
    path = tmp_path / "manifest"
    assert diff("--make-manifest", path, golden(BASE), "--identity", "content").code == 0
    assert diff(golden(BASE), "--manifest", path).code == 0
    ran = diff(golden(BASE), "--manifest", path, "--identity", "unique-key")
    assert (ran.code, ran.err) == (2, "rmqtool: --identity unique-key: the manifest was made with content\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to compare with"),
        (["B", "--manifest", "m"], "STORE_B and --manifest exclude each other"),
        (["--manifest", "m", "--make-manifest", "n"], "--manifest and --make-manifest exclude each other"),
        (["--manifest", "m", "--commitlog-b", "d"], "--commitlog-b needs STORE_B"),
    ],
)
def test_wrong_usage(golden: Unpacked, words: list[str], said: str) -> None:
    ran = diff(golden(BASE), *words)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_manifest_may_not_lie_in_the_store(golden: Unpacked, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(golden(BASE))
    for place in (golden(BASE) / "m", golden(BASE) / "commitlog" / "m", link / "m"):
        with assert_store_unchanged(golden(BASE)):
            ran = diff("--make-manifest", place, golden(BASE))
        assert ran.code == 5
    assert diff("--make-manifest", tmp_path / "absent" / "m", golden(BASE)).code == 4


@pytest.mark.parametrize("name", ["absent", "5.5.0-damage-base/config"])
def test_what_is_no_store_is_said(golden: Unpacked, tmp_path: Path, name: str) -> None:
    golden(BASE)
    ran = diff(golden(BASE), golden(BASE).parent / name)
    assert ran.code == 4
    assert ran.err.count("\n") == 1
    assert diff(golden(BASE), "--manifest", tmp_path / "absent").code == 4


def test_dledger_is_not_read(golden: Unpacked) -> None:
    ran = diff(golden("broker-5.3.3-dledger"), golden("broker-5.3.3-dledger"))
    assert ran.code == 4
    assert "DLedger" in ran.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_code_4(golden: Unpacked, golden_copy: Unpacked) -> None:
    path = golden_copy(BASE)
    (path / "commitlog" / "00000000000000065536").chmod(0)
    assert diff(golden(BASE), path).code == 4


def test_a_log_on_another_disk(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    path = golden_copy(BASE)
    (path / "commitlog").rename(tmp_path / "elsewhere")
    assert diff(golden(BASE), path, "--commitlog-b", tmp_path / "elsewhere").code == 0
    assert diff(path, golden(BASE), "--commitlog-a", tmp_path / "elsewhere").code == 0
    assert diff(path, golden(BASE)).code == 3


def test_settings_with_bare_numbers_beside_texts_are_compared(golden: Unpacked, golden_copy: Unpacked) -> None:
    path = golden_copy(BASE)
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "delayOffset.json").write_text('{"offsetTable": {"a": {1: 5, "x": [{2: 3, "y": 4}]}}}', "utf-8")
    (row,) = json.loads(diff(golden(BASE), path, "--format", "json").out)["config"]
    assert row["b"] == {"1": 5, "x": [{"2": 3, "y": 4}]}


def test_settings_and_queues_that_differ(golden: Unpacked, golden_copy: Unpacked) -> None:
    path = golden_copy(BASE)
    (path / "config").mkdir(exist_ok=True)
    offsets = {"offsetTable": {"TopicTest@group": {0: 5}}, "dataVersion": {"counter": 1}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps(offsets), "utf-8")
    queue = path / "consumequeue" / "Audit" / "0"
    max(queue.iterdir()).unlink()
    found = json.loads(diff(golden(BASE), path, "--format", "json").out)
    assert found["relation"] == "equal"
    assert found["config"] == [
        {
            "file": "config/consumerOffset.json",
            "table": "offsetTable",
            "entry": "TopicTest@group",
            "a": None,
            "b": {"0": 5},
        }
    ]
    assert [(row["topic"], row["queue_id"]) for row in found["queues"]] == [("Audit", 0)]
    assert diff(golden(BASE), path).code == 3
    assert diff(golden(BASE), path, "--as", "messages").code == 0

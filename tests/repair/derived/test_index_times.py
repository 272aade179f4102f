"""The times of index files that a repair builds, where a record has a store time that no broker writes."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.index import IndexHeader
from tests.commands.transcripts import rmqtool

STORE_TIME_AT = 56
IMPOSSIBLE = (-1_795_444_927_792, 0, (1 << 62) + 1)


def store(path: Path, time_ms: int) -> Path:
    """A store without an index whose first record has another store time."""
    make_store(RECIPES["basic"], path, "5.5.0")
    log = min((path / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(STORE_TIME_AT)
        file.write(struct.pack(">q", time_ms))
    shutil.rmtree(path / "index")
    return path


@pytest.mark.parametrize("time_ms", IMPOSSIBLE)
def test_keys_are_served_by_the_built_index(tmp_path: Path, time_ms: int) -> None:
    path = store(tmp_path / "store", time_ms)
    built = rmqtool("rebuild", path, "--index", "--index-slots", "100", "--index-entries", "200", "--yes")
    assert "index." not in built.out, built.out
    findings = json.loads(rmqtool("verify", path, "--format", "json", "--index-slots", "100").out)["findings"]
    assert [finding for finding in findings if finding["id"].startswith("index.")] == []
    times = [IndexHeader.parse(file.read_bytes()[:40]) for file in sorted((path / "index").iterdir())]
    assert all(0 < header.begin_timestamp_ms <= header.end_timestamp_ms < 1 << 45 for header in times)
    rows = [json.loads(line) for line in rmqtool("dump", path, "--format", "jsonl", "--raw").out.splitlines()]
    keyed = [row for row in rows if row.get("keys") and row["physical_offset"]][:50]
    assert keyed
    for row in keyed:
        (key, *_) = row["keys"] if isinstance(row["keys"], list) else row["keys"].split()
        answer = rmqtool("get", path, "--topic", row["topic"], "--key", key, "--format", "jsonl")
        assert str(row["physical_offset"]) in answer.out

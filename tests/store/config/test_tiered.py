"""What a broker knows of its tiered store is read, whatever stands in the file, and leads to no path outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.store.config.tiered import METADATA, is_coda, read_tiered
from rmqtool.store.file_kinds import name_hash
from rmqtool.store.view import DirectoryView

ROOT = f"{name_hash('cluster')}_cluster"
NAME = f"{name_hash('0')}{0:020d}"


def store_with(tmp_path: Path, tables: Any) -> DirectoryView:
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / METADATA).write_text(json.dumps(tables))
    return DirectoryView(tmp_path)


def log_of(owner: str, **segment: Any) -> dict[str, Any]:
    return {"commitLogFileSegmentTable": {owner: {"0": {"size": 100, "status": 1, **segment}}}}


def test_segments_are_found_in_the_directory_of_the_cluster(tmp_path: Path) -> None:
    segment = tmp_path / ROOT / "broker/topic/0/COMMIT_LOG" / NAME
    segment.parent.mkdir(parents=True)
    segment.write_bytes(bytes(60))
    tiered = read_tiered(store_with(tmp_path, log_of("broker/topic/0")))
    assert tiered.root == ROOT
    assert tiered.is_used
    (found,) = tiered.segments
    assert (found.kind, found.start, found.size) == ("COMMIT_LOG", 0, 100)
    assert found.path == str(segment.relative_to(tmp_path))
    assert found.entry is not None
    assert found.entry.size == 60


def test_segments_that_lie_elsewhere_have_no_file(tmp_path: Path) -> None:
    tiered = read_tiered(store_with(tmp_path, log_of("broker/topic/0")))
    assert tiered.root is None
    assert [(segment.path, segment.entry) for segment in tiered.segments] == [
        (f"broker/topic/0/COMMIT_LOG/{NAME}", None)
    ]


@pytest.mark.parametrize(
    "tables",
    [
        log_of("../outside"),
        log_of("/etc"),
        log_of("a//b"),
        log_of("a/./b"),
        log_of("a\0b"),
        log_of("broker/topic/0", size=-1),
        log_of("broker/topic/0", size=1 << 63),
        log_of("broker/topic/0", size=None),
        log_of("broker/topic/0", status=2),
        {"commitLogFileSegmentTable": {"a": {"x": {"size": 1}, "0": 7}}},
        {"commitLogFileSegmentTable": []},
        {},
    ],
)
def test_what_is_no_segment_is_left_out(tmp_path: Path, tables: Any) -> None:
    assert read_tiered(store_with(tmp_path, tables)).segments == ()


def test_metadata_that_is_broken_counts_as_used(tmp_path: Path) -> None:
    view = store_with(tmp_path, {})
    assert not read_tiered(view).is_used
    (tmp_path / METADATA).write_text("{")
    assert read_tiered(view).is_used
    (tmp_path / METADATA).unlink()
    assert not read_tiered(view).is_used


@pytest.mark.parametrize(
    ("size", "head", "ends"),
    [(16, "00000010cbd43194", True), (17, "00000010cbd43194", False), (16, "00000010cbd43195", False)],
)
def test_the_end_of_an_old_segment(size: int, head: str, ends: bool) -> None:
    assert is_coda(size, bytes.fromhex(head)) is ends

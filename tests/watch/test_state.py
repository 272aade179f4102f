"""A state file of a watch is taken as it was written, or refused: whatever stands in it, nothing else is raised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.segments.log_position import Position
from rmqtool.errors import RefusedError
from rmqtool.watch.state import WatchState, load_state


def saved(folder: Path, **changes: Any) -> Path:
    path = folder / "watch.state"
    WatchState(Position(4096, 4000, "ab"), 0).save(path)
    document = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(document | changes), "utf-8")
    return path


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert load_state(saved(tmp_path), tmp_path / "store") == WatchState(Position(4096, 4000, "ab"), 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"restart_end": float("inf")},
        {"position": {"physical_offset": 1 << 63}},
        {"position": {"physical_offset": -1}},
        {"position": {"physical_offset": "7"}},
        {"position": {"physical_offset": 7, "last_record": []}},
        {"position": {"physical_offset": 7, "mark": 1}},
        {"position": []},
        {"counts": None},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="damaged"):
        load_state(saved(tmp_path, **changes), tmp_path / "store")


def test_a_state_of_any_depth_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_text(path.read_text("utf-8")[:40] + "[" * 100_000, "utf-8")
    with pytest.raises(RefusedError, match="damaged"):
        load_state(path, tmp_path / "store")

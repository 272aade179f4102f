"""A broker that loads the store after it was planned for and before a fence stood: nothing of ours is done to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, WriteError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.store_paths import StorePaths, is_fenced
from rmqtool.repair.machine.undo import is_unsettled, undo_latest
from rmqtool.store import probe_lock
from rmqtool.store.file_kinds import FENCE_NAME
from tests.repair.small_stores import FILLER, PLANS, Counting, fail_with, files_of, recovery


@pytest.mark.parametrize("name", PLANS)
def test_a_file_that_goes_before_the_fence_stands(places: StorePaths, tmp_path: Path, name: str) -> None:
    """A broker deletes queue files as it loads, before it meets the lock."""
    gone = places.root / FILLER

    def load(change: str, path: Path) -> None:
        if change == "link" and path.name == FENCE_NAME:
            gone.unlink()

    expected = {path: state for path, state in files_of(places.root).items() if path != FILLER}
    with pytest.raises(RefusedError, match="changed since the plan was made"):
        apply_plan(PLANS[name](places, tmp_path), places, disk=Disk(load))
    assert not is_fenced(places)
    assert not is_unsettled(places)
    after = files_of(places.root)
    assert {path for path in after if not path.startswith(".rmqtool")} == expected.keys()
    assert [path for path, state in expected.items() if state.digest and after[path] != state] == []


def test_a_broker_that_loads_as_the_fence_comes(
    places: StorePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(change: str, path: Path) -> None:
        if change == "link" and path.name == FENCE_NAME:
            monkeypatch.setattr(probe_lock, "processes_mapping", lambda _directories: (4711,))

    before = files_of(places.root)
    with pytest.raises(RefusedError, match="pid 4711"):
        apply_plan(recovery(places, tmp_path), places, disk=Disk(load))
    assert not is_fenced(places)
    assert files_of(places.root) == before


def test_an_undo_that_fails_says_how_to_go_on(places: StorePaths, tmp_path: Path) -> None:
    apply_plan(recovery(places, tmp_path), places)
    watch = Counting()
    undo_latest(places, Disk(watch))
    apply_plan(recovery(places, tmp_path), places)
    with pytest.raises(WriteError, match="no broker loads the store until you run rmqtool undo"):
        undo_latest(places, Disk(Counting(watch.count // 2, fail_with(28))))
    assert is_fenced(places)
    undo_latest(places)
    assert not is_fenced(places)

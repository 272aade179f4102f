"""What a killed repair was building goes with its undo, or stays where only its user may remove it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rmqtool.errors import UnreadableError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.journal import journals
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import repairs, settle, undo_latest
from tests.repair.small_stores import Counting, files_of, killed_at, recovery, small_store


@pytest.mark.parametrize("end", [undo_latest, settle])
def test_the_staging_of_a_killed_run_goes(places: StorePaths, tmp_path: Path, end: object) -> None:
    before = files_of(places.root)
    watch = Counting(70)
    assert killed_at(70, lambda disk: apply_plan(recovery(places, tmp_path), places, disk=disk))
    left = places.staging / "4711-0" / "consumequeue"
    left.mkdir(parents=True)
    (left / "file").write_bytes(b"built")
    assert callable(end)
    end(places)
    assert files_of(places.root) == before, watch.changes
    assert not (places.root / OWN_DIRECTORY).exists()


def test_empty_directories_of_a_killed_run_go_beside_the_store_too(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / ".rmqtool" / "undo").mkdir(parents=True)
    places = StorePaths(small_store(tmp_path / "store"), undo_directory=kept)
    with Session(places) as session:
        session.remove_left()
    assert list(kept.iterdir()) == []


def test_a_time_that_no_calendar_has_is_damage(places: StorePaths, tmp_path: Path) -> None:
    apply_plan(recovery(places, tmp_path), places)
    manifest = journals(places)[0].folder / "manifest"
    path = places.root / manifest.path
    record = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**record, "began_ms": 1 << 60}))
    with pytest.raises(UnreadableError, match="damaged"):
        repairs(places)

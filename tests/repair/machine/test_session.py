"""The store's lock is held from before the first step on, staging is a run's own, and nothing is left of either."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import settle, undo_latest
from tests.repair.small_stores import PLANS, cutting, killed_at, recovery, small_store
from tests.store_state import FileState, assert_store_unchanged, store_state

HOLD = (
    "import sys; from pathlib import Path; from rmqtool.repair.machine.store_paths import StorePaths\n"
    "from rmqtool.repair.machine.session import Session\n"
    "session = Session(StorePaths(Path(sys.argv[1])), makes_file=False)\n"
    "with session, session.staging() as staging:\n"
    "    (staging / 'built').write_bytes(b'x'); print(staging, flush=True); sys.stdin.read()"
)


@contextmanager
def another_run(root: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another rmqtool that plans a repair of a store, and the directory in which it builds."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        yield run, Path(run.stdout.readline().strip())
        run.communicate("")


@pytest.mark.parametrize("has_lock", [True, False], ids=["lock", "no lock"])
def test_a_second_run_is_refused_and_told_who_is_at_work(places: StorePaths, tmp_path: Path, has_lock: bool) -> None:
    """Also where no broker was ever started, so that there is no file to lock."""
    if not has_lock:
        (places.root / "lock").unlink()
    plan = cutting(places, tmp_path)
    with another_run(places.root) as (run, staging), assert_store_unchanged(places.root):
        for second in (lambda: Session(places), lambda: apply_plan(plan, places)):
            with pytest.raises(RefusedError, match="is repairing this store") as told:
                second()
            assert re.search(rf"another rmqtool \(pid {run.pid}, since \d{{4}}-\d\d-\d\dT", str(told.value))
        assert (staging / "built").exists()
    assert not (places.root / OWN_DIRECTORY).exists()
    assert (places.root / "lock").exists() == has_lock
    apply_plan(plan, places)


def test_what_a_killed_run_left_is_removed_by_the_next_one(places: StorePaths) -> None:
    with another_run(places.root) as (run, left):
        run.kill()
        run.wait()
        assert (left / "built").exists()
        with Session(places) as session, session.staging() as staging:
            assert not left.exists()
            assert list(places.staging.iterdir()) == [staging]
    assert not (places.root / OWN_DIRECTORY).exists()


def test_nothing_shows_of_a_run_that_changed_nothing(places: StorePaths) -> None:
    (places.root / "lock").unlink()
    with (
        assert_store_unchanged(places.root),
        Session(places, makes_file=False) as session,
        session.staging() as staging,
    ):
        (staging / "built").write_bytes(b"x")


@pytest.mark.parametrize("name", PLANS)
def test_undo_restores_the_time_of_the_store_and_leaves_nothing(places: StorePaths, name: str) -> None:
    before = store_state(places.root)
    with Session(places, makes_file=False) as session, session.staging() as staging:
        apply_plan(PLANS[name](places, staging), places, session=session)
    assert store_state(places.root)["."].mtime_ns != before["."].mtime_ns
    undo_latest(places)
    assert store_state(places.root) == before


@pytest.mark.parametrize("content", [None, b"", b"busy"])
def test_a_repair_and_its_undo_leave_the_lock_file_as_it_was(places: StorePaths, content: bytes | None) -> None:
    before = _with_lock(places, content)
    with Session(places, makes_file=False) as session, session.staging() as staging:
        apply_plan(recovery(places, staging), places, session=session)
        assert (places.root / "lock").exists()
    assert store_state(places.root).get("lock") == before.get("lock")
    undo_latest(places)
    assert store_state(places.root) == before


@pytest.mark.parametrize("content", [None, b"busy"])
@pytest.mark.parametrize("command", [undo_latest, settle])
def test_undo_restores_the_lock_file_after_a_killed_repair(
    places: StorePaths, content: bytes | None, command: Callable[[StorePaths], object]
) -> None:
    before = _with_lock(places, content)
    assert killed_at(24, lambda disk: _recovered(places, disk))
    assert (places.root / "lock").exists()
    command(places)
    undo_latest(places)  # removes what the killed run has built
    assert store_state(places.root) == before


def _recovered(places: StorePaths, disk: Disk) -> None:
    with Session(places, disk, makes_file=False) as session, session.staging() as staging:
        apply_plan(recovery(places, staging), places, session=session)


def _with_lock(places: StorePaths, content: bytes | None) -> dict[str, FileState]:
    lock = places.root / "lock"
    lock.unlink()
    if content is not None:
        lock.write_bytes(content)
        os.utime(lock, ns=(10**18, 10**18))
    os.utime(places.root, ns=(10**18, 10**18))
    return store_state(places.root)


def test_undo_restores_the_time_of_a_directory_that_a_link_leads_to(tmp_path: Path) -> None:
    root, log = small_store(tmp_path / "store"), tmp_path / "log"
    (root / "commitlog").rename(log)
    (root / "commitlog").symlink_to(log)
    os.utime(root, ns=(10**18, 10**18))
    before = (store_state(root), store_state(log))
    places = StorePaths(root)
    with Session(places, makes_file=False) as session, session.staging() as staging:
        apply_plan(cutting(places, staging), places, session=session)
    assert store_state(log)["."] != before[1]["."]
    undo_latest(StorePaths(root))
    assert (store_state(root), store_state(log)) == before
    assert not (tmp_path / ".rmqtool").exists()


def test_several_repairs_and_their_undo_leave_nothing(places: StorePaths, tmp_path: Path) -> None:
    before = store_state(places.root)
    for make in (recovery, cutting):
        apply_plan(make(places, tmp_path), places)
    undo_latest(places)
    undo_latest(places)
    assert store_state(places.root) == before

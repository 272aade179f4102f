"""A plan is carried out whole, keeps what a repair must keep, and is refused where it does not fit the store."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, UnsupportedError, UsageError, WriteError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.digest import BuiltFile
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.journal import JournalState, journals
from rmqtool.repair.machine.plan import view_over
from rmqtool.repair.machine.steps import create_file, write_range
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import undo_latest
from rmqtool.store.file_kinds import FENCE_NAME
from rmqtool.store.source import Literal, read_range
from rmqtool.store.view import DirectoryView
from tests.repair.small_stores import (
    LOG,
    NEW_QUEUE,
    PLANS,
    QUEUE,
    SHORT_QUEUE,
    YEAR_2020_NS,
    Counting,
    another_disk,
    cutting,
    files_of,
    plan_of,
    recovery,
    small_store,
)
from tests.store_state import assert_store_unchanged


@pytest.mark.parametrize("name", PLANS)
def test_the_store_becomes_what_the_plan_showed(places: StorePaths, tmp_path: Path, name: str) -> None:
    plan = PLANS[name](places, tmp_path)
    shown = view_over(DirectoryView(places.root), plan.steps)
    expected = {path: _content(shown, path) for path in _paths(shown)}
    applied = apply_plan(plan, places)
    after = DirectoryView(places.root)
    assert {path: _content(after, path) for path in _paths(after)} == expected
    assert [journal.state for journal in journals(places)] == [JournalState.DONE]
    assert applied.undo == places.undo / "1"
    assert applied.to_json()["applied"] is True
    assert not (places.root / "commitlog" / FENCE_NAME).exists()
    assert not places.staging.exists()


def test_owner_mode_and_time_are_kept(places: StorePaths, tmp_path: Path) -> None:
    before = files_of(places.root)
    apply_plan(recovery(places, tmp_path), places)
    after = files_of(places.root)
    for path in (LOG, QUEUE, SHORT_QUEUE, "checkpoint"):
        assert after[path].digest != before[path].digest
        kept = (before[path].mode, before[path].owner, before[path].mtime_ns)
        assert (after[path].mode, after[path].owner, after[path].mtime_ns) == kept
    assert after[NEW_QUEUE].mtime_ns == YEAR_2020_NS + 5
    assert after[NEW_QUEUE].owner == before[QUEUE].owner


def test_abort_goes_behind_all_else_and_the_fence_last(places: StorePaths, tmp_path: Path) -> None:
    watch = Counting()
    apply_plan(recovery(places, tmp_path), places, disk=Disk(watch))
    in_store = [change for change in watch.changes if f"{places.root}/." not in change and "fsync" not in change]
    assert in_store[-1] == f"unlink {places.fences[0]}"
    assert f"link {places.fences[0]}" in in_store
    moved = next(number for number, change in enumerate(watch.changes) if change.endswith("undo/1/files/6"))
    later = watch.changes[moved + 1 :]
    assert not any(str(places.root / path) in change for change in later for path in (LOG, QUEUE, NEW_QUEUE))


def test_a_plan_is_made_and_shown_without_a_change(places: StorePaths, tmp_path: Path) -> None:
    with assert_store_unchanged(places.root):
        plan = recovery(places, tmp_path)
        plan.to_json()
        view_over(DirectoryView(places.root), plan.steps).list("")


def test_the_same_plan_is_not_applied_twice(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    apply_plan(plan, places)
    before = files_of(places.root)
    with pytest.raises(RefusedError, match="changed since"):
        apply_plan(plan, places)
    assert files_of(places.root) == before


def test_a_store_that_changed_is_refused(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    os.utime(places.root / "config/topics.json")
    before = files_of(places.root)
    with pytest.raises(RefusedError):
        apply_plan(plan, places)
    assert files_of(places.root) == before


def test_content_that_changed_under_the_same_time_is_refused(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    found = (places.root / QUEUE).stat()
    with (places.root / QUEUE).open("r+b") as file:
        file.seek(3100)
        file.write(b"x")
    os.utime(places.root / QUEUE, ns=(found.st_atime_ns, found.st_mtime_ns))
    before = files_of(places.root)
    with pytest.raises(RefusedError, match=QUEUE):
        apply_plan(plan, places)
    assert files_of(places.root) == before


def test_a_plan_of_another_store_is_refused(places: StorePaths, tmp_path: Path) -> None:
    other = StorePaths(small_store(tmp_path / "other"))
    before = files_of(other.root)
    with pytest.raises(RefusedError, match="not the store"):
        apply_plan(recovery(places, tmp_path), other)
    assert files_of(other.root) == before


def test_a_held_lock_is_refused(places: StorePaths, tmp_path: Path) -> None:
    apply_plan(recovery(places, tmp_path), places)
    plan = cutting(places, tmp_path)
    before = files_of(places.root)
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX, 1, 0);"
        " print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(places.root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RefusedError, match="lock"):
            apply_plan(plan, places)
        with pytest.raises(RefusedError, match="lock"):
            undo_latest(places)
    finally:
        holder.communicate()
    assert files_of(places.root) == before


def test_the_lock_is_kept_to_the_end(places: StorePaths, tmp_path: Path) -> None:
    """Another process asks at every change; closing a second descriptor of `lock` would have dropped it."""
    answers: set[bytes] = set()
    ask = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\n"
        "try:\n fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n print('free')\n"
        "except OSError:\n print('held')"
    )

    def watch(change: str, place: Path) -> None:
        if change in ("unlink", "link") or place.name == "checkpoint":
            answers.add(subprocess.check_output([sys.executable, "-c", ask, str(places.root / "lock")]))

    apply_plan(recovery(places, tmp_path), places, disk=Disk(watch))
    assert answers == {b"held\n"}
    with (places.root / "lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def test_an_interrupt_takes_everything_back(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    before, handler = files_of(places.root), signal.getsignal(signal.SIGINT)  # a shell's background ignores it
    asked: list[str] = []

    def watch(change: str, place: Path) -> None:
        if place == places.root / QUEUE and not asked:
            asked.append(change)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        apply_plan(plan, places, disk=Disk(watch))
    assert asked
    assert files_of(places.root) == before
    assert signal.getsignal(signal.SIGINT) is handler


def test_what_reads_back_wrong_is_taken_back(places: StorePaths, tmp_path: Path) -> None:
    plan = recovery(places, tmp_path)
    before = files_of(places.root)
    wrong = replace(plan, steps=tuple(replace(step, after="sparse-sha256:0") for step in plan.steps[1:2]))
    with pytest.raises(WriteError, match="read-back"):
        apply_plan(wrong, places)
    assert files_of(places.root) == before


@pytest.mark.parametrize("is_known", [True, False], ids=["read by a check", "read by nobody"])
def test_a_built_file_that_changes_before_it_is_read_back_is_refused(places: StorePaths, *, is_known: bool) -> None:
    before = files_of(places.root)
    places.staging.mkdir(parents=True)
    path = places.staging / "queue"
    path.write_bytes(b"\7" * 6000)
    built = BuiltFile.whole(path)
    plan = plan_of(places, [create_file(DirectoryView(places.root), NEW_QUEUE, built, "built")])
    if is_known:
        with closing(view_over(DirectoryView(places.root), plan.steps).open(NEW_QUEUE)) as source:
            read_range(source, 0, 6000)
    assert (built.known_digest is not None) is is_known

    def change(*_: object) -> None:
        if path.exists():
            path.write_bytes(b"\6" * 6000)

    with pytest.raises(WriteError, match="read-back"):
        apply_plan(plan, places, disk=Disk(change))
    assert files_of(places.root) == before


def test_an_undo_directory_takes_the_old_files(places: StorePaths, tmp_path: Path) -> None:
    before = files_of(places.root)
    kept = tmp_path / "kept"
    kept.mkdir()
    places = StorePaths(places.root, undo_directory=kept)
    apply_plan(recovery(places, tmp_path), places)
    assert [path for path in kept.rglob("*") if path.is_file()]
    assert not list((places.undo / "1").rglob("files/*"))
    undo_latest(places)
    assert files_of(places.root) == before
    assert not list(kept.iterdir())


@pytest.mark.parametrize("name", PLANS)
def test_an_undo_directory_on_another_disk(places: StorePaths, tmp_path: Path, name: str) -> None:
    with another_disk(tmp_path) as disk:
        if disk is None:
            pytest.skip("no second file system to write to")
        plan = PLANS[name](places, tmp_path)
        before = {path: state for path, state in files_of(places.root).items() if not path.startswith(".rmqtool")}
        places = StorePaths(places.root, undo_directory=disk)
        apply_plan(plan, places)
        undo_latest(places)
        assert files_of(places.root) == before
        assert not list(disk.iterdir())


@pytest.mark.parametrize("is_linked", [True, False], ids=["linked", "named"])
def test_a_log_on_another_disk_has_its_journal_there(tmp_path: Path, is_linked: bool) -> None:
    with another_disk(tmp_path) as disk:
        if disk is None:
            pytest.skip("no second file system to write to")
        root = small_store(tmp_path / "store")
        log = disk / "log"
        (root / "commitlog").rename(tmp_path / "log")
        subprocess.run(["cp", "-a", tmp_path / "log", log], check=True)
        if is_linked:
            (root / "commitlog").symlink_to(log)
        places = StorePaths(root, ("commitlog" if is_linked else str(log),))
        before = (files_of(root), files_of(log))
        apply_plan(cutting(places, tmp_path), places)
        assert [path.name for path in (disk / ".rmqtool/undo").iterdir()] == [f"{places.identity}-1"]
        assert max(path.name for path in log.iterdir()) == "00000000000000524288"
        undo_latest(places)
        assert (files_of(root), files_of(log)) == before
        assert sorted(path.name for path in disk.iterdir()) == ["log"]


def test_paths_that_lead_elsewhere_are_refused(places: StorePaths, tmp_path: Path) -> None:
    view = DirectoryView(places.root)
    (places.root / "consumequeue/Linked").symlink_to(tmp_path)
    (places.root / "stray").symlink_to(tmp_path)
    good = create_file(view, "consumequeue/T/0/0", Literal(b"x"), "made")
    for path in ("../out", "/mnt/out", "a//b", "stray/file", "lock", ".rmqtool/x", f"commitlog/{FENCE_NAME}", "a\0b"):
        with pytest.raises(WriteError):
            apply_plan(plan_of(places, [replace(good, path=path)]), places)
    assert not (tmp_path / "file").exists()


def test_steps_that_contradict_each_other_are_refused(places: StorePaths, tmp_path: Path) -> None:
    view = DirectoryView(places.root)
    first = write_range(view, QUEUE, 0, Literal(b"abcd"), "first")
    second = write_range(view, QUEUE, 3, Literal(b"efgh"), "second")
    with pytest.raises(UsageError, match=QUEUE):
        apply_plan(plan_of(places, [first, second]), places)
    with pytest.raises(UsageError):
        apply_plan(plan_of(places, []), places)
    with pytest.raises(UsageError, match="inside the store"):
        apply_plan(recovery(places, tmp_path), StorePaths(places.root, undo_directory=places.root / "config"))


def test_a_store_without_a_log_has_no_place_for_the_fence(places: StorePaths, tmp_path: Path) -> None:
    shutil.rmtree(places.root / "commitlog")
    plan = plan_of(places, [write_range(DirectoryView(places.root), QUEUE, 0, Literal(b"x"), "one")])
    with assert_store_unchanged(places.root), pytest.raises(UnsupportedError, match="commitlog"):
        apply_plan(plan, places)


def test_a_disk_without_room_is_an_error_before_anything_is_changed(
    places: StorePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = recovery(places, tmp_path)
    before = files_of(places.root)
    real = os.statvfs(places.root)
    full = os.statvfs_result((real.f_bsize, real.f_frsize, real.f_blocks, 0, 0, 1, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(WriteError, match="free"):
        apply_plan(plan, places)
    assert files_of(places.root) == before


def _paths(view: DirectoryView, directory: str = "") -> list[str]:
    found: list[str] = []
    for entry in view.list(directory):
        if entry.name in (".rmqtool", "lock"):
            continue
        found += _paths(view, entry.path) if entry.is_directory else [entry.path]
    return found


def _content(view: DirectoryView, path: str) -> tuple[int, bytes]:
    source = view.open(path)
    buffer = bytearray(source.size)
    assert source.read_into(0, memoryview(buffer)) == source.size
    source.close()
    entry = view.stat(path)
    assert entry is not None
    assert entry.size == source.size
    return (0 if path == NEW_QUEUE else entry.mtime_ns, bytes(buffer))

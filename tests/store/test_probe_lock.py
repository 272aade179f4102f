"""The state of a broker's lock is told from outside, and asking never lets go of a lock that this process holds."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.store.probe_lock import Lock, LockStatus, lock_report, lock_state, processes_mapping

pytestmark = pytest.mark.usefixtures("all_processes")

HOLDER = """
import fcntl, mmap, sys
how, path = sys.argv[1:]
file = open(path, "r+b")
if how == "byte":
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
elif how == "all":
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
elif how == "second-byte":
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 1)
elif how == "flock":
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
elif how == "map":
    mapped = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.read()
"""
TAKES_IT = """
import fcntl, sys
try:
    fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    print("refused")
else:
    print("taken")
"""


@contextmanager
def holder(how: str, path: Path) -> Iterator[int]:
    """A second process that holds something on a file; its pid."""
    command = [sys.executable, "-c", HOLDER, how, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        try:
            yield running.pid
        finally:
            running.communicate("")


def second_process_takes(path: Path) -> str:
    command = [sys.executable, "-c", TAKES_IT, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "lock").write_bytes(b"lock")
    for database in ("rocksdbstore", "consumequeue"):
        (tmp_path / database).mkdir()
        (tmp_path / database / "LOCK").touch()
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(4096))
    return tmp_path


def test_a_brokers_lock_is_seen_with_its_owner_and_gone_with_it(root: Path) -> None:
    assert lock_state(root) == Lock("lock", LockStatus.FREE)
    with holder("byte", root / "lock") as pid:
        assert lock_state(root) == Lock("lock", LockStatus.HELD, pid)
        assert lock_report(root).is_in_use
    assert lock_state(root) == Lock("lock", LockStatus.FREE)
    assert not lock_report(root).is_in_use


def test_asking_takes_nothing(root: Path) -> None:
    lock_report(root)
    assert second_process_takes(root / "lock") == "taken"


@pytest.mark.parametrize("how", ["flock", "second-byte"])
def test_another_kind_of_lock_is_not_the_brokers(root: Path, how: str) -> None:
    with holder(how, root / "lock"):
        assert lock_state(root).status is LockStatus.FREE


@pytest.mark.parametrize("database", ["rocksdbstore/LOCK", "consumequeue/LOCK"])
def test_a_broker_that_still_loads_is_seen_by_its_databases(root: Path, database: str) -> None:
    with holder("all", root / database) as pid:
        report = lock_report(root)
        assert report.lock.status is LockStatus.FREE
        assert [lock for lock in report.databases if lock.status is LockStatus.HELD] == [
            Lock(database, LockStatus.HELD, pid)
        ]
        assert report.is_in_use


def test_a_process_that_maps_the_log_is_seen(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("with a blank\nand a break")
    (elsewhere / "segment").write_bytes(bytes(4096))
    link = root / "log"
    link.symlink_to(elsewhere)
    with holder("map", root / "commitlog" / ("0" * 20)) as pid, holder("map", elsewhere / "segment") as other_pid:
        assert processes_mapping([root]) == (pid,)
        assert set(lock_report(root, [link]).mapping_pids) == {pid, other_pid}
        assert lock_report(root).is_in_use
    assert processes_mapping([root, link]) == ()


def test_a_lock_that_this_process_holds_is_seen_and_kept(root: Path) -> None:
    gc.collect()  # what other tests left open is closed now, and not between the two looks
    before = set(Path("/proc/self/fd").iterdir())
    with (root / "lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        assert lock_state(root) == Lock("lock", LockStatus.HELD, os.getpid())
        assert lock_report(root).is_in_use
        assert second_process_takes(root / "lock") == "refused"
        fcntl.lockf(file, fcntl.LOCK_UN, 1, 0)
        assert lock_state(root).status is LockStatus.FREE
        with holder("byte", root / "lock") as pid:
            assert lock_state(root) == Lock("lock", LockStatus.HELD, pid)
    assert set(Path("/proc/self/fd").iterdir()) <= before


def test_absent_and_unknown_are_not_free(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "consumequeue/LOCK").unlink()
    assert lock_state(root, "consumequeue/LOCK").status is LockStatus.ABSENT
    assert lock_state(root / "nothing").status is LockStatus.ABSENT
    assert [lock.path for lock in lock_report(root).databases] == ["rocksdbstore/LOCK"]
    (root / "consumequeue/LOCK").symlink_to(root / "consumequeue/LOCK")
    assert lock_state(root, "consumequeue/LOCK").status is LockStatus.UNKNOWN
    os.mkfifo(root / "fifo")
    assert lock_state(root, "fifo") == Lock("fifo", LockStatus.UNKNOWN, problem="fifo: not a regular file")

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert lock_state(root) == Lock("lock", LockStatus.UNKNOWN, problem="lock: permission denied")

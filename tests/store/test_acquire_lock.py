"""The broker's lock is taken as the broker takes it, held on one descriptor, and refused where somebody has it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, WriteError
from rmqtool.store import acquire_lock
from rmqtool.store.acquire_lock import StoreLock
from rmqtool.store.probe_lock import LockStatus, lock_state

TRY = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"


def others_can_lock(path: Path) -> bool:
    """Whether another process gets the lock that a broker wants."""
    return subprocess.run([sys.executable, "-c", TRY, path], check=False, capture_output=True).returncode == 0


def test_nobody_else_gets_the_lock_while_it_is_held(tmp_path: Path) -> None:
    with StoreLock(tmp_path):
        assert not others_can_lock(tmp_path / "lock")
    assert others_can_lock(tmp_path / "lock")
    assert (tmp_path / "lock").read_bytes() == b"lock"


def test_looking_at_the_lock_does_not_drop_it(tmp_path: Path) -> None:
    with StoreLock(tmp_path):
        assert lock_state(tmp_path).status is LockStatus.HELD
        assert not others_can_lock(tmp_path / "lock")


def test_a_lock_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"lock")
    acquire_lock = TRY + "; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", acquire_lock, tmp_path / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "held\n"
        with pytest.raises(RefusedError, match="a broker holds the lock"):
            StoreLock(tmp_path)
        broker.communicate("")
    StoreLock(tmp_path).close()


def test_an_advisory_lock_of_another_kind_is_no_broker(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with subprocess.Popen([sys.executable, "-c", TRY, tmp_path / "lock"]) as other:
            assert other.wait() == 0


def test_a_database_that_is_open_is_a_broker_that_loads(tmp_path: Path) -> None:
    (tmp_path / "rocksdbstore").mkdir()
    database = tmp_path / "rocksdbstore" / "LOCK"
    database.touch()
    acquire_lock = TRY.replace(", 1, 0)", ")") + "; print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", acquire_lock, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == "held\n"
        with pytest.raises(RefusedError, match="is loading this store"):
            StoreLock(tmp_path)
        assert others_can_lock(tmp_path / "lock")  # what was taken meanwhile is given back
        broker.communicate("")


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(WriteError):
        StoreLock(tmp_path)
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_a_run_that_ended_between_the_refusal_and_the_look_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = StoreLock(tmp_path)

    def look(_root: Path) -> None:
        other.close()

    monkeypatch.setattr(acquire_lock, "directory_holder", look)
    with StoreLock(tmp_path):
        assert not others_can_lock(tmp_path / "lock")


def test_a_run_that_cannot_be_seen_is_said_to_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquire_lock, "directory_holder", lambda _root: None)
    with (
        StoreLock(tmp_path, makes_file=False),
        pytest.raises(RefusedError, match=r"another rmqtool \(in another container or on another machine: no process"),
    ):
        StoreLock(tmp_path)

"""A mirror beside another one, on a broker's store, with thousands of topics, on a full disk: all to their end."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.commands.app import run
from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import NEWEST, rules_for
from tests.campaign.failing_disk import fill_up, small_file_system
from tests.replication.fake_master import FakeMaster
from tests.replication.mirror_runs import FILE_SIZE, copied, demand_copy, record_starts, with_flag

Unpacked = Callable[[str], Path]
SIZES = ("--config", "maxHashSlotNum=100", "--config", "maxIndexNum=400", "--config", "mappedFileSizeConsumeQueue=600")
TOPICS = 3000
FREE_BYTES = (0, 4096, 16_384, 40_000, 70_000, 100_000, 140_000, 200_000, 280_000, 360_000, 700_000)


@pytest.fixture(scope="module")
def log(golden: Unpacked) -> bytes:
    files = sorted((golden("5.5.0-clean-basic") / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files[:3])


def mirror_words(master: FakeMaster, root: Path, *more: str) -> list[str]:
    return ["mirror", str(master.address), str(root), "--log-file-size", str(FILE_SIZE), *SIZES, *more]


def tree(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Times and bytes of all files and directories."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in [root, *root.rglob("*")]
    }


def test_a_second_mirror_of_a_store_is_refused_and_changes_nothing(capsys: Any, tmp_path: Path, log: bytes) -> None:
    root = tmp_path / "copy"
    with FakeMaster(log, FILE_SIZE) as master, FakeMaster(log, FILE_SIZE) as other:
        words = mirror_words(master, root, "--build", "--format", "json")
        with subprocess.Popen([sys.executable, "-m", "rmqtool", *words], stdout=subprocess.PIPE, text=True) as first:
            deadline, before = time.monotonic() + 60, None
            while before is None or tree(root) != before:  # it has all, and nothing more to write
                assert time.monotonic() < deadline
                time.sleep(1.5)
                before = tree(root) if (root / "commitlog" / f"{2 * FILE_SIZE:020}").exists() else None
            for words in (mirror_words(master, root), mirror_words(other, root, "--new-master", "--build")):
                assert run(words) == 5
                assert f"another rmqtool (pid {first.pid}" in capsys.readouterr().err
            assert tree(root) == before
            first.terminate()
            out, _ = first.communicate(timeout=60)
        assert (first.returncode, json.loads(out)["end_offset"]) == (0, len(log))
        assert run(mirror_words(master, root, "--until", str(len(log)))) == 0
        demand_copy(root, master)


@pytest.mark.parametrize("has_copy", [True, False])
def test_a_store_that_a_broker_serves_is_refused_and_stays(
    capsys: Any, tmp_path: Path, log: bytes, *, has_copy: bool
) -> None:
    hold = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(); sys.stdin.read()"
    )
    lock = tmp_path / "lock"
    with FakeMaster(log, FILE_SIZE) as master:
        if has_copy:
            assert run(mirror_words(master, tmp_path, "--until", "50000")) == 0
        lock.write_bytes(b"lock")
        words = [sys.executable, "-c", hold, str(lock)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
            assert broker.stdout is not None
            broker.stdout.readline()
            before = tree(tmp_path)
            capsys.readouterr()
            assert run(mirror_words(master, tmp_path, "--new-master", "--build")) == 5
            assert "lock: a broker holds the lock; stop it first" in capsys.readouterr().err
            assert tree(tmp_path) == before
            broker.communicate()
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        assert run(mirror_words(master, tmp_path, "--until", str(len(log)))) == 0
        demand_copy(tmp_path, master)


def test_a_master_with_thousands_of_topics(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run is killed in the middle; the second one has to find the ends of thousands of queues."""
    source, root = tmp_path / "source", tmp_path / "copy"
    size = 1 << 20
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # of thousands of files, here; not in the first run
    with new_store(source, rules_for(NEWEST), WriterConfig(commitlog_file_size=size)) as writer:
        for round_number in range(2):
            writer.put_all(
                [
                    Message(topic=f"topic-{number}", queue_id=number % 4, body=b"%d" % round_number * 50)
                    for number in range(TOPICS)
                ]
            )
    log = b"".join(path.read_bytes() for path in sorted((source / "commitlog").iterdir()))
    end = len(log.rstrip(b"\0"))
    with FakeMaster(log, size) as master:
        words = ["mirror", str(master.address), str(root), "--log-file-size", str(size), *SIZES, "--build"]
        first = subprocess.Popen(
            [sys.executable, "-m", "rmqtool", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        master.cut_after = end // 2
        deadline = time.monotonic() + 120
        while not (root / "consumequeue" / f"topic-{TOPICS // 2}").exists():
            assert time.monotonic() < deadline
            assert first.poll() is None, first.communicate()
            time.sleep(0.05)
        first.kill()
        first.communicate()
        assert run([*words, "--until", str(end), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["end_offset"] >= end
    assert copied(root)[:end] == log[:end]
    assert len(list((root / "consumequeue").iterdir())) == TOPICS
    assert run(["verify", str(root), "--format", "json"]) in (0, 3)
    found = json.loads(capsys.readouterr().out)["summary"]["findings"]
    assert set(found) <= {"index.misordered-file", "index.duplicate-entry"}, found


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_full_disk_ends_a_mirror_and_the_next_run_continues(
    capsys: Any, tmp_path: Path, log: bytes, kind: str
) -> None:
    size = 1 << 20 if kind == "tmpfs" else 4 << 20
    codes: list[int] = []
    with small_file_system(tmp_path, kind, size) as place, FakeMaster(log, FILE_SIZE) as master:
        if place is None:
            pytest.skip(f"this user may not mount a {kind} file system")
        for number, free in enumerate(FREE_BYTES):
            root, filler = place / f"copy-{number}", place / "filler"
            words = mirror_words(master, root, "--build", "--until", str(len(log)), "--sync-interval", "0")
            fill_up(filler, place, free)
            codes.append(run(words))
            told = capsys.readouterr()
            if codes[-1]:
                assert "no space left on device" in told.err.lower()
                assert "Traceback" not in told.err
            if root.exists() and (root / "commitlog").exists():
                assert all(old in (0, new) for old, new in zip(copied(root), log, strict=False))
            filler.unlink()
            assert run(words) == 0
            demand_copy(root, master)
            assert run(["rebuild", str(root), "--index", "--yes"]) == 0
            assert run(["verify", str(root)]) == 0
            subprocess.run(["rm", "-r", str(root)], check=True)
            capsys.readouterr()
    assert set(codes[:4]) == {4}
    assert codes[-1] == 0


def test_a_copy_that_was_cut_follows_a_master_that_lost_its_last_messages(
    capsys: Any, tmp_path: Path, log: bytes
) -> None:
    """The new master has other records from the cut on; those that the copy had are no longer there."""
    starts = record_starts(log[:FILE_SIZE])
    with FakeMaster(log, FILE_SIZE) as master, FakeMaster(with_flag(log, starts[20]), FILE_SIZE) as other:
        assert run(mirror_words(master, tmp_path, "--build", "--until", "50000")) == 0
        words = mirror_words(other, tmp_path, "--build", "--new-master", "--until", str(len(log)))
        assert run(words) == 3
        assert "mirror.differs" in capsys.readouterr().out
        assert run(["recover", str(tmp_path), "--cut-at", str(starts[20]), "--accept-loss", "--yes"]) == 0
        assert run(words) == 0
        demand_copy(tmp_path, other)

"""File sinks: files at full length, writes by position, names that may not leave the root, errors in words."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmqtool.errors import WriteError
from rmqtool.store import sink as sink_module
from rmqtool.store.sink import DirectorySink, FileSink, TrackingSink
from tests.memory_sink import MemorySink

BAD_PATHS = [
    "/etc/passwd",
    "../outside",
    "consumequeue/../../outside",
    "consumequeue//0/x",
    "consumequeue/./x",
    "",
    "a\0b",
    "x" * 256,
    "é" * 128,
    "/".join(["x" * 200] * 30),
    "lone\ud800surrogate",
]


@pytest.fixture(params=["directory", "memory"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> FileSink:
    return DirectorySink(tmp_path) if request.param == "directory" else MemorySink()


def _content(sink: FileSink, root: Path, path: str) -> bytes:
    return bytes(sink.files[path]) if isinstance(sink, MemorySink) else (root / path).read_bytes()


def test_a_file_has_its_full_length_and_keeps_what_is_there(sink: FileSink, tmp_path: Path) -> None:
    path = "consumequeue/Topic/0/00000000000000000000"
    sink.create(path, 100)
    sink.write_at(path, 10, b"abc")
    sink.create(path, 100)
    sink.write_at(path, 98, memoryview(b"xy"))
    sink.sync(path)
    sink.sync_directory("consumequeue/Topic/0")
    sink.sync_directory("")
    sink.close()
    sink.write_at(path, 0, b"z")
    assert _content(sink, tmp_path, path) == b"z" + bytes(9) + b"abc" + bytes(85) + b"xy"


@pytest.mark.parametrize("path", BAD_PATHS)
def test_no_name_leaves_the_root(sink: FileSink, tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    inner = DirectorySink(root) if isinstance(sink, DirectorySink) else sink
    with pytest.raises(WriteError):
        inner.create(path, 10)
    with pytest.raises(WriteError):
        inner.write_at(path, 0, b"x")
    with pytest.raises(WriteError):
        inner.remove(path)
    with pytest.raises(WriteError):
        inner.sync(path)
    assert list(tmp_path.rglob("*")) == [root]


def test_a_file_must_be_made_before_it_is_written(sink: FileSink) -> None:
    with pytest.raises(WriteError, match="missing"):
        sink.write_at("index/missing", 0, b"x")


def test_a_removed_file_is_gone(sink: FileSink) -> None:
    sink.create("index/a", 4)
    sink.remove("index/a")
    with pytest.raises(WriteError):
        sink.write_at("index/a", 0, b"x")


def test_a_link_leads_on_only_where_a_broker_has_a_directory(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    other.mkdir()
    (root / "commitlog").symlink_to(other)
    (root / ".rmqtool").symlink_to(other)
    (other / "taken").symlink_to(tmp_path / "target")
    sink = DirectorySink(root)
    sink.create("commitlog/00000000000000000000", 5)
    assert (other / "00000000000000000000").stat().st_size == 5
    for path in (".rmqtool/x", "commitlog/taken"):
        with pytest.raises(WriteError):
            sink.create(path, 5)
    assert sorted(path.name for path in other.iterdir()) == ["00000000000000000000", "taken"]
    assert not (tmp_path / "target").exists()


def test_descriptors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "OPEN_MAX", 3)
    sink = DirectorySink(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        sink.create(f"index/{number}", 8)
    for number in range(20):
        sink.write_at(f"index/{number}", 0, bytes([number]))
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 3
    sink.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert [(tmp_path / "index" / str(number)).read_bytes()[0] for number in range(20)] == list(range(20))


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DirectorySink(tmp_path)
    sink.create("index/a", 10)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: whole(descriptor, bytes(data)[:3], at))
    sink.write_at("index/a", 1, b"12345678")
    assert (tmp_path / "index" / "a").read_bytes() == b"\x0012345678\0"


def test_a_full_disk_is_an_error_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DirectorySink(tmp_path)
    sink.create("index/a", 10)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(WriteError, match=r"/index/a: .*[Nn]o space"):
        sink.write_at("index/a", 0, b"x")
    assert WriteError.exit_code == 4


def test_what_was_written_is_synced_once_with_its_directories() -> None:
    synced: list[str] = []

    class Recording(MemorySink):
        def sync(self, path: str) -> None:
            super().sync(path)
            synced.append(path)

        def sync_directory(self, path: str) -> None:
            super().sync_directory(path)
            synced.append(f"{path}/")

    sink = TrackingSink(Recording())
    sink.create("index/old", 4)
    sink.create("consumequeue/Topic/0/a", 4)
    sink.create("index/gone", 4)
    sink.remove("index/gone")
    sink.sync_written()
    assert synced == [
        "consumequeue/Topic/0/a",
        "index/old",
        "/",
        "consumequeue/",
        "consumequeue/Topic/",
        "consumequeue/Topic/0/",
        "index/",
    ]
    synced.clear()
    sink.write_at("index/old", 0, b"x")
    sink.sync_written()
    sink.sync_written()
    assert synced == ["index/old"]

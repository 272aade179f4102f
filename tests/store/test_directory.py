"""A survey finds every file of a store and tells it, whatever else lies in the directory."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqtool.errors import NotAStoreError, UnreadableError
from rmqtool.store.directory import Settings, Store, survey, with_settings
from rmqtool.store.file_kinds import FileKind, kind_of, segment_name
from rmqtool.store.location import relative_to_store
from rmqtool.store.view import DirectoryView, Entry, EntryKind, StoreView, UnreadPlace, open_directory
from tests.store_state import assert_store_unchanged

FIRST = segment_name(0)


@dataclass(frozen=True)
class ForbiddingView:
    """A view whose directories of some paths may not be read, as without permission; works for root too."""

    inner: StoreView
    forbidden: frozenset[str]

    @property
    def label(self) -> str:
        return self.inner.label

    def list(self, path: str) -> list[Entry]:
        if path in self.forbidden:
            raise UnreadableError(f"{path}: permission denied")
        return self.inner.list(path)

    def stat(self, path: str) -> Entry | None:
        return self.inner.stat(path)

    def open(self, path: str) -> object:
        return self.inner.open(path)


def write(root: Path, path: str, size: int = 100) -> None:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(bytes(size))


def surveyed(root: Path, settings: Settings | None = None) -> Store:
    with assert_store_unchanged(root):
        return survey(open_directory(root), settings)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = tmp_path / "store"
    write(store, f"commitlog/{FIRST}")
    write(store, f"consumequeue/T/0/{FIRST}", 40)
    return store


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"commitlog/{FIRST}", FileKind.COMMITLOG),
        ("commitlog/0", FileKind.STRAY_COMMITLOG),
        ("commitlog/" + "9" * 20, FileKind.STRAY_COMMITLOG),  # no Java long
        (f"commitlog/{2**63 - 2**31:020d}", FileKind.COMMITLOG),
        (f"commitlog/{2**63 - 1:020d}", FileKind.STRAY_COMMITLOG),  # no file there ends at a Java long
        ("commitlog/" + "\u0660" * 20, FileKind.STRAY_COMMITLOG),  # Arabic digits
        ("commitlog/rmqtool-repair-in-progress", FileKind.RMQTOOL),
        (f"consumequeue/T/0/{FIRST}", FileKind.CONSUMEQUEUE),
        (f"consumequeue/a\nb/0/{FIRST}", FileKind.CONSUMEQUEUE),
        (f"consumequeue/T/00/{FIRST}", FileKind.STRAY_QUEUE),
        (f"consumequeue/T/x/{FIRST}", FileKind.STRAY_QUEUE),
        ("consumequeue/T/0/x\ny", FileKind.STRAY_QUEUE),
        ("consumequeue/CURRENT", FileKind.CONSUMEQUEUE_ROCKSDB),
        ("consumequeue/000012.sst", FileKind.CONSUMEQUEUE_ROCKSDB),
        ("consumequeue/LOG.old.1700000000000000", FileKind.CONSUMEQUEUE_ROCKSDB),
        ("consumequeue_rocksdb/CURRENT", FileKind.CONSUMEQUEUE_ROCKSDB),
        ("rocksdbstore/000012.sst", FileKind.ROCKSDB),
        ("index/20240102030405678", FileKind.INDEX),
        ("index/20240102030405678.bak", FileKind.STRAY_INDEX),
        ("config/topics.json.bak", FileKind.CONFIG),
        ("notes.txt", FileKind.UNKNOWN),
    ],
)
def test_a_path_tells_the_kind(path: str, kind: FileKind) -> None:
    assert kind_of(path) is kind


def test_special_files_with_a_brokers_name_are_strays_and_do_not_hang(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "commitlog" / segment_name(100))
    (root / "consumequeue/T/0" / segment_name(40)).symlink_to(root / "nowhere")
    (root / "index").mkdir()
    (root / "index" / "20240102030405678").symlink_to(root / "index" / "20240102030405678")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        (tmp_path / "s").rename(root / "checkpoint")
        store = surveyed(root)
    assert [segment.path for segment in store.commitlog] == [f"commitlog/{FIRST}"]
    assert [entry.kind for entry in store.files[FileKind.STRAY_COMMITLOG]] == [EntryKind.FIFO]
    assert [entry.kind for entry in store.files[FileKind.STRAY_QUEUE]] == [EntryKind.DANGLING]
    assert [entry.kind for entry in store.files[FileKind.STRAY_INDEX]] == [EntryKind.LOOP]
    assert [entry.path for entry in store.files[FileKind.UNKNOWN]] == ["checkpoint"]
    assert [entry.path for entry in store.nodes] == ["checkpoint"]
    assert store.problems == (UnreadPlace("checkpoint", "a socket, not a regular file"),)
    assert set(map(str, store.unread_places[1:])) == {
        f"commitlog/{segment_name(100)}: a FIFO, not a regular file",
        f"consumequeue/T/0/{segment_name(40)}: a dangling link, not a regular file",
        "index/20240102030405678: a looping link, not a regular file",
    }


def test_a_circle_of_links_ends(root: Path) -> None:
    for name in "abcdefgh":
        (root / "commitlog" / name).symlink_to(root / "commitlog")
        (root / "consumequeue" / name).symlink_to(root / "consumequeue")
        (root / "consumequeue/T" / f"{ord(name)}").symlink_to(root)
        (root / name).symlink_to(root)
    (root / "consumequeue/disk").symlink_to("/")
    store = surveyed(root)
    assert len(store.commitlog) == 1
    assert store.queues.keys() == {("T", 0)}
    assert len(store.unknown_directories) >= 16
    assert not store.problems
    assert "a/commitlog" not in store.directories
    seen = {entry.path for entries in store.files.values() for entry in entries}
    on_the_disk = {path for path in seen if path.count("/") == 2 and path.startswith("consumequeue/disk/")}
    assert seen - on_the_disk == {f"commitlog/{FIRST}", f"consumequeue/T/0/{FIRST}"}


def test_a_directory_on_another_disk_is_followed(root: Path, tmp_path: Path) -> None:
    write(tmp_path, f"disk/queue/{FIRST}", 60)
    write(tmp_path, f"disk/index/{'1' * 17}", 60)
    (root / "consumequeue/U").mkdir()
    (root / "consumequeue/U/3").symlink_to(tmp_path / "disk/queue")
    (root / "index").symlink_to(tmp_path / "disk/index")
    store = surveyed(root)
    assert store.queues.keys() == {("T", 0), ("U", 3)}
    assert [entry.path for entry in store.index_files] == [f"index/{'1' * 17}"]
    assert not store.problems


def test_a_foreign_directory_is_named(root: Path) -> None:
    write(root, "backup/one/two/three/four/file")
    store = surveyed(root)
    assert store.unknown_directories == ("backup",)
    assert "backup/one" not in store.directories
    assert not store.problems


def test_a_directory_without_permission_is_a_problem_and_not_an_absence(root: Path) -> None:
    view = ForbiddingView(open_directory(root), frozenset({"consumequeue/T"}))
    store = survey(view)  # type: ignore[arg-type]
    assert store.problems == (UnreadPlace("consumequeue/T", "permission denied"),)
    assert len(store.commitlog) == 1
    with pytest.raises(UnreadableError, match="permission denied"):
        survey(ForbiddingView(open_directory(root), frozenset({""})))  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; the test above stands in")
def test_the_operating_system_forbids_a_directory(root: Path) -> None:
    (root / "consumequeue/T").chmod(0)
    try:
        assert survey(open_directory(root)).problems[0].is_denied
    finally:
        (root / "consumequeue/T").chmod(0o700)


@pytest.mark.parametrize(
    "name",
    [
        b"caf\xe9",
        b"\xff\xfe",
        "主题".encode(),
        b"tab\there",
        b"line\nbreak",
        b"esc\x1b[31m",
        b" ",
        b"%RETRY%g",
        b"x" * 255,
    ],
)
def test_a_topic_directory_may_have_any_name(root: Path, name: bytes) -> None:
    topic = os.fsdecode(name)
    write(root, f"consumequeue/{topic}/7/{FIRST}", 20)
    store = surveyed(root)
    assert store.queues.keys() == {("T", 0), (topic, 7)}
    found = store.queues[topic, 7]
    assert found.directory == f"consumequeue/{topic}/7"
    source = store.view.open(found.segments[0].path)
    assert source.size == 20
    source.close()


def test_a_named_commitlog_replaces_the_usual_one(root: Path, tmp_path: Path) -> None:
    write(tmp_path, f"disk1/{segment_name(100)}")
    write(root, f"log-b/{segment_name(200)}")
    write(root, "log-b/stray")
    os.mkfifo(root / "log-b" / segment_name(300))
    settings = Settings(commitlog_directories=(f"{tmp_path}/disk1/", "log-b", str(tmp_path / "gone")))
    store = surveyed(root, settings)
    assert [segment.start for segment in store.commitlog] == [100, 200]
    assert store.commitlog[0].path == str(tmp_path / "disk1" / segment_name(100))
    assert [entry.path for entry in store.files[FileKind.UNKNOWN]] == [f"commitlog/{FIRST}"]
    strays = sorted(entry.name for entry in store.files[FileKind.STRAY_COMMITLOG])
    assert strays == [segment_name(300), "stray"]
    assert store.problems == (UnreadPlace(str(tmp_path / "gone"), "no such directory"),)


def test_directories_are_named_relative_to_the_store_where_they_lie_in_it(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert relative_to_store(tmp_path / "store" / "log-a", tmp_path / "store") == "log-a"
    assert relative_to_store(tmp_path / "other", tmp_path / "store") == str(tmp_path / "other")
    assert relative_to_store(loop, tmp_path / "store") == str(loop)


def test_what_a_person_leaves_open_is_taken_from_the_file() -> None:
    said = Settings(commitlog_directories=("log-a",), commitlog_file_size=65536, index_slot_count=100)
    assert with_settings(said, commitlog_directories=(), commitlog_file_size=None) == said
    assert with_settings(said, commitlog_directories=("b",), index_slot_count=5) == Settings(
        ("b",), 65536, index_slot_count=5
    )


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", Path("/dev/null"), tmp_path / "a\0b", tmp_path / "x" / "y"):
        with pytest.raises(NotAStoreError):
            open_directory(path)
    with pytest.raises(NotAStoreError, match="not a RocketMQ store"):
        surveyed(tmp_path)
    write(tmp_path, "config/topics.json")
    write(tmp_path, "lock", 4)
    write(tmp_path, "deep/er/and/deeper/commitlog/" + FIRST)
    with pytest.raises(NotAStoreError, match="not a RocketMQ store"):
        surveyed(tmp_path)


def test_a_view_tells_absent_from_unreadable(tmp_path: Path) -> None:
    view = DirectoryView(tmp_path)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert view.stat("nothing") is None
    assert view.stat("nothing/in/it") is None
    assert view.list("nothing") == []
    broken = view.stat("loop")
    assert broken is not None
    assert broken.kind is EntryKind.LOOP
    for path in ("loop/x", "n" * 300):
        with pytest.raises(UnreadableError):
            view.stat(path)
    assert view.stat("a\0b") is None
    with pytest.raises(UnreadableError):
        view.list("a\0b")

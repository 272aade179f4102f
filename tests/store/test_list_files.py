"""A walk over a store ends whatever links there are, and says where it did not look."""

from __future__ import annotations

from pathlib import Path

from rmqtool.store.list_files import DEPTH_MAX, FOREIGN_DEPTH_MAX, list_files
from rmqtool.store.view import DirectoryView


def nested(root: Path, name: str, depth: int) -> Path:
    folder = root.joinpath(name, *map(str, range(depth - 1)))
    folder.mkdir(parents=True)
    (folder / "file").touch()
    return folder


def test_files_and_directories_come_in_order(tmp_path: Path) -> None:
    for path in ("b/file", "a/file", "checkpoint"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    listing = list_files(DirectoryView(tmp_path))
    assert [entry.path for entry in listing.entries] == ["a/file", "b/file", "checkpoint"]
    assert listing.directories == ["a", "b"]
    assert listing.problems == []


def test_a_link_is_followed_where_a_broker_has_a_directory(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "topic/0").mkdir(parents=True)
    (disk / "topic/0/file").touch()
    (disk / "topic/other").symlink_to(disk)
    store = tmp_path / "store"
    store.mkdir()
    (store / "consumequeue").symlink_to(disk)
    (store / "elsewhere").symlink_to(disk)
    listing = list_files(DirectoryView(store))
    assert [entry.path for entry in listing.entries] == ["consumequeue/topic/0/file"]
    assert len(listing.problems) == 2
    assert all("symbolic link" in problem for problem in listing.problems)


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").symlink_to(tmp_path)
    listing = list_files(DirectoryView(tmp_path))
    assert len(listing.entries) == 0
    assert listing.problems


def test_how_deep_it_looks(tmp_path: Path) -> None:
    nested(tmp_path, "commitlog", DEPTH_MAX)
    nested(tmp_path, "consumequeue", DEPTH_MAX + 1)
    nested(tmp_path, "home", FOREIGN_DEPTH_MAX)
    nested(tmp_path, "other", FOREIGN_DEPTH_MAX + 1)
    listing = list_files(DirectoryView(tmp_path))
    assert {entry.path.partition("/")[0] for entry in listing.entries} == {"commitlog", "home"}
    assert len(listing.problems) == 2
    assert all("nested deeper" in problem for problem in listing.problems)


def test_below_a_directory_of_the_log_nothing_deeper_is_missed(tmp_path: Path) -> None:
    nested(tmp_path, "other", FOREIGN_DEPTH_MAX + 1)
    assert list_files(DirectoryView(tmp_path), frozenset({"other"})).problems == []

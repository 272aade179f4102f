"""A walk over a store looks where a broker has a directory, and names the others; it ends whatever links there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.store.list_files import OWN_DEPTH_MAX, ListedFile, list_files
from rmqtool.store.view import DirectoryView, Entry


class Forbidding(DirectoryView):
    """A view in which directories of some names may not be read."""

    names: frozenset[str] = frozenset()

    def list(self, path: str) -> list[Entry]:
        if path.rpartition("/")[2] in self.names:
            raise UnreadableError(f"{path}: permission denied")
        return super().list(path)


def walked(root: Path, *forbidden: str) -> ListedFile:
    view = Forbidding(root)
    object.__setattr__(view, "names", frozenset(forbidden))
    return list_files(view)


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()


def test_files_and_directories_come_in_order(tmp_path: Path) -> None:
    write(tmp_path, "index/file", "commitlog/file", "checkpoint")
    listing = walked(tmp_path)
    assert [entry.path for entry in listing.entries] == ["checkpoint", "commitlog/file", "index/file"]
    assert listing.directories == ["commitlog", "index"]
    assert (listing.unknown_directories, listing.problems) == ([], [])


@pytest.mark.parametrize(
    "path",
    [
        ".snapshot/hourly.0/store/commitlog", "backup/2026-11-01/store", "lost+found/a/b/c", "@eaDir", "home",
        "commitlog/.snapshot/hourly.0", "commitlog/lost+found", "index/@eaDir", "config/old/a", "rocksdbstore/old",
        "consumequeue/T/0/deeper/a", "consumequeue/T/x/1", "dledger-n0/other/a", "compaction/other",
    ],
)  # fmt: skip
def test_a_directory_of_no_broker_is_named_and_not_entered(tmp_path: Path, path: str) -> None:
    write(tmp_path, f"{path}/00000000000000000000")
    listing = walked(tmp_path, ".snapshot", "lost+found", "@eaDir")
    (unknown,) = listing.unknown_directories
    assert f"{path}/".startswith(f"{unknown}/")
    assert listing.directories[-1] == unknown
    assert (listing.entries, listing.problems) == ([], [])


def test_an_unreadable_directory_that_is_no_topics_is_no_problem(tmp_path: Path) -> None:
    for name in ("@eaDir", ".snapshot", "lost+found", "Orders", "%RETRY%group"):
        write(tmp_path, f"consumequeue/{name}/0/{'0' * 20}")
    names = [path.name for path in (tmp_path / "consumequeue").iterdir()]
    listing = walked(tmp_path, *names)
    assert listing.unknown_directories == ["consumequeue/.snapshot", "consumequeue/@eaDir", "consumequeue/lost+found"]
    assert sorted(map(str, listing.problems)) == [
        "consumequeue/%RETRY%group: permission denied",
        "consumequeue/Orders: permission denied",
    ]
    assert len(walked(tmp_path).entries) == len(names)


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
    assert listing.unknown_directories == ["consumequeue/topic/other", "elsewhere"]


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").symlink_to(tmp_path)
    listing = list_files(DirectoryView(tmp_path))
    assert len(listing.entries) == 0
    assert listing.directories == [
        "consumequeue",
        "consumequeue/consumequeue",
        "consumequeue/consumequeue/consumequeue",
    ]


def test_how_deep_it_looks_at_the_tools_own_files(tmp_path: Path) -> None:
    inside = "/".join((".rmqtool", *map(str, range(OWN_DEPTH_MAX - 1))))
    write(tmp_path, f"{inside}/file", f"{inside}/a/b/file")
    listing = list_files(DirectoryView(tmp_path))
    assert [entry.path for entry in listing.entries] == [f"{inside}/file"]
    assert listing.unknown_directories == [f"{inside}/a"]

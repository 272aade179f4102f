"""A directory tree in memory: read from a disk, put back on one, and compared, with hard links, owners and times."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path

OWN = ".rmqtool"
"""The tool's own directory in a store."""


@dataclass(frozen=True)
class Node:
    """One file, directory, link or pipe; `inode` is the same for two names of one file."""

    mode: int
    owner: tuple[int, int]
    mtime_ns: int
    inode: int
    content: bytes = b""
    """Of a file its bytes, of a link its target."""

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)


Tree = dict[str, Node]
"""By path, the tree's own directory as ".", each directory before what it holds."""


def capture(root: Path) -> Tree:
    """Everything below a directory as it is now; links are not followed."""
    tree: Tree = {".": _node(os.fspath(root))}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(root / folder) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            path = f"{folder}/{name}" if folder else name
            tree[path] = _node(f"{root}/{path}")
            if tree[path].is_directory:
                waiting.append(path)
    return tree


def put_back(tree: Tree, root: Path) -> None:
    """Make a directory what a tree says; whatever is in it goes."""
    root.mkdir(exist_ok=True)
    for place in root.iterdir():
        clear(place)
    named: dict[int, str] = {}
    for path, node in sorted(tree.items()):
        if path == ".":
            _give(node, os.fspath(root))
            continue
        place = os.fspath(root / path)
        if node.is_file and node.inode in named:
            os.link(named[node.inode], place)
            continue
        _make(node, place)
        named[node.inode] = place
    for path, node in sorted(tree.items(), reverse=True):
        if node.is_directory:
            os.utime(root if path == "." else root / path, ns=(node.mtime_ns, node.mtime_ns))


def clear(place: Path) -> None:
    """Remove a file, or a directory with all that is in it."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def below(tree: Tree, folder: str) -> Tree:
    """The part of a tree that lies in one of its directories."""
    inner = {path[len(folder) + 1 :]: node for path, node in tree.items() if path.startswith(f"{folder}/")}
    return {".": tree[folder], **inner}


def differences(before: Tree, after: Tree, *, times: bool = True) -> list[str]:
    """What differs between two trees, a line for each path; `times` compares modification times too."""
    lines: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            lines.append(f"{path}: {'came' if old is None else 'is gone'}")
            continue
        if old.content != new.content:
            lines.append(f"{path}: {len(old.content)} bytes became {len(new.content)} other ones")
        if (old.mode, old.owner) != (new.mode, new.owner):
            lines.append(f"{path}: mode {old.mode:o} of {old.owner} became {new.mode:o} of {new.owner}")
        if times and old.mtime_ns != new.mtime_ns:
            lines.append(f"{path}: modification time moved by {new.mtime_ns - old.mtime_ns} ns")
    return lines


def without_lock(tree: Tree) -> Tree:
    """A tree without `lock` files, which a broker and each repair write."""
    return {path: node for path, node in tree.items() if path.rpartition("/")[2] != "lock"}


def without_own(tree: Tree) -> Tree:
    """A tree without the tool's own directories, `lock` files and the directories' times that these change."""
    kept = {path: node for path, node in without_lock(tree).items() if OWN not in path.split("/")}
    return {path: replace(node, mtime_ns=0) if node.is_directory else node for path, node in kept.items()}


def _node(place: str) -> Node:
    found = os.lstat(place)
    content = b""
    if stat.S_ISREG(found.st_mode):
        with open(place, "rb", buffering=0) as file:  # noqa: PTH123 - a Path for each of a million files is too slow
            content = file.read()
    elif stat.S_ISLNK(found.st_mode):
        content = os.fsencode(os.readlink(place))  # noqa: PTH115 - likewise
    return Node(found.st_mode, (found.st_uid, found.st_gid), found.st_mtime_ns, found.st_ino, content)


def _make(node: Node, place: str) -> None:
    if node.is_directory:
        os.mkdir(place)  # noqa: PTH102 - see _node
    elif stat.S_ISLNK(node.mode):
        os.symlink(os.fsdecode(node.content), place)  # noqa: PTH211 - likewise
        return
    elif stat.S_ISFIFO(node.mode):
        os.mkfifo(place)
    else:
        with open(place, "wb", buffering=0) as file:  # noqa: PTH123 - likewise
            file.write(node.content)
    _give(node, place)


def _give(node: Node, place: str) -> None:
    if os.geteuid() == 0:
        os.chown(place, *node.owner)
    os.chmod(place, stat.S_IMODE(node.mode))  # noqa: PTH101 - likewise
    os.utime(place, ns=(node.mtime_ns, node.mtime_ns))

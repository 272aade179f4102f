"""The whole state of a directory tree, to prove that a command changed nothing in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BLOCK = 1 << 20


class FileState(NamedTuple):
    """What must stay the same; `digest` is of the content, of a link's target, or empty for what has no content."""

    mode: int
    """Type and permissions."""
    owner: tuple[int, int]
    size: int
    mtime_ns: int
    digest: str


def store_state(root: Path) -> dict[str, FileState]:
    """The state of a file or directory and of all below it, by path relative to `root`; links are not followed."""
    paths = [root, *root.rglob("*")] if root.is_dir() else [root]
    return {str(path.relative_to(root)): _state(path) for path in sorted(paths)}


@contextmanager
def assert_store_unchanged(root: Path) -> Iterator[None]:
    """Fails if anything below `root` has another content, length, mtime, mode or owner afterwards, or came or went."""
    before = store_state(root)
    yield
    after = store_state(root)
    changes = [
        f"{path}: {before.get(path, 'was not there')} -> {after.get(path, 'is gone')}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]
    assert not changes, "the store changed:\n" + "\n".join(changes)


def contents_without_journal(store: Path) -> dict[Path, bytes]:
    """What files have but the lock, once the journal of repairs is removed."""
    shutil.rmtree(store / ".rmqtool", ignore_errors=True)
    return {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "lock"}


def _state(path: Path) -> FileState:
    found = path.lstat()
    if stat.S_ISREG(found.st_mode):
        digest = _digest(path, found.st_size)
    else:
        digest = os.fspath(path.readlink()) if stat.S_ISLNK(found.st_mode) else ""
    size = 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    return FileState(found.st_mode, (found.st_uid, found.st_gid), size, found.st_mtime_ns, digest)


def _digest(path: Path, size: int) -> str:
    """A digest of the content that does not depend on where holes are, and takes no time for them."""
    digest = hashlib.blake2b()
    with path.open("rb", buffering=0) as source:
        position = 0
        while position < size:
            try:
                position = os.lseek(source.fileno(), position, os.SEEK_DATA)
            except OSError:  # nothing but a hole up to the end
                break
            position -= position % BLOCK
            block = os.pread(source.fileno(), BLOCK, position)
            if block.strip(b"\0"):
                digest.update(position.to_bytes(8, "big") + block)
            position += BLOCK
    return digest.hexdigest()

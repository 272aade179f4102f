"""Tells whether a store is still as it was: every file's path, size, modification time and inode.

`lock` is left out, for a process that holds it must not open it again and the broker writes it at each start; so is
what belongs to the tool itself.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rmqtool.errors import RefusedError, RmqtoolError, UnreadableError
from rmqtool.repair.machine.disk import within_range
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.store.file_kinds import FENCE_NAME, is_broker_directory
from rmqtool.store.list_files import list_files
from rmqtool.store.probe_lock import LOCK_NAME
from rmqtool.store.source import reason
from rmqtool.store.view import DirectoryView


@dataclass(frozen=True)
class FileState:
    """One file as the directory shows it."""

    size: int
    mtime_ns: int
    inode: int


def file_states(places: StorePaths) -> dict[str, FileState]:
    """Every file of a store by its path."""
    view = DirectoryView(places.root)
    listing = list_files(view)
    paths = {entry.path for entry in listing.entries}
    for directory in places.log_directories:
        is_listed = is_broker_directory(directory) or view.stat(directory) is None
        if directory.startswith("/") or not is_listed:
            paths |= {entry.path for entry in view.list(directory) if not entry.is_directory}
    states: dict[str, FileState] = {}
    for path in sorted(paths):
        if path == LOCK_NAME or path.startswith(f"{OWN_DIRECTORY}/") or path.rpartition("/")[2] == FENCE_NAME:
            continue
        try:
            state = (places.root / path).lstat()
        except OSError as error:
            raise UnreadableError(f"{path}: {reason(error)}") from error
        size = state.st_size if stat.S_ISREG(state.st_mode) else 0
        states[path] = FileState(size, within_range(state.st_mtime_ns), state.st_ino)
    return states


def fingerprint(places: StorePaths) -> str:
    """One text for the whole store; another one as soon as anything in it has changed."""
    digest = hashlib.sha256()
    for path, state in file_states(places).items():
        digest.update(os.fsencode(path) + f"\0{state.size}\0{state.mtime_ns}\0{state.inode}\0".encode())
    return f"sha256:{digest.hexdigest()}"


@contextmanager
def unchanged(places: StorePaths) -> Iterator[str]:
    """The fingerprint of a store that is only read meanwhile. What was read of two states is true of neither.

    Raises:
        RefusedError: the store has changed; an error that came of it is its cause.
    """
    before, failure = fingerprint(places), None
    try:
        yield before
    except RmqtoolError as error:
        failure = error
    try:
        is_still = fingerprint(places) == before
    except UnreadableError:  # a file went between the listing and the look
        is_still = False
    if not is_still:
        raise RefusedError(
            f"{places.root}: changed while it was read; a broker may be starting. Stop everything that uses the "
            f"store, and try again"
        ) from failure
    if failure is not None:
        raise failure

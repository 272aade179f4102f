"""Where the files of a store lie on this machine: a step's path becomes a file below a root that this call trusts.

Roots are the store, the log's directories that this call names, and directories to which a link of the store leads
where a broker has a directory. A link is followed to what belongs to the store's owner; else the call has to name it.

The fence is a file in each of the log's directories with which no broker loads the store, and so none deletes from it.
Broker: `MappedFileQueue#load` fails on a file of the wrong length, before anything is removed. An empty file would be
deleted instead by brokers from 5.1.3 on.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.repair.machine.disk import Disk, Metadata, partial_file
from rmqtool.repair.machine.plan import OWN_DIRECTORY, check_step_path
from rmqtool.repair.machine.root import Root, RootPath
from rmqtool.store.file_kinds import FENCE_NAME, is_broker_directory
from rmqtool.store.sink import check_path
from rmqtool.store.source import reason

_FENCE_TEXT: Final = """\
rmqtool is repairing this store, or was killed during a repair. No broker loads the store while this file is
here. Do not delete it by hand: the store may be half repaired. To restore the store, run

    rmqtool undo {root}
"""

DEFAULT_LOG: Final = ("commitlog",)
STAGING: Final = "staging"
"""Directory below `.rmqtool` in which planners build files; those that are needed whole are renamed into the store."""
UNDO: Final = "undo"


@dataclass(frozen=True)
class StorePaths:
    """A store directory and its commitlog's directories: relative to the store, absolute where they lie elsewhere."""

    root: Path
    log_directories: tuple[str, ...] = DEFAULT_LOG
    undo_directory: Path | None = None
    """Where this call keeps replaced files, if not in the store."""
    _links: dict[str, Root] = field(default_factory=dict, init=False, compare=False, repr=False)
    """Directories to which links of the store lead, by their path in the store."""

    @property
    def undo(self) -> Path:
        """The directory of the journals, one numbered folder each."""
        return self.root / OWN_DIRECTORY / UNDO

    @property
    def staging(self) -> Path:
        """Where planners build files, each run in a directory of its own."""
        return self.root / OWN_DIRECTORY / STAGING

    @property
    def fences(self) -> tuple[RootPath, ...]:
        """One in every directory of the log."""
        return tuple(self.directory(directory) / FENCE_NAME for directory in self.log_directories)

    @property
    def outer_logs(self) -> tuple[Path, ...]:
        """The log's directories that lie outside of the store."""
        return tuple(Path(directory) for directory in self.log_directories if directory.startswith("/"))

    @property
    def identity(self) -> str:
        """A short name for the store, for files in a directory that several stores may share."""
        return hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:12]

    @cached_property
    def top(self) -> RootPath:
        """The store directory, opened once."""
        return Root.open(self.root).top

    @property
    def own_top(self) -> RootPath:
        """The directory that holds everything of the tool's own."""
        return self.top / OWN_DIRECTORY

    def staged_path(self, built: Path) -> str | None:
        """The path in the store of a planner's file; None where it is elsewhere, or was moved."""
        if built.is_relative_to(self.staging):
            return str(built.relative_to(self.root))
        real, store = built.resolve(), self.root.resolve()
        return str(real.relative_to(store)) if real.is_relative_to(store / OWN_DIRECTORY / STAGING) else None

    def directory(self, path: str) -> RootPath:
        """A directory of the store by its path, which need not be there; absolute for a log elsewhere.

        Raises:
            WriteError: the path leads out of the store, or over a link where no broker has a directory.
            RefusedError: a link leads to a directory of somebody else.
        """
        if path.startswith("/"):
            if path not in self.outer_roots:
                raise WriteError(f"{path}: points outside the store")
            return self.outer_roots[path].top
        at = self.top
        names = check_path(path) if path else ()
        for depth, name in enumerate(names, 1):
            store_path = "/".join(names[:depth])
            at = self._behind_link(store_path, at / name) or at / name
        return at

    def file(self, path: str) -> RootPath:
        """A file of the store by its path, which need not be there.

        Raises:
            WriteError: the path leads elsewhere, or over a link where no broker has a directory, or is no file.
            RefusedError: a link on the way leads to a directory of somebody else.
        """
        check_step_path(path, self.log_directories)
        directory, _, name = path.rpartition("/")
        file = self.directory(directory) / name
        try:
            state = file.lstat()
        except UnreadableError as error:
            raise WriteError(str(error)) from error
        if state is not None and not stat.S_ISREG(state.st_mode):
            raise WriteError(f"{path}: not a regular file; not changed")
        return file

    def is_linked(self, file: RootPath) -> bool:
        """True if a file is outside the store in a directory that only a link of the store names."""
        named = {root.identity for root in self.outer_roots.values()}
        return file.root is not self.top.root and file.root.identity not in named

    @cached_property
    def outer_roots(self) -> dict[str, Root]:
        """The log's directories outside of the store, opened once, by path."""
        return {str(directory): Root.open(directory) for directory in self.outer_logs}

    def _behind_link(self, path: str, link: RootPath) -> RootPath | None:
        """Target of a link of the store; None without a link."""
        if path in self._links:
            return self._links[path].top
        state = link.lstat()
        if state is None or not stat.S_ISLNK(state.st_mode):
            return None
        if not is_broker_directory(path):
            raise WriteError(f"{path}: goes through a symbolic link")
        with link.entry() as (directory, name):
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
            except OSError as error:
                raise WriteError(f"{path}: {reason(error)}") from error
        root = Root(self.root / path, descriptor)
        self._demand_own_link(path, root)
        self._links[path] = root
        return root.top

    def _demand_own_link(self, path: str, root: Root) -> None:
        """Refuse a link to a directory that the store's owner has no hand in, unless this call names the directory."""
        if root.identity in {named.identity for named in self.outer_roots.values()}:
            return
        state = os.fstat(root.descriptor)
        owners = {self.top.root.owner_id} | ({os.geteuid()} if os.geteuid() else set())
        if state.st_uid not in owners:
            problem = f"belongs to user {state.st_uid}, and the store to user {self.top.root.owner_id}"
        elif state.st_mode & stat.S_IWOTH:
            problem = "is writable for everybody"
        else:
            return
        raise RefusedError(
            f"{self.root / path}: a symbolic link to {root.real_path}, which {problem}, so a repair does not "
            f"follow it; "
            f"if it is the commit log, pass --commitlog {root.real_path}"
        )


def own_like(store: RootPath) -> Metadata:
    """Metadata for the tool's own directories: the store's owner, as open as the store, never open to others."""
    metadata = Metadata.of(store)
    return replace(metadata, mode=(metadata.mode & 0o2770) | 0o700)


def own_file_like(store: RootPath) -> Metadata:
    """Metadata for the tool's own files: the store's owner, as open as the store, never open to others."""
    metadata = Metadata.of(store)
    return replace(metadata, mode=(metadata.mode & 0o660) | 0o600)


def demand_own(directory: RootPath, store: Root) -> None:
    """Refuse a directory with the name of one of the tool's own that somebody else may have put there.

    Raises:
        RefusedError: it is a link, or no directory, or somebody else's, or others may write in it.
    """
    state = directory.lstat()
    if state is None:
        return
    shared = os.fstat(store.descriptor)
    problem = None
    if stat.S_ISLNK(state.st_mode):
        problem = "a symbolic link"
    elif not stat.S_ISDIR(state.st_mode):
        problem = "no directory"
    elif state.st_uid not in (store.owner_id, os.geteuid(), 0):
        problem = f"a directory of user {state.st_uid}, and the store belongs to user {store.owner_id}"
    elif state.st_mode & stat.S_IWOTH:
        problem = "a directory that is writable for everybody"
    elif state.st_mode & stat.S_IWGRP and not (shared.st_mode & stat.S_IWGRP and shared.st_gid == state.st_gid):
        problem = f"a directory in which group {state.st_gid} may write, which may not write in the store"
    if problem is not None:
        raise RefusedError(
            f"{directory}: {problem}, where rmqtool keeps the data of repairs; nothing was changed. "
            f"Find out who created it, and move it away"
        )


def raise_fences(places: StorePaths, disk: Disk) -> None:
    """Put a fence into each directory of the log, on the disk when this returns; those that are there stay."""
    text = _FENCE_TEXT.format(root=places.root.resolve()).encode("utf-8", "backslashreplace")
    for fence in places.fences:
        if not fence.exists():
            like = Metadata.of(fence.parent)  # of its directory's owner, for everybody who may look into that
            disk.publish(fence, text, replace(like, mode=(like.mode & 0o664) | 0o600))


def lower_fences(places: StorePaths, disk: Disk) -> None:
    """Take the fences away; brokers load the store again."""
    for fence in places.fences:
        for file in (partial_file(fence), fence):
            if file.exists():
                disk.remove(file)
                disk.sync_directory(file.parent)


def is_fenced(places: StorePaths) -> bool:
    """True if any directory of the log has a fence."""
    return any(fence.exists() for fence in places.fences)

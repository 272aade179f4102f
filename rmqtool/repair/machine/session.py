"""One run that may change a store: it holds the store's lock from before its first step until after its last one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqtool.errors import RefusedError, RmqtoolError
from rmqtool.repair.machine.disk import Disk, Metadata
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.root import Root
from rmqtool.repair.machine.store_paths import STAGING, UNDO, StorePaths, demand_own, own_file_like, own_like
from rmqtool.store.acquire_lock import StoreLock
from rmqtool.store.sink import reported
from rmqtool.store.source import Closable


class Session(Closable):
    """The lock of a store, and the store's state before the tool created anything in it."""

    def __init__(self, places: StorePaths, disk: Disk | None = None, *, makes_file: bool = True) -> None:
        """Take the lock.

        Args:
            makes_file: see `StoreLock`.

        Raises:
            RefusedError: somebody uses the store, or a directory of the tool's own is somebody else's.
            WriteError: the lock cannot be taken.
        """
        self.places, self.disk = places, disk or Disk()
        self.note_times()
        demand_own_directories(places)
        self.lock = StoreLock(places.root, places.outer_logs, makes_file=makes_file, leaves_trace=False)

    def note_times(self) -> None:
        """Take the store directory's times for those that it has without anything of the tool's own in it."""
        before = Metadata.of(self.places.top)
        self.root_times_ns = (before.atime_ns, before.mtime_ns)

    def close(self) -> None:
        self.lock.close()

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """An empty directory in the store for this run alone; where nothing came of it, nothing shows afterwards."""
        places, disk = self.places, self.disk
        staging = places.own_top / STAGING
        own_before = Metadata.of(places.own_top) if places.own_top.exists() else None
        journals_before = (places.own_top / UNDO).names()
        self.clear_staging()
        for directory in (places.own_top, staging):
            disk.make_directory(directory, own_like(places.top))
        directory = staging / f"{os.getpid()}-{secrets.token_hex(4)}"
        # Of whoever runs this, and not of the store's owner: files are written into it by their paths.
        with reported(directory.shown), directory.entry() as (at, name):
            os.mkdir(name, 0o700, dir_fd=at)
            held = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        try:
            # Planners do not write through directories whose owner may put a link in their place meanwhile.
            is_own = places.top.root.owner_id == os.geteuid()
            if not is_own and os.fstat(held).st_uid != os.geteuid():
                raise RefusedError(
                    f"{directory}: replaced by another process while rmqtool created it; find out which process does "
                    f"that"
                )
            yield directory.shown if is_own else Path(f"/proc/self/fd/{held}")
        finally:
            os.close(held)
            with suppress(RmqtoolError):
                disk.remove_tree(directory)
            with suppress(RmqtoolError):
                remove_empty(places, disk)
            if journals_before == (places.own_top / UNDO).names():
                with suppress(RmqtoolError):
                    disk.set_times(places.top, *self.root_times_ns)
                if own_before is not None:
                    with suppress(RmqtoolError):
                        disk.set_times(places.own_top, own_before.atime_ns, own_before.mtime_ns)

    def keep(self, save: Callable[[Path], None], staging: Path) -> None:
        """Save files in the tool's own directory, where they stay.

        Args:
            save: makes directories of files in the directory that it is given.
            staging: the directory of this run.

        Raises:
            RefusedError: a directory there is a link, or somebody else's.
        """
        places, disk = self.places, self.disk
        built = staging / "kept"
        with reported(built):
            built.mkdir()
        save(built)
        for directory in sorted(built.iterdir()):
            target = places.own_top / directory.name
            demand_own(target, places.top.root)
            disk.make_directory(target, own_like(places.top))
            staged = places.staged_path(directory)
            if staged is None:
                raise RefusedError(
                    f"{places.staging}: replaced by another process while the plan was made; find out which "
                    f"process does that"
                )
            source = places.top / staged
            for name in source.names():
                like = own_file_like(places.top)
                disk.give_owner(source / name, like.user_id, like.group_id, like.mode)
                disk.rename(source / name, target / name)

    def remove_left(self) -> None:
        """Remove files of runs that were killed while planning, and directories that are empty then."""
        self.clear_staging()
        with suppress(RmqtoolError):
            remove_empty(self.places, self.disk)
            self.disk.set_times(self.places.top, *self.root_times_ns)

    def clear_staging(self) -> None:
        """Remove files of earlier killed runs; one that cannot be removed does no harm."""
        staging = self.places.own_top / STAGING
        for name in staging.names():
            with suppress(RmqtoolError):
                if (staging / name).is_directory():
                    self.disk.remove_tree(staging / name)
                else:
                    self.disk.remove(staging / name)


def demand_own_directories(places: StorePaths) -> None:
    """Refuse a store in which a directory of the tool's own is a link, or somebody else's.

    Raises:
        RefusedError: it is.
    """
    demand_own(places.own_top, places.top.root)
    for directory in (places.own_top / UNDO, places.own_top / STAGING):
        if places.own_top.exists():
            demand_own(directory, places.top.root)


def remove_empty(places: StorePaths, disk: Disk) -> None:
    """Remove the tool's own directories where they are empty; other programs' files stay."""
    own_tops = [places.own_top]
    if places.undo_directory is not None and places.undo_directory.is_dir():
        own_tops.append(Root.open(places.undo_directory.resolve()) / OWN_DIRECTORY)
    for own_top in own_tops:
        for directory in (own_top / STAGING, own_top / UNDO, own_top) if own_top.exists() else ():
            if directory.is_directory() and not directory.names():
                disk.remove_directory(directory)

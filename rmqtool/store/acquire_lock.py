"""Takes the broker's own lock, so that no broker serves a store while it is written, and no second rmqtool writes it.

A POSIX record lock on byte 0 of `lock`, as `DefaultMessageStore#start` takes it. It lives on one descriptor: closing
any other descriptor of that file would drop it, so nothing opens `lock` again while it is held.

A second lock tells a running rmqtool from a broker, and holds where there is no `lock` yet: `flock` on the store
directory itself, which no broker takes and which writes nothing. The system drops both with the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from rmqtool.errors import RefusedError, WriteError
from rmqtool.store.probe_lock import LOCK_NAME, LockStatus, directory_holder, lock_report, lock_state, started_at
from rmqtool.store.source import Closable, reason
from rmqtool.times import time_text

CONTENT: Final = b"lock"
_BUSY: Final = (errno.EACCES, errno.EAGAIN)


class StoreLock(Closable):
    """The lock of a store directory, held until it is closed.

    Attributes:
        was_missing: there was no `lock` before; True lets it go in the end, as where a run that was killed has made it.
    """

    def __init__(
        self, root: Path, log_directories: tuple[Path, ...] = (), *, makes_file: bool = True, leaves_trace: bool = True
    ) -> None:
        """Take it.

        Args:
            root: the store directory.
            log_directories: where the log lies if not in the store directory.
            makes_file: make `lock` where it is missing; else it is made by `complete`, right before the first change.
            leaves_trace: write what a broker writes into `lock`, and leave the file. Else its bytes stay as they are,
                and where it was missing it is missing again in the end.

        Raises:
            RefusedError: a broker holds it, or is loading the store, or another rmqtool is changing it.
            WriteError: the file may not be opened or written.
        """
        self._root, self._logs, self._descriptor = root, log_directories, -1
        self._leaves_trace, self.was_missing = leaves_trace, False
        self._directory = _directory_locked(root)
        try:
            if makes_file:
                self.complete()
            elif os.path.lexists(root / LOCK_NAME):
                self._take()
            else:
                _require_unused(root, log_directories)
        except BaseException:
            self.close()
            raise

    def complete(self) -> None:
        """Take the broker's lock too where there was no file to take it on.

        Raises:
            RefusedError, WriteError: as when the lock is taken.
        """
        self._take()
        if not self._leaves_trace:
            return
        try:
            if os.pread(self._descriptor, len(CONTENT), 0) != CONTENT:  # its time stays where nothing changes
                os.pwrite(self._descriptor, CONTENT, 0)
                os.fsync(self._descriptor)
        except OSError as error:
            raise WriteError(f"{self._root / LOCK_NAME}: {reason(error)}") from error

    def demand_unused(self, log_directories: tuple[Path, ...] | None = None) -> None:
        """Refuse a store that a broker has begun to load since the lock was taken.

        Args:
            log_directories: where the log lies, where that became known only later; the same ones are not looked at.

        Raises:
            RefusedError: one has.
        """
        if log_directories == self._logs:
            return
        self._logs = self._logs if log_directories is None else log_directories
        _require_unused(self._root, self._logs)

    def _take(self) -> None:
        if self._descriptor >= 0:
            return
        self._descriptor, self.was_missing = _locked(self._root, keeps_times=not self._leaves_trace)
        # Looked at only now: a broker that came in between is either seen here or meets the lock. The databases'
        # locks are files of their own, and `lock` itself is asked about through the descriptor that is open.
        _require_unused(self._root, self._logs)

    def close(self) -> None:
        """Let go of it; the file stays, as the broker leaves it, unless this lock leaves no trace and has made it."""
        if self.was_missing and not self._leaves_trace and self._descriptor >= 0:
            with suppress(OSError):  # it is in nobody's way
                # Only if it is still the file that was locked.
                path, store, held = self._root / LOCK_NAME, self._root.stat(), os.fstat(self._descriptor)
                named = path.lstat()
                if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino):
                    path.unlink()
                    os.utime(self._root, ns=(store.st_atime_ns, store.st_mtime_ns))
        for descriptor in (self._descriptor, self._directory):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._directory = -1


def demand_free(root: Path, log_directories: tuple[Path, ...] = ()) -> None:
    """Refuse a store that somebody uses; looked at only, nothing is taken or written.

    Raises:
        RefusedError: a broker or another rmqtool uses it.
    """
    holder = directory_holder(root)
    if holder is not None:
        raise _other_rmqtool(root, holder)
    if lock_report(root, log_directories).is_in_use:
        raise RefusedError(f"{root}: a broker uses the store; stop it first")


def _require_unused(root: Path, log_directories: tuple[Path, ...]) -> None:
    report = lock_report(root, log_directories)
    for lock in report.others:
        if lock.status is LockStatus.HELD:
            raise RefusedError(f"{lock.path}: a broker holds the lock of the store in which files of {root} are")
    loading = [lock for lock in report.databases if lock.status is LockStatus.HELD]
    if loading or report.mapping_pids:
        who = ", ".join(str(pid) for pid in report.mapping_pids) or loading[0].owner_pid
        raise RefusedError(f"{root}: a broker is loading this store or has its files mapped (pid {who})")


def _other_rmqtool(root: Path, pid: int | None) -> RefusedError:
    pid = pid or lock_state(root).owner_pid
    began = started_at(pid) if pid is not None else None
    who = f"pid {pid}" if pid else "in another container or on another machine: no process here holds the store"
    since = "" if began is None else f", since {time_text(int(began * 1000))}"
    return RefusedError(f"{root}: another rmqtool ({who}{since}) is repairing this store or writing to it")


def _directory_locked(root: Path) -> int:
    """A descriptor of the store directory with its `flock`; without one where the file system has none."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WriteError(f"{root}: {reason(error)}") from error
    for is_last in (False, True):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _BUSY:
                break
            holder = directory_holder(root)
            if holder is None and not is_last:
                continue  # it may have ended between the refusal and the look
            os.close(descriptor)
            raise _other_rmqtool(root, holder) from error
        break
    return descriptor


def _locked(root: Path, *, keeps_times: bool) -> tuple[int, bool]:
    """Descriptor of `lock` with the broker's lock on it, and True if the file was made for that."""
    path = root / LOCK_NAME
    try:
        descriptor, is_made = _opened(path, keeps_times=keeps_times)
    except OSError as error:
        raise WriteError(f"{path}: {reason(error)}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno in _BUSY:
            raise RefusedError(f"{path}: a broker holds the lock; stop it first") from error
        raise WriteError(f"{path}: {reason(error)}") from error
    return descriptor, is_made


def _opened(path: Path, *, keeps_times: bool) -> tuple[int, bool]:
    """Descriptor of `lock`; made with the store's owner, and not followed if it is a link."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    store = path.parent.stat()
    try:
        return os.open(path, flags), False
    except FileNotFoundError:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # a broker was faster
            return os.open(path, flags), False
    try:
        if (store.st_uid, store.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
            os.fchown(descriptor, store.st_uid, store.st_gid)
        os.fchmod(descriptor, (store.st_mode & 0o666) | 0o600)
        if keeps_times:
            with suppress(PermissionError):  # only the owner sets times
                os.utime(path.parent, ns=(store.st_atime_ns, store.st_mtime_ns))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor, True

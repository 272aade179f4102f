"""Takes the broker's own lock, so that no broker serves a store while it is written.

A POSIX record lock on byte 0 of `lock`, as `DefaultMessageStore#start` takes it. It lives on one descriptor: closing
any other descriptor of that file would drop it, so nothing opens `lock` again while it is held.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rmqtool.errors import RefusedError, WriteError
from rmqtool.store.lock import LOCK_NAME, LockStatus, lock_report
from rmqtool.store.source import reason

CONTENT: Final = b"lock"


class StoreLock:
    """The lock of a store directory, held until it is closed."""

    def __init__(self, root: Path, log_directories: tuple[Path, ...] = ()) -> None:
        """Take it.

        Raises:
            RefusedError: a broker holds it, or is loading the store.
            WriteError: the file may not be opened or written.
        """
        self._descriptor = _locked(root / LOCK_NAME)
        try:
            # Looked at only now: a broker that came in between is either seen here or meets the lock. The databases'
            # locks are files of their own, and `lock` itself is asked about through the descriptor that is open.
            _require_unused(root, log_directories)
            if os.pread(self._descriptor, len(CONTENT), 0) != CONTENT:  # its time stays where nothing changes
                os.pwrite(self._descriptor, CONTENT, 0)
                os.fsync(self._descriptor)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of it; the file stays, as the broker leaves it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _require_unused(root: Path, log_directories: tuple[Path, ...]) -> None:
    report = lock_report(root, log_directories)
    loading = [lock for lock in report.databases if lock.status is LockStatus.HELD]
    if loading or report.mapping_pids:
        who = ", ".join(str(pid) for pid in report.mapping_pids) or loading[0].owner_pid
        raise RefusedError(f"{root}: a broker is loading this store or has its files mapped (pid {who})")


def _locked(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise WriteError(f"{path}: {reason(error)}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise RefusedError(f"{path}: a broker holds the lock; stop it first") from error
        raise WriteError(f"{path}: {reason(error)}") from error
    return descriptor

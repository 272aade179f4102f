"""Tells whether a broker is using a store, without taking its lock and without disturbing one that this process holds.

Broker: `DefaultMessageStore#start` (byte 0 of `lock`), RocksDB (all of each database's `LOCK`).

These are POSIX record locks, which `flock` does not see. They have a trap: closing *any* descriptor of a file drops all
locks that the process has on it. So a file that this process has open already is asked about through the descriptor
that is there, and never opened once more.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final

from rmqtool.store.file_kinds import is_broker_directory

# Where files of a store lie outside of it: a log in directories of its own, and directories behind links.
# A broker keeps `lock`, `checkpoint` and `abort` in the root of its store and nowhere else, so a directory beside one
# of them belongs to the store there.

_ROOT_FILES: Final = ("lock", "checkpoint", "abort")


def linked_directories(root: Path) -> Iterator[str]:
    """Links at the top of a store where a broker has a directory."""
    with suppress(OSError), os.scandir(root) as listing:
        yield from sorted(entry.name for entry in listing if entry.is_symlink() and is_broker_directory(entry.name))


def root_around(directory: Path, root: Path) -> Path | None:
    """The root of the other store in which a directory lies; None where nothing shows one."""
    around = Path(os.path.realpath(directory)).parent
    is_root = any(os.path.lexists(around / name) for name in _ROOT_FILES)
    return around if is_root and not is_same(around, root) else None


def is_outside(root: Path, path: str | Path) -> bool:
    """True if a path, relative to a store or absolute, leads outside it."""
    return not Path(os.path.realpath(root / path)).is_relative_to(os.path.realpath(root))


def is_same(one: Path, other: Path) -> bool:
    """True if both are one existing directory."""
    try:
        return one.samefile(other)
    except OSError:
        return False


LOCK_NAME: Final = "lock"
ROCKS_LOCKS: Final = ("rocksdbstore/LOCK", "consumequeue/LOCK", "consumequeue_rocksdb/LOCK")
"""Held from a broker's construction or load on, when it does not hold `lock` yet."""
_FLOCK: Final = struct.Struct("hhqqi0q")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid, padded to 8 bytes."""


class LockStatus(Enum):
    """State of a lock."""

    FREE = "free"
    HELD = "held"
    ABSENT = "absent"
    """There is no such file, so nobody can hold a lock on it."""
    UNKNOWN = "unknown"
    """It may not be looked at."""


@dataclass(frozen=True)
class Lock:
    """The state of one lock file; `path` is relative to the store."""

    path: str
    status: LockStatus
    owner_pid: int | None = None
    """Of the holder; None if nobody holds it, or somebody whom this process cannot see (another container, machine)."""
    problem: str | None = None


@dataclass(frozen=True)
class LockReport:
    """Everything that tells of a running broker."""

    lock: Lock
    databases: tuple[Lock, ...]
    """Locks of the RocksDB databases that are there."""
    mapping_pids: tuple[int, ...]
    """Other processes that have a file of the store mapped; best effort, for not every process may be looked at."""
    others: tuple[Lock, ...] = ()
    """Locks, by absolute path, of other stores in which files of this one lie."""

    @property
    def is_in_use(self) -> bool:
        """True if a broker runs, or loads, on the store, as far as can be seen."""
        held = any(lock.status is LockStatus.HELD for lock in (self.lock, *self.databases, *self.others))
        return held or bool(self.mapping_pids)

    @property
    def may_be_in_use(self) -> bool:
        """True if a broker runs on the store, or might, because a lock cannot be read."""
        locks = (self.lock, *self.databases, *self.others)
        return self.is_in_use or any(lock.status is LockStatus.UNKNOWN for lock in locks)


def lock_report(root: Path, log_directories: Iterable[Path] = (), owner: Path | None = None) -> LockReport:
    """Look at all that tells of a running broker.

    Args:
        log_directories: where the commitlog lies if not in the store directory.
        owner: another store to which the log belongs.
    """
    databases = (lock_state(root, path) for path in ROCKS_LOCKS)
    holding: tuple[str | Path, ...] = (*log_directories, *linked_directories(root))
    outer = tuple(Path(os.path.realpath(root / path)) for path in holding if is_outside(root, path))
    around = (owner, *(root_around(directory, root) for directory in outer))
    return LockReport(
        lock_state(root),
        tuple(lock for lock in databases if lock.status is not LockStatus.ABSENT),
        processes_mapping((root, *outer)),
        tuple(
            replace(lock_state(other), path=str(other / LOCK_NAME))
            for other in dict.fromkeys(around)
            if other is not None
        ),
    )


def lock_state(root: Path, path: str = LOCK_NAME) -> Lock:
    """The state of one lock; a lock that this process itself holds counts as held, with its own pid."""
    place = root / path
    try:
        file_status = place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Lock(path, LockStatus.ABSENT)
    except OSError as error:
        return Lock(path, LockStatus.UNKNOWN, problem=_said(path, error))
    if not stat.S_ISREG(file_status.st_mode):
        return Lock(path, LockStatus.UNKNOWN, problem=f"{path}: not a regular file")
    if sys.platform != "linux":
        return Lock(path, LockStatus.UNKNOWN, problem="rmqtool can see locks only on Linux")
    length = 1 if path == LOCK_NAME else 0  # 0: to the end, however far that is
    own_descriptor = _own_descriptor(file_status)
    if own_descriptor is not None:
        lock = _ask(path, own_descriptor, length)
        if lock.status is LockStatus.FREE and _is_own(file_status):
            return Lock(path, LockStatus.HELD, os.getpid())
        return lock
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Lock(path, LockStatus.UNKNOWN, problem=_said(path, error))
    try:
        return _ask(path, descriptor, length)
    finally:
        os.close(descriptor)


def processes_mapping(directories: Iterable[Path]) -> tuple[int, ...]:
    """Pids of other processes that have a file below one of the directories mapped, as far as `/proc` shows."""
    paths = [f"{os.path.realpath(directory)}/" for directory in directories]
    prefixes = tuple(os.fsencode(path).replace(b"\n", b"\\012") for path in paths)  # as the kernel writes them there
    pids = (int(name) for name in _listed("/proc") if name.isdecimal())
    return tuple(sorted(pid for pid in pids if pid != os.getpid() and _maps_any(pid, prefixes)))


def directory_holder(root: Path) -> int | None:
    """The pid of another process that has an `flock` on a directory; None if no visible process has one."""
    try:
        file_status = root.stat()
    except OSError:
        return None
    return next((pid for pid in _holders("FLOCK", file_status) if pid not in (os.getpid(), 0)), None)


def started_at(pid: int) -> float | None:
    """When a process began, in seconds since 1970; None of one that has ended or cannot be looked at."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        if fields[0] in ("Z", "X"):
            return None  # it has ended, and nobody has asked how
        booted = next(line for line in Path("/proc/stat").read_text("ascii").splitlines() if line.startswith("btime "))
        return int(booted.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _ask(path: str, descriptor: int, length: int) -> Lock:
    """Find who blocks a write lock; Linux reports it for a read-only descriptor too."""
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, length, 0)
    try:
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    except OSError as error:
        return Lock(path, LockStatus.UNKNOWN, problem=_said(path, error))
    if kind == fcntl.F_UNLCK:
        return Lock(path, LockStatus.FREE)
    return Lock(path, LockStatus.HELD, pid if pid > 0 else None)


def _own_descriptor(file_status: os.stat_result) -> int | None:
    """A descriptor with which this process has the file open already; None without one."""
    for name in _listed("/proc/self/fd"):
        try:
            opened = os.fstat(int(name))
        except OSError:  # the listing's own descriptor, closed by now
            continue
        if (opened.st_dev, opened.st_ino) == (file_status.st_dev, file_status.st_ino):
            return int(name)
    return None


def _is_own(file_status: os.stat_result) -> bool:
    """True if `/proc/locks` has a lock of this process on the file, which never blocks the process itself."""
    return os.getpid() in _holders("POSIX", file_status)


def _holders(kind: str, file_status: os.stat_result) -> list[int]:
    """Pids of the holders of a lock of a kind on a file, from `/proc/locks`; 0 for one of another container."""
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as listing:  # noqa: PTH123 - no file of the store
            rows = [line.split() for line in listing]
    except OSError:
        return []
    device = f"{os.major(file_status.st_dev):02x}:{os.minor(file_status.st_dev):02x}:{file_status.st_ino}"
    return [int(row[4]) for row in rows if len(row) > 5 and row[1] == kind and row[5] == device and row[4].isdigit()]


def _maps_any(pid: int, prefixes: tuple[bytes, ...]) -> bool:
    try:
        maps = Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:  # it ended meanwhile, or belongs to somebody else
        return False
    if not any(prefix in maps for prefix in prefixes):
        return False
    rows = (line.split(maxsplit=5) for line in maps.split(b"\n"))
    return any(len(row) == 6 and row[5].startswith(prefixes) for row in rows)


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names only
    except OSError:
        return []


def _said(path: str, error: OSError) -> str:
    return f"{path}: {(error.strerror or errno.errorcode.get(error.errno or 0, 'unknown error')).lower()}"

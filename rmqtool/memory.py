"""Memory budget of this process: one value for all that keeps, caches or reads ahead.

Memory belongs to a process and not to a step of its work, so there is one value for the process: `keep_to` sets it
when a command starts, and whoever is about to hold much asks `memory_budget()`. Only anonymous memory counts: pages of
files that are mapped or cached go back to the kernel whenever it needs them. Without a limit every question is answered
with the default of whoever asks.
"""

from __future__ import annotations

import ctypes
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmqtool.errors import UsageError

STATUS: Final = Path("/proc/self/status")
CONTROL_GROUPS: Final = Path("/proc/self/cgroup")
CONTROL_ROOT: Final = Path("/sys/fs/cgroup")
LOADED_LATER: Final = {"numpy": 12 << 20}
"""Memory of libraries that most commands load only once they read; an upper bound, measured."""
WORK_LEAST: Final = 32 << 20
"""Memory that work is given in any case, however little a container leaves."""
THREAD_BYTES: Final = 60 << 20
"""Memory of a thread that checks or dispatches the log."""
STEP: Final = 8 << 20
"""The least value that works is told in steps, for no two runs take the same to the byte."""
_UNLIMITED: Final = 1 << 60
_ANONYMOUS: Final = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
# malloc.h of glibc
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
ARENAS: Final = 2
LARGE_ARRAY: Final = 1 << 20
"""Under a limit, arrays from this size on go back to the kernel when they are freed."""


@dataclass(frozen=True)
class MemoryBudget:
    """Memory that the process may hold.

    Attributes:
        limit: bytes; None where there is no limit.
        fixed: bytes that the work cannot use: the program, its libraries, the list of the store's files.
        least: bytes that the work needs beside these.
        of_file: bytes that the work keeps of each file of a store beside the list of them.
        is_chosen: whether a person set the limit; it is then refused where it is too low.
    """

    limit: int | None = None
    fixed: int = 0
    least: int = WORK_LEAST
    of_file: int = 0
    is_chosen: bool = False

    @property
    def free(self) -> int | None:
        """Bytes for the work, at least `WORK_LEAST`; None without a limit."""
        return None if self.limit is None else max(WORK_LEAST, self.limit - self.fixed)

    def has_room(self, size: int) -> bool:
        """True if the work has enough beside this number of bytes."""
        return self.limit is None or self.limit - self.fixed - size >= self.least

    def share(self, default: int, parts: int) -> int:
        """Bytes that one of so many users of the free memory may hold; never more than its default."""
        return default if self.free is None else min(default, self.free // parts)

    def threads(self, most: int, bytes_each: int) -> int:
        """Number of threads of this size that fit into half of the free memory; at least one."""
        return most if self.free is None else max(1, min(most, self.free // 2 // bytes_each))


@dataclass
class _CurrentBudget:
    budget: MemoryBudget


_CURRENT: Final = _CurrentBudget(MemoryBudget())


def memory_budget() -> MemoryBudget:
    """The budget of this process."""
    return _CURRENT.budget


def keep_to(limit: int | None, least: int = WORK_LEAST, of_file: int = 0) -> None:
    """Set the limit of this process; None removes it, so that only a container's limit is left.

    Args:
        least: bytes that the work needs beside the program.
        of_file: and of each file of a store beside the list of them.

    Raises:
        UsageError: no command could work with so little.
    """
    contained = None if limit is not None else container_limit()
    chosen = contained if limit is None else limit
    _CURRENT.budget = MemoryBudget(chosen, 0, least, of_file, is_chosen=limit is not None)
    if _CURRENT.budget.limit is not None:
        settle("the command")
        # Let the C library hand large arrays back to the kernel when they are freed, and share its heaps among threads.
        with suppress(OSError, AttributeError, TypeError):
            library = ctypes.CDLL(None)
            library.mallopt(_M_MMAP_THRESHOLD, LARGE_ARRAY)
            library.mallopt(_M_TRIM_THRESHOLD, LARGE_ARRAY)
            library.mallopt(_M_ARENA_MAX, ARENAS)


def settle(what: str, files: int = 0) -> None:
    """Measure the memory in use now, which the following work cannot use.

    Args:
        what: needs it, for the message.
        files: number of files of a store, of each of which something is kept up to the end.

    Raises:
        UsageError: what is left of a limit that a person chose is too little.
    """
    budget = _CURRENT.budget
    if budget.limit is None:
        return
    fixed = (
        files * budget.of_file
        + held_bytes()
        + sum(size for name, size in LOADED_LATER.items() if name not in sys.modules)
    )
    _CURRENT.budget = replace(budget, fixed=fixed)
    least = -(-(fixed + budget.least) // STEP) * STEP
    if budget.is_chosen and budget.limit < least:
        raise UsageError(f"--max-memory: {what} needs at least {least >> 20}M; {budget.limit >> 20}M is too little")


def take(size: int) -> None:
    """Count bytes that are held from now on, up to the end."""
    _CURRENT.budget = replace(_CURRENT.budget, fixed=_CURRENT.budget.fixed + size)


def held_bytes() -> int:
    """Anonymous memory of this process; 0 where the kernel does not tell."""
    try:
        match = _ANONYMOUS.search(STATUS.read_text("ascii", "replace"))
    except OSError:
        return 0
    return int(match[1]) << 10 if match else 0


def container_limit() -> int | None:
    """Memory that the limits of the process's control groups leave; None without a limit."""
    with suppress(OSError):
        for line in CONTROL_GROUPS.read_text("utf-8", "replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                left = _left_in(CONTROL_ROOT, path, "memory.max", "memory.stat", "anon")
            elif "memory" in controllers.split(","):
                left = _left_in(CONTROL_ROOT / "memory", path, "memory.limit_in_bytes", "memory.stat", "total_rss")
            else:
                continue
            if left is not None:
                return left
    return None


def _left_in(root: Path, path: str, limit_name: str, stat_name: str, used_name: str) -> int | None:
    """The least that any group from the process's own one up to the root leaves."""
    group = root / path.strip("/")
    if not group.is_dir():  # a container sees its own group as the root
        group = root
    left: list[int] = []
    while True:
        with suppress(OSError, ValueError):
            limit = int((group / limit_name).read_text("ascii"))  # "max" is no number: no limit
            if limit < _UNLIMITED:
                used = dict(row.split() for row in (group / stat_name).read_text("ascii").splitlines())
                left.append(max(0, limit - int(used.get(used_name, 0)) + held_bytes()))
        if group == root:
            return min(left, default=None)
        group = group.parent


KEPT_BYTES: Final = 64 << 20
"""Free memory at the heap's end that the process keeps."""
APART_BYTES: Final = 32 << 20
"""Arrays from this size on still go back at once; glibc takes no larger number."""


def keep_freed_memory() -> None:
    """Let the C library keep freed memory: bulk work allocates and frees the same megabytes over and over.

    glibc hands an array of more than 128 KiB back to the kernel when it is freed, and gets it again, page by page and
    cleared, for the next one: a third of the time that a whole `verify` takes. Set for the whole process, so for one
    of our own only; where there is no glibc, nothing happens.
    """
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, APART_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)

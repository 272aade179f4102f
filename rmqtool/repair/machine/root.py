"""Files below a directory that is opened once: no name in a path, and no link on the way, leads out of it.

A path is relative, each of its names is checked, and each directory on the way is opened from the one above it without
following a link. So it makes no difference who exchanges what in the directory meanwhile.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.sink import check_path
from rmqtool.store.source import ByteSource, FileSource, PartSource, reason

DEPTH_MAX: Final = 32
"""Directories of the tool's own are never nested deeper."""
_ON_THE_WAY: Final = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Root:
    """A directory that is held open."""

    def __init__(self, label: Path, descriptor: int) -> None:
        """Keep a descriptor of the directory, which is closed with this object.

        Args:
            label: the path that a person knows the directory by.
        """
        self.label = label
        self.descriptor = descriptor
        state = os.fstat(descriptor)
        self.identity = (state.st_dev, state.st_ino)
        self.device, self.owner_id, self.group_id = state.st_dev, state.st_uid, state.st_gid
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def open(cls, directory: Path) -> Root:
        """Open a directory that a person named; links in its path are followed."""
        try:
            return cls(directory, os.open(directory, _ON_THE_WAY & ~os.O_NOFOLLOW))
        except OSError as error:
            raise UnreadableError(f"{directory}: {reason(error)}") from error

    @property
    def real_path(self) -> Path:
        """Where the directory lies, no links in the path."""
        return Path(os.readlink(f"/proc/self/fd/{self.descriptor}"))  # noqa: PTH115 - no path of a store

    @property
    def top(self) -> RootPath:
        return RootPath(self)

    def __truediv__(self, path: str) -> RootPath:
        return self.top / path


@dataclass(frozen=True)
class RootPath:
    """A file or directory below a root; an empty path is the root itself."""

    root: Root
    path: str = ""

    def __truediv__(self, path: str) -> RootPath:
        """Something below this directory.

        Raises:
            WriteError: the path leads elsewhere.
        """
        check_path(path)
        return RootPath(self.root, f"{self.path}/{path}" if self.path else path)

    def __str__(self) -> str:
        return str(self.shown)

    @property
    def shown(self) -> Path:
        """As a person knows it."""
        return self.root.label / self.path

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> RootPath:
        return RootPath(self.root, self.path.rpartition("/")[0])

    def with_name(self, name: str) -> RootPath:
        return self.parent / name

    @contextmanager
    def entry(self) -> Iterator[tuple[int, str]]:
        """The directory it lies in, as a descriptor, and its name there, for the calls that take both.

        Raises:
            OSError: a directory on the way is missing, is a link, or may not be entered.
        """
        *above, name = self.path.split("/")
        at = self.root.descriptor
        try:
            for directory in above:
                below = os.open(directory, _ON_THE_WAY, dir_fd=at)
                if at != self.root.descriptor:
                    os.close(at)
                at = below
            yield at, name or "."
        finally:
            if at != self.root.descriptor:
                os.close(at)

    def open(self, flags: int, mode: int = 0o600) -> int:
        """A descriptor of the file; a link in its place is not followed.

        Raises:
            OSError: the system refuses.
        """
        with self.entry() as (directory, name):
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=directory)

    def lstat(self) -> os.stat_result | None:
        """File status; None where there is no such path.

        Raises:
            UnreadableError: it may not be looked at, or the path leads over a link or a file.
        """
        try:
            with self.entry() as (directory, name):
                return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{self}: {reason(error)}") from error

    def exists(self) -> bool:
        """True if the path exists, also as a broken link."""
        return self.lstat() is not None

    def is_directory(self) -> bool:
        """True if the path is a directory, not a link."""
        state = self.lstat()
        return state is not None and stat.S_ISDIR(state.st_mode)

    def names(self) -> list[str]:
        """The names in a directory, in order; none where it is not there."""
        try:
            descriptor = self.open(_LISTED)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnreadableError(f"{self}: {reason(error)}") from error
        try:
            return sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor
        except OSError as error:
            raise UnreadableError(f"{self}: {reason(error)}") from error
        finally:
            os.close(descriptor)

    def source(self, name: str | None = None) -> FileSource:
        """The bytes of a regular file; UnreadableError of anything else, a missing one too."""
        name = name if name is not None else str(self)
        state = self.lstat()  # looked at first: opening a FIFO would let its writer continue
        if state is None or not stat.S_ISREG(state.st_mode):
            raise UnreadableError(f"{name}: {'no such file' if state is None else 'not a regular file'}")
        try:
            descriptor = self.open(_READ)
        except OSError as error:
            raise UnreadableError(f"{name}: {reason(error)}") from error
        return FileSource.of_descriptor(name, descriptor)

    def device(self) -> int:
        """The file system on which it lies, or would: that of the nearest directory which is there."""
        at = self
        while at.path:
            state = at.lstat()
            if state is not None:
                return state.st_dev
            at = at.parent
        return self.root.device

    def allocated_bytes(self, depth: int = 0) -> int:
        """Room that a file, or a directory with all that is in it, takes on the disk; links are not followed."""
        state = self.lstat()
        if state is None or depth > DEPTH_MAX:
            return 0
        if not stat.S_ISDIR(state.st_mode):
            return state.st_blocks * 512 if stat.S_ISREG(state.st_mode) else 0
        return sum((self / name).allocated_bytes(depth + 1) for name in self.names())


@dataclass(frozen=True)
class RootPart:
    """`length` bytes of a file below a root, from `position` on, as content that is written elsewhere."""

    file: RootPath
    position: int
    length: int

    def open(self) -> ByteSource:
        source = self.file.source()
        if source.size < self.position + self.length:
            source.close()
            raise UnreadableError(f"{self.file}: became shorter while it was read")
        return PartSource(str(self.file), source, self.position, self.length)

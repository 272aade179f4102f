"""The store view: list, stat and open, by paths relative to the store. Everything above reads a store through it.

The directory on disk is one implementation; an overlay of planned changes and a remote file system are others.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from pathlib import Path
from sys import intern
from typing import Final, Protocol, Self

from rmqtool.errors import NotAStoreError, UnreadableError
from rmqtool.store.source import ByteSource, FileSource, reason


class EntryKind(Enum):
    """Kind of a directory entry, links followed."""

    FILE = "file"
    DIRECTORY = "directory"
    FIFO = "FIFO"
    """Never opened, as sockets and devices are not: who opens one waits for its writer, or lets that continue."""
    SOCKET = "socket"
    DEVICE = "device"
    SPECIAL = "special file"
    """An entry that a remote file system has and does not name."""
    DANGLING = "dangling link"
    """A link to nothing, which brokers take for nothing."""
    LOOP = "looping link"
    BROKEN = "broken link"
    """Something that may not be looked at."""


@dataclass(frozen=True)
class UnreadPlace:
    """A file or directory of a store that could not be looked at.

    Attributes:
        cause: the tail of a sentence about it.
        is_denied: whether permissions keep this user from it, which its owner can read.
    """

    path: str
    cause: str
    is_denied: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}"

    @classmethod
    def of_error(cls, path: str, error: UnreadableError) -> Self:
        """Make the record of a path that cannot be listed."""
        is_denied = isinstance(error.__cause__, PermissionError)
        return cls(path, str(error).removeprefix(f"{path}: "), is_denied)


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry; `path` is relative to the store, with `/`. There may be millions of them."""

    path: str
    kind: EntryKind
    size: int = 0
    mtime_ns: int = 0
    allocated_bytes: int = 0
    """Bytes of the file on the disk; far fewer than `size` for a sparse one."""
    is_link: bool = False
    owner_id: int = 0
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The files of all queues have the same few names.
        object.__setattr__(self, "name", intern(self.path.rpartition("/")[2]))

    @property
    def is_file(self) -> bool:
        return self.kind is EntryKind.FILE

    @property
    def is_directory(self) -> bool:
        return self.kind is EntryKind.DIRECTORY

    @property
    def not_a_file(self) -> UnreadPlace | None:
        """That there is something else where a file belongs; None of a file."""
        return None if self.is_file else UnreadPlace(self.path, f"a {self.kind.value}, not a regular file")


class StoreView(Protocol):
    """Read access to a store."""

    @property
    def label(self) -> str:
        """Name that the person gave for the store."""

    def list(self, path: str) -> list[Entry]:
        """Entries of a directory, by name; none if it is not there ("" is the store itself).

        Raises:
            UnreadableError: it may not be read.
        """

    def stat(self, path: str) -> Entry | None:
        """One entry; None if it is not there.

        Raises:
            UnreadableError: the directory it would be in may not be looked at.
        """

    def open(self, path: str) -> ByteSource:
        """A file's bytes.

        Raises:
            UnreadableError: it is missing, may not be read, or is no regular file.
        """


@dataclass(frozen=True)
class DirectoryView:
    """A store directory of this machine; an absolute path leads outside of it (a commitlog on another disk)."""

    root: Path

    @property
    def label(self) -> str:
        return str(self.root)

    def list(self, path: str) -> list[Entry]:
        prefix = f"{path}/" if path else ""
        try:
            with os.scandir(self._place(path)) as listing:
                return sorted(
                    (_entry(prefix + entry.name, entry, is_link=entry.is_symlink()) for entry in listing),
                    key=attrgetter("path"),
                )
        except (FileNotFoundError, NotADirectoryError):
            return []
        except ValueError as error:
            raise UnreadableError(f"{path!r}: not a file name") from error
        except OSError as error:
            raise UnreadableError(f"{path or self.label}: {reason(error)}") from error

    def stat(self, path: str) -> Entry | None:
        place = self._place(path)
        try:
            is_link = stat.S_ISLNK(os.lstat(place).st_mode)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            raise UnreadableError(f"{path or self.label}: {reason(error)}") from error
        return _entry(path, place, is_link=is_link)

    def open(self, path: str) -> ByteSource:
        return FileSource.open(self._place(path), path)

    def _place(self, path: str) -> str:
        return os.path.join(self.root, path)  # noqa: PTH118 - asked some million times, and Path is slow

    def __reduce__(self) -> tuple[type[DirectoryView], tuple[Path]]:
        """Sent elsewhere, it means the same place, whatever directory the work there runs in."""
        return DirectoryView, (self.root.absolute(),)


def open_directory(path: Path) -> DirectoryView:
    """The view of a directory that a person named.

    Raises:
        NotAStoreError: it does not exist or is no directory.
        UnreadableError: it may not be read.
    """
    try:
        file_status = path.stat()
        if not stat.S_ISDIR(file_status.st_mode):
            raise NotAStoreError(f"{path}: not a directory")
        with os.scandir(path):
            pass
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise NotAStoreError(f"{path}: no such directory") from error
    except OSError as error:
        raise UnreadableError(f"{path}: {reason(error)}") from error
    return DirectoryView(path)


def _entry(path: str, place: os.DirEntry[str] | str, *, is_link: bool) -> Entry:
    try:
        file_status = os.stat(place)  # noqa: PTH116 - see `_place`
    except OSError as error:
        return Entry(path, _FAILED.get(error.errno or 0, EntryKind.BROKEN), is_link=is_link)
    kind = _KINDS.get(stat.S_IFMT(file_status.st_mode), EntryKind.SPECIAL)
    size = file_status.st_size if kind is EntryKind.FILE else 0
    return Entry(path, kind, size, file_status.st_mtime_ns, file_status.st_blocks * 512, is_link, file_status.st_uid)


_KINDS: Final = {
    stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.DIRECTORY, stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFSOCK: EntryKind.SOCKET, stat.S_IFCHR: EntryKind.DEVICE, stat.S_IFBLK: EntryKind.DEVICE,
}  # fmt: skip
_FAILED: Final = {errno.ENOENT: EntryKind.DANGLING, errno.ENOTDIR: EntryKind.DANGLING, errno.ELOOP: EntryKind.LOOP}

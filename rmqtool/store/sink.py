"""Where new bytes go: files by their path in the store, made at full length and written by position.

A path is made of names that may come from data (topics), so each one is checked before anything is touched. A link is
followed only where a broker has a directory, as the view does (a person moved `commitlog` to another disk), and never
for a file.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from rmqtool.errors import WriteError
from rmqtool.store.file_kinds import is_broker_directory
from rmqtool.store.source import Closable, reason

OPEN_MAX: Final = 256
"""Descriptors that are kept open; the least recently used file is closed first."""
NAME_BYTES_MAX: Final = 255
PATH_BYTES_MAX: Final = 4095
_WRITE_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


class FileSink(Protocol):
    """Files that are made and written, by path relative to the store, with `/`. Every method raises WriteError."""

    def create(self, path: str, size: int) -> None:
        """Make a file of `size` zero bytes, its directories too; one that is there already keeps its content."""

    def write_at(self, path: str, position: int, data: bytes | memoryview) -> None:
        """Write into a file that exists, all of the bytes or an error."""

    def sync(self, path: str) -> None:
        """Return once the file's bytes are on the disk."""

    def sync_directory(self, path: str) -> None:
        """Return once the names in a directory are on the disk; "" is the store itself."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def close(self) -> None:
        """Let go of all files; a later call opens them again."""


def check_path(path: str) -> tuple[str, ...]:
    """The names of a relative path, each of which stays where it is put.

    Raises:
        WriteError: it is absolute or empty, or a name is empty, `.`, `..`, too long, or no file name at all.
    """
    names = tuple(path.split("/"))
    try:
        lengths = [len(os.fsencode(name)) for name in names]
    except UnicodeEncodeError:
        raise WriteError(f"{path[:80]!r}: not a file name") from None
    if "\0" in path:
        raise WriteError(f"{path[:80]!r}: a zero byte in a file name")
    if any(name in ("", ".", "..") for name in names):
        raise WriteError(f"{path[:80]!r}: points outside the store")
    if max(lengths) > NAME_BYTES_MAX or sum(lengths) + len(names) > PATH_BYTES_MAX:
        raise WriteError(f"{path[:80]!r}...: name too long")
    return names


class ReadableSink(FileSink, Protocol):
    """A sink whose content can be read."""

    def read_at(self, path: str, position: int, length: int) -> bytes:
        """Bytes of a file that was made here; fewer where it ends before."""


@dataclass(eq=False)
class DirectorySink(Closable):
    """Files below a directory of this machine, which must exist.

    Every method raises WriteError where the system refuses.
    """

    _root: Path
    _open: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def create(self, path: str, size: int) -> None:
        names = check_path(path)
        with reported(self._root / path):
            with self._directory(names[:-1], make=True) as directory:
                descriptor = os.open(names[-1], _WRITE_FLAGS | os.O_CREAT, 0o666, dir_fd=directory)
            self._keep(path, descriptor)
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)

    def write_at(self, path: str, position: int, data: bytes | memoryview) -> None:
        with reported(self._root / path):
            write_all(self._descriptor(path), position, memoryview(data).cast("B"))

    def read_at(self, path: str, position: int, length: int) -> bytes:
        """Bytes of a file that was made here; fewer where it ends before."""
        with reported(self._root / path):
            return os.pread(self._descriptor(path), length, position)

    def resize(self, path: str, size: int) -> None:
        """Give a file another length."""
        with reported(self._root / path):
            os.ftruncate(self._descriptor(path), size)

    def sync(self, path: str) -> None:
        with reported(self._root / path):
            os.fsync(self._descriptor(path))

    def sync_directory(self, path: str) -> None:
        names = check_path(path) if path else ()
        with reported(self._root / path), self._directory(names) as descriptor:
            os.fsync(descriptor)

    def remove(self, path: str) -> None:
        names = check_path(path)
        with reported(self._root / path):
            if (kept := self._open.pop(path, None)) is not None:
                os.close(kept)
            with self._directory(names[:-1]) as directory:
                os.unlink(names[-1], dir_fd=directory)

    def replace(self, path: str, content: bytes) -> None:
        """Replace the earlier file with a new one, on the disk when this returns; all of it or nothing."""
        names = check_path(path)
        temporary = f"{names[-1]}.tmp"
        with reported(self._root / path), self._directory(names[:-1], make=True) as directory:
            descriptor = os.open(temporary, _WRITE_FLAGS | os.O_CREAT | os.O_TRUNC, 0o666, dir_fd=directory)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, names[-1], src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)

    def close(self) -> None:
        """Let go of all files.

        Raises:
            WriteError: the system reports only now that earlier bytes could not be kept; all are closed nonetheless.
        """
        failed: tuple[str, OSError] | None = None
        while self._open:
            path, descriptor = self._open.popitem()
            try:
                os.close(descriptor)
            except OSError as error:
                failed = failed or (path, error)
        if failed is not None:
            raise WriteError(f"{self._root / failed[0]}: {reason(failed[1])}") from failed[1]

    def _descriptor(self, path: str) -> int:
        open_descriptor = self._open.get(path)
        if open_descriptor is not None:
            self._open.move_to_end(path)
            return open_descriptor
        names = check_path(path)
        with self._directory(names[:-1]) as directory:
            descriptor = os.open(names[-1], _WRITE_FLAGS, dir_fd=directory)
        self._keep(path, descriptor)
        return descriptor

    def _keep(self, path: str, descriptor: int) -> None:
        if (earlier := self._open.pop(path, None)) is not None:
            os.close(earlier)
        self._open[path] = descriptor
        if len(self._open) > OPEN_MAX:
            os.close(self._open.popitem(last=False)[1])

    @contextmanager
    def _directory(self, names: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """Descriptor of a directory below the root, opened name by name, so that each link on the way is seen."""
        at = os.open(self._root, _DIRECTORY_FLAGS)
        try:
            for depth, name in enumerate(names, 1):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=at)
                follow = is_broker_directory("/".join(names[:depth]))
                below = os.open(name, _DIRECTORY_FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=at)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)


class DiscardingSink:
    """A `FileSink` that discards all bytes, for content that is counted and not read."""

    def create(self, *_: object, **__: object) -> None:
        """Nothing is kept."""

    write_at = sync = sync_directory = remove = close = create


@dataclass(eq=False)
class TrackingSink:
    """A sink that knows which files were written since the last sync."""

    _sink: FileSink
    _written: set[str] = field(default_factory=set)
    _made: set[str] = field(default_factory=set)

    def create(self, path: str, size: int) -> None:
        self._sink.create(path, size)
        self._written.add(path)
        self._made.add(path)

    def write_at(self, path: str, position: int, data: bytes | memoryview) -> None:
        self._sink.write_at(path, position, data)
        self._written.add(path)

    def sync(self, path: str) -> None:
        self._sink.sync(path)
        self._written.discard(path)

    def sync_directory(self, path: str) -> None:
        self._sink.sync_directory(path)

    def remove(self, path: str) -> None:
        self._sink.remove(path)
        self._written.discard(path)
        self._made.discard(path)

    def close(self) -> None:
        self._sink.close()

    def sync_written(self) -> None:
        """Return once all files that were written, and the names of those that were made, are on the disk."""
        for path in sorted(self._written):
            self.sync(path)
        parents = {path.rpartition("/")[0] for path in self._made}
        # The directories may be new as well, each of which is a name in the one above.
        above = {parent[:at] for parent in parents for at, letter in enumerate(parent) if letter == "/"}
        for directory in sorted(parents | above | ({""} if parents else set())):
            self._sink.sync_directory(directory)
        self._made.clear()


@contextmanager
def reported(place: str | Path) -> Iterator[None]:
    """Tell what the system refuses as an error about a file or directory that is written.

    Raises:
        WriteError: it refused something.
    """
    try:
        yield
    except OSError as error:
        raise WriteError(f"{place}: {reason(error)}") from error


def write_all(descriptor: int, position: int, data: memoryview) -> None:
    """Write all of some bytes, also where the system takes them in parts."""
    while data:
        count = os.pwrite(descriptor, data, position)
        if count <= 0:
            raise OSError(errno.EIO, "nothing was written")
        position += count
        data = data[count:]

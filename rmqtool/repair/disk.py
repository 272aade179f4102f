"""Every change that a repair makes to a disk: one small method each, so that a test can end or fail any one of them.

A `Watch` is told before each change. Errors of the system become WriteError with the file's name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqtool.errors import UnreadableError, WriteError
from rmqtool.store.content import Content, FilePart, PartSource
from rmqtool.store.sink import reported
from rmqtool.store.source import FileSource, read_salvaging, reason

BLOCK: Final = 1 << 20
_ZEROS: Final = bytes(BLOCK)
_EXISTING: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_NEW: Final = _EXISTING | os.O_CREAT | os.O_EXCL
_NO_UNNAMED_FILE: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_CLONE: Final = 0x40049409
"""`FICLONE` of linux/fs.h."""
_NO_CLONE: Final = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)
_NO_OWNER: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL)

Watch = Callable[[str, Path], None]
"""Told the name of a change and the file before it is made."""


@dataclass(frozen=True)
class Metadata:
    """What a file keeps though its content is exchanged."""

    size: int
    mode: int
    user_id: int
    group_id: int
    atime_ns: int
    mtime_ns: int

    @classmethod
    def of(cls, place: Path) -> Metadata:
        """Of a file or directory, links not followed.

        Raises:
            UnreadableError: it may not be looked at.
        """
        try:
            found = place.lstat()
        except OSError as error:
            raise UnreadableError(f"{place}: {reason(error)}") from error
        mode = stat.S_IMODE(found.st_mode)
        return cls(found.st_size, mode, found.st_uid, found.st_gid, found.st_atime_ns, found.st_mtime_ns)


def _unwatched(change: str, place: Path) -> None:
    del change, place


class Disk:
    """Changes to files of this machine. Every method raises WriteError where the system refuses."""

    def __init__(self, watch: Watch = _unwatched) -> None:
        self._watch = watch

    def make_directory(self, place: Path, like: Path) -> None:
        """Make a directory that belongs to whom another one belongs to; nothing where it is there."""
        if place.is_dir():
            return
        with self._change("mkdir", place):
            place.mkdir()
        found = Metadata.of(like)
        self._give(place, found.user_id, found.group_id, found.mode)

    def publish(self, place: Path, data: bytes, like: Path) -> None:
        """Make a small file that is there either whole and on the disk, or not at all."""
        found = Metadata.of(like)
        directory = place.parent
        with reported(place):
            try:
                descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o644)
            except OSError as error:
                if error.errno not in _NO_UNNAMED_FILE:
                    raise
                descriptor = -1
        if descriptor < 0:
            self._publish_named(place, data, found)
            return
        try:
            with self._change("write", place):
                _write_all(descriptor, 0, memoryview(data))
            with self._change("fsync", place), suppress(PermissionError):
                os.fchown(descriptor, found.user_id, found.group_id)
                os.fsync(descriptor)
            with self._change("link", place):
                # Only os.link with a directory descriptor follows the link that names an open file.
                at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.link(f"/proc/self/fd/{descriptor}", place.name, dst_dir_fd=at, follow_symlinks=True)
                finally:
                    os.close(at)
        finally:
            os.close(descriptor)
        self.sync_directory(directory)

    def create(self, place: Path, size: int) -> None:
        """Make a file of zeros, which must not be there."""
        with self._change("create", place):
            descriptor = os.open(place, _NEW, 0o600)
        try:
            with self._change("truncate", place):
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def write(self, place: Path, position: int, content: Content, *, salvaging: bool = False) -> None:
        """Write content into a file that exists; what is zero there already stays untouched, holes too.

        Args:
            salvaging: write zeros where the disk does not give the content, a part of a file.
        """
        source = content.open()
        # Of the file itself, for a bad sector begins where the file's sectors do.
        begin = content.position if isinstance(content, FilePart) else 0
        whole = source.base if isinstance(source, PartSource) else source
        try:
            with _opened(place) as descriptor:
                if os.fstat(descriptor).st_size < position + content.length:
                    with self._change("truncate", place):
                        os.ftruncate(descriptor, position + content.length)
                at = 0
                for start, end in source.extents(0, content.length):
                    self._zero(place, descriptor, position + at, position + start)
                    buffer = memoryview(bytearray(min(BLOCK, end - start)))
                    for here in range(start, end, BLOCK):
                        part = buffer[: min(BLOCK, end - here)]
                        if salvaging:
                            read_salvaging(whole, begin + here, part)
                        else:
                            _read_all(source.name, source.read_into, here, part)
                        with self._change("write", place):
                            _write_all(descriptor, position + here, part)
                    at = end
                self._zero(place, descriptor, position + at, position + content.length)
        finally:
            source.close()

    def copy(self, source: Path, target: Path, *, salvaging: bool = False) -> None:
        """Make a copy that shares the blocks of a file where the file system can, and has its holes where it cannot.

        Args:
            salvaging: let zeros stand where the disk does not give the bytes.
        """
        self.create(target, 0)
        with FileSource.open(source) as found, _opened(target) as descriptor:
            try:
                with self._change("clone", target):
                    fcntl.ioctl(descriptor, _CLONE, found.descriptor)
            except WriteError as error:
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _NO_CLONE:
                    raise
            else:
                return
        self.write(target, 0, FilePart.whole(source), salvaging=salvaging)

    def truncate(self, place: Path, size: int) -> None:
        """Cut or lengthen a file."""
        with _opened(place) as descriptor:
            if os.fstat(descriptor).st_size != size:
                with self._change("truncate", place):
                    os.ftruncate(descriptor, size)

    def give_metadata(self, place: Path, found: Metadata) -> None:
        """Give a file the owner, mode and times it should have."""
        self._give(place, found.user_id, found.group_id, found.mode)
        self.set_times(place, found.atime_ns, found.mtime_ns)

    def set_times(self, place: Path, atime_ns: int, mtime_ns: int) -> None:
        """Set a file's or directory's times."""
        with self._change("utime", place):
            os.utime(place, ns=(atime_ns, mtime_ns), follow_symlinks=False)

    def rename(self, source: Path, target: Path) -> None:
        """Put a file or directory elsewhere on its file system, in place of a file that is there."""
        with self._change("rename", target):
            source.rename(target)

    def remove(self, place: Path) -> None:
        """Remove a file."""
        with self._change("unlink", place):
            place.unlink()

    def remove_directory(self, place: Path) -> None:
        """Remove a directory that is empty."""
        with self._change("rmdir", place):
            place.rmdir()

    def sync(self, place: Path) -> None:
        """Return once a file's bytes are on the disk."""
        self._sync(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)

    def sync_directory(self, place: Path) -> None:
        """Return once the names in a directory are on the disk."""
        self._sync(place, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)

    def remove_tree(self, place: Path) -> None:
        """Remove a directory of the tool's own with all that is in it."""
        with reported(place):
            entries = sorted(os.scandir(place), key=lambda entry: entry.name) if place.is_dir() else []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                self.remove_tree(Path(entry.path))
            else:
                self.remove(Path(entry.path))
        if place.is_dir():
            self.remove_directory(place)

    def _publish_named(self, place: Path, data: bytes, found: Metadata) -> None:
        """The same where the file system has no unnamed files: complete under another name first."""
        partial = partial_place(place)
        with self._change("create", partial):
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            with self._change("write", partial):
                _write_all(descriptor, 0, memoryview(data))
            with self._change("fsync", partial), suppress(PermissionError):
                os.fchown(descriptor, found.user_id, found.group_id)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.rename(partial, place)
        self.sync_directory(place.parent)

    def _zero(self, place: Path, descriptor: int, start: int, end: int) -> None:
        if start >= end:
            return
        source = FileSource(str(place), descriptor, os.fstat(descriptor).st_size)
        buffer = memoryview(bytearray(min(BLOCK, end - start)))
        for data_start, data_end in source.extents(start, end):
            for here in range(data_start, data_end, BLOCK):
                part = buffer[: min(BLOCK, data_end - here)]
                # A sector that cannot be read is not zero; writing it is what makes a disk replace it.
                if read_salvaging(source, here, part) or part != _ZEROS[: len(part)]:
                    with self._change("write", place):
                        _write_all(descriptor, here, memoryview(_ZEROS)[: len(part)])

    def _give(self, place: Path, user_id: int, group_id: int, mode: int) -> None:
        with reported(place):
            found = place.lstat()
        if (found.st_uid, found.st_gid) != (user_id, group_id):
            with self._change("chown", place):
                try:
                    os.chown(place, user_id, group_id, follow_symlinks=False)
                except OSError as error:  # only the superuser gives files away
                    if error.errno not in _NO_OWNER:
                        raise
        if stat.S_IMODE(found.st_mode) != mode:
            with self._change("chmod", place):
                place.chmod(mode)

    def _sync(self, place: Path, flags: int) -> None:
        with reported(place):
            descriptor = os.open(place, flags)
        try:
            with self._change("fsync", place):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _change(self, change: str, place: Path) -> Iterator[None]:
        with reported(place):
            self._watch(change, place)
            yield


def partial_place(place: Path) -> Path:
    """Where a small file is completed, on a file system without unnamed files."""
    return place.with_name(f"{place.name}.partial")


@contextmanager
def _opened(place: Path) -> Iterator[int]:
    with reported(place):
        descriptor = os.open(place, _EXISTING)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, position: int, data: memoryview) -> None:
    while data:
        count = os.pwrite(descriptor, data, position)
        if count <= 0:
            raise OSError(errno.EIO, "nothing was written")
        position += count
        data = data[count:]


def _read_all(name: str, read_into: Callable[[int, memoryview], int], position: int, buffer: memoryview) -> None:
    try:
        count = read_into(position, buffer)
    except OSError as error:
        raise UnreadableError(f"{name}: {reason(error)} at byte {position}") from error
    if count < len(buffer):
        raise UnreadableError(f"{name}: has become shorter")

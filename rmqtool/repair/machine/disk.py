"""Every change that a repair makes to a disk: one small method each, so that a test can end or fail any one of them.

A `Watch` is told before each change. Errors of the system become WriteError with the file's name. Every file is named
by a `RootPath`, so no change leads out of the directories that the call opened.
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
from typing import Annotated, Final, Protocol

import msgspec

from rmqtool.errors import UnreadableError, WriteError
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.repair.machine.digest import read_fully
from rmqtool.repair.machine.root import DEPTH_MAX, RootPart, RootPath
from rmqtool.store.sink import reported, write_all
from rmqtool.store.source import ByteSource, FilePart, FileSource, PartSource, read_salvaging

BLOCK: Final = 1 << 20
PERMISSIONS: Final = 0o777
"""Bits of a mode that are given to a file; a repair never makes one that runs as its owner."""
_ID_MAX: Final = (1 << 32) - 2
_ZEROS: Final = bytes(BLOCK)
_EXISTING: Final = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY
_NEW: Final = _EXISTING | os.O_CREAT | os.O_EXCL
_NO_UNNAMED_FILE: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
_CLONE: Final = 0x40049409
"""`FICLONE` of linux/fs.h."""
_NO_CLONE: Final = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)
_NO_OWNER: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.EINVAL)

Watch = Callable[[str, Path], None]
"""Told the name of a change and the file before it is made."""


class NewContent(Protocol):
    """Bytes that are written: content of a plan, or a part of a file that a repair kept."""

    @property
    def length(self) -> int: ...
    def open(self) -> ByteSource: ...


@dataclass(frozen=True)
class Metadata:
    """Metadata that a file keeps when its content is replaced."""

    size: Annotated[int, msgspec.Meta(ge=0, le=JAVA_LONG_MAX)]
    mode: Annotated[int, msgspec.Meta(ge=0, le=0o7777)]
    user_id: Annotated[int, msgspec.Meta(ge=0, le=_ID_MAX)]
    group_id: Annotated[int, msgspec.Meta(ge=0, le=_ID_MAX)]
    atime_ns: Annotated[int, msgspec.Meta(ge=-JAVA_LONG_MAX, le=JAVA_LONG_MAX)]
    mtime_ns: Annotated[int, msgspec.Meta(ge=-JAVA_LONG_MAX, le=JAVA_LONG_MAX)]

    @classmethod
    def of(cls, file: RootPath) -> Metadata:
        """Of a file or directory, which must be there, links not followed."""
        state = file.lstat()
        if state is None:
            raise UnreadableError(f"{file}: no such file or directory")
        return cls.from_stat(state)

    @classmethod
    def from_stat(cls, state: os.stat_result) -> Metadata:
        mode = stat.S_IMODE(state.st_mode)
        times_ns = within_range(state.st_atime_ns), within_range(state.st_mtime_ns)
        return cls(state.st_size, mode, state.st_uid, state.st_gid, *times_ns)


def within_range(time_ns: int) -> int:
    """A file's time, no later than a journal can say, which is the year 2262; file systems hold later ones."""
    return max(-JAVA_LONG_MAX, min(JAVA_LONG_MAX, time_ns))


class Disk:
    """Changes to files of this machine; a test passes others. Every method raises WriteError where one is refused."""

    def __init__(self, watch: Watch = lambda _change, _file: None) -> None:
        self._watch = watch

    def make_directory(self, directory: RootPath, like: Metadata) -> None:
        """Make a directory with the owner and mode of another one; nothing where it is there."""
        if directory.is_directory():
            return
        with self._change("mkdir", directory), directory.entry() as (at, name):
            os.mkdir(name, 0o700, dir_fd=at)
        self.give_owner(directory, like.user_id, like.group_id, like.mode)

    def publish(self, file: RootPath, data: bytes, like: Metadata) -> None:
        """Make a small file that is there either whole and on the disk, or not at all."""
        with reported(file.shown):
            try:
                descriptor = file.parent.open(os.O_TMPFILE | os.O_RDWR)
            except OSError as error:
                if error.errno not in _NO_UNNAMED_FILE:
                    raise
                descriptor = -1
        if descriptor < 0:
            # Without unnamed files in the file system it is complete under another name first.
            partial = partial_file(file)
            with self._change("create", partial):
                descriptor = partial.open(os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                self._fill(descriptor, partial, data, like)
            finally:
                os.close(descriptor)
            self.rename(partial, file)
            self.sync_directory(file.parent)
            return
        try:
            self._fill(descriptor, file, data, like)
            with self._change("link", file), file.entry() as (at, name):
                os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=at, follow_symlinks=True)
        finally:
            os.close(descriptor)
        self.sync_directory(file.parent)

    def create(self, file: RootPath, size: int) -> None:
        """Make a file of zeros, which must not be there."""
        with self._change("create", file):
            descriptor = file.open(_NEW, 0o600)
        try:
            with self._change("truncate", file):
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def write(self, file: RootPath, position: int, content: NewContent, *, salvaging: bool = False) -> None:
        """Write content into a file that exists; zeros there stay untouched, holes too.

        Args:
            salvaging: write zeros where the disk does not give the content, a part of a file.
        """
        source = content.open()
        # Of the file itself, for a bad sector begins where the file's sectors do.
        begin = content.position if isinstance(content, FilePart | RootPart) else 0
        whole = source.base if isinstance(source, PartSource) else source
        try:
            with _opened(file) as descriptor:
                if os.fstat(descriptor).st_size < position + content.length:
                    with self._change("truncate", file):
                        os.ftruncate(descriptor, position + content.length)
                at = 0
                for start, end in source.extents(0, content.length):
                    self._zero(file, descriptor, position + at, position + start)
                    buffer = memoryview(bytearray(min(BLOCK, end - start)))
                    for here in range(start, end, BLOCK):
                        part = buffer[: min(BLOCK, end - here)]
                        if salvaging:
                            read_salvaging(whole, begin + here, part)
                        else:
                            read_fully(source, here, part)
                        with self._change("write", file):
                            write_all(descriptor, position + here, part)
                    at = end
                self._zero(file, descriptor, position + at, position + content.length)
        finally:
            source.close()

    def copy(self, source: FileSource, target: RootPath, *, salvaging: bool = False) -> None:
        """Make a copy that shares the blocks of a file where the file system can, and has its holes where it cannot.

        Args:
            source: stays open; closing it is its owner's.
            salvaging: let zeros stand where the disk does not give the bytes.
        """
        self.create(target, 0)
        with _opened(target) as descriptor:
            try:
                with self._change("clone", target):
                    fcntl.ioctl(descriptor, _CLONE, source.descriptor)
            except WriteError as error:
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _NO_CLONE:
                    raise
            else:
                return
        self.write(target, 0, _Opened(source), salvaging=salvaging)

    def truncate(self, file: RootPath, size: int) -> None:
        with _opened(file) as descriptor:
            if os.fstat(descriptor).st_size != size:
                with self._change("truncate", file):
                    os.ftruncate(descriptor, size)

    def give_metadata(self, file: RootPath, metadata: Metadata) -> None:
        """Give a file the owner, mode and times it should have."""
        self.give_owner(file, metadata.user_id, metadata.group_id, metadata.mode)
        self.set_times(file, metadata.atime_ns, metadata.mtime_ns)

    def give_owner(self, file: RootPath, user_id: int, group_id: int, mode: int) -> None:
        """Give a file or directory an owner and a mode; only the superuser gives files away, others keep theirs."""
        with reported(file.shown):
            descriptor = file.open(getattr(os, "O_PATH", os.O_RDONLY))
        try:
            itself = f"/proc/self/fd/{descriptor}"
            state = os.fstat(descriptor)
            if stat.S_ISLNK(state.st_mode):
                raise WriteError(f"{file}: a symbolic link; its owner and mode are not changed")
            if (state.st_uid, state.st_gid) != (user_id, group_id):
                with self._change("chown", file):
                    try:
                        os.chown(itself, user_id, group_id)
                    except OSError as error:
                        if error.errno not in _NO_OWNER:
                            raise
            # A set-group-id bit says whose new files in a directory are; on a file it would let it run as the group.
            kept = PERMISSIONS | (stat.S_ISGID if stat.S_ISDIR(state.st_mode) else 0)
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode & kept:
                with self._change("chmod", file):
                    os.chmod(itself, mode & kept)  # noqa: PTH101 - of a descriptor
        finally:
            os.close(descriptor)

    def set_times(self, file: RootPath, atime_ns: int, mtime_ns: int) -> None:
        with self._change("utime", file), file.entry() as (at, name):
            os.utime(name, ns=(atime_ns, mtime_ns), dir_fd=at, follow_symlinks=False)

    def rename(self, source: RootPath, target: RootPath) -> None:
        """Put a file or directory elsewhere on its file system, in place of a file that is there."""
        with self._change("rename", target), source.entry() as (at, name), target.entry() as (other, new_name):
            os.rename(name, new_name, src_dir_fd=at, dst_dir_fd=other)

    def remove(self, file: RootPath) -> None:
        with self._change("unlink", file), file.entry() as (at, name):
            os.unlink(name, dir_fd=at)

    def remove_directory(self, directory: RootPath) -> None:
        with self._change("rmdir", directory), directory.entry() as (at, name):
            os.rmdir(name, dir_fd=at)

    def sync(self, file: RootPath) -> None:
        """Return once a file's bytes are on the disk."""
        self._sync(file, os.O_RDONLY | os.O_NONBLOCK)

    def sync_directory(self, directory: RootPath) -> None:
        """Return once the names in a directory are on the disk."""
        self._sync(directory, os.O_RDONLY | os.O_DIRECTORY)

    def remove_tree(self, directory: RootPath, depth: int = 0) -> None:
        """Remove a directory of the tool's own with all that is in it; nothing where it is not there."""
        if depth > DEPTH_MAX:
            raise WriteError(f"{directory}: nested deeper than any directory of rmqtool; not removed")
        if not directory.is_directory():
            return
        for name in directory.names():
            if (directory / name).is_directory():
                self.remove_tree(directory / name, depth + 1)
            else:
                self.remove(directory / name)
        self.remove_directory(directory)

    def _fill(self, descriptor: int, file: RootPath, data: bytes, like: Metadata) -> None:
        with self._change("write", file):
            write_all(descriptor, 0, memoryview(data))
        with self._change("fsync", file):
            with suppress(PermissionError):  # only the superuser gives files away
                os.fchown(descriptor, like.user_id, like.group_id)
            os.fchmod(descriptor, like.mode & PERMISSIONS)
            os.fsync(descriptor)

    def _zero(self, file: RootPath, descriptor: int, start: int, end: int) -> None:
        if start >= end:
            return
        source = FileSource(str(file), descriptor, os.fstat(descriptor).st_size)
        buffer = memoryview(bytearray(min(BLOCK, end - start)))
        for data_start, data_end in source.extents(start, end):
            for here in range(data_start, data_end, BLOCK):
                part = buffer[: min(BLOCK, data_end - here)]
                # A sector that cannot be read is not zero; writing it is what makes a disk replace it.
                if read_salvaging(source, here, part) or part != _ZEROS[: len(part)]:
                    with self._change("write", file):
                        write_all(descriptor, here, memoryview(_ZEROS)[: len(part)])

    def _sync(self, file: RootPath, flags: int) -> None:
        with reported(file.shown):
            descriptor = file.open(flags)
        try:
            with self._change("fsync", file):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _change(self, change: str, file: RootPath) -> Iterator[None]:
        with reported(file.shown):
            self._watch(change, file.shown)
            yield


@dataclass(frozen=True)
class _Opened:
    file: FileSource
    position = 0

    @property
    def length(self) -> int:
        return self.file.size

    def open(self) -> ByteSource:
        return FileSource(self.file.name, os.dup(self.file.descriptor), self.file.size)


def partial_file(file: RootPath) -> RootPath:
    """Where a small file is completed, on a file system without unnamed files."""
    return file.with_name(f"{file.name}.partial")


@contextmanager
def _opened(file: RootPath) -> Iterator[int]:
    with reported(file.shown):
        descriptor = file.open(_EXISTING)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

"""Stands between a command and the system: told of every call that changes a disk, before and after it.

The functions of `os` themselves are exchanged, so that no change of the repairs' own code slips past. What Python's
buffered files write is seen when they are opened, and when the next call comes.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

Watch = Callable[[str, str], None]
"""Told the name of a call and the path it changes."""

_BY_PATH: Final = ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "symlink", "mkfifo", "truncate",
                   "chmod", "chown", "lchown", "utime")  # fmt: skip
_BY_DESCRIPTOR: Final = ("write", "writev", "pwrite", "pwritev", "ftruncate", "fsync", "fdatasync", "fchmod", "fchown",
                         "posix_fallocate", "copy_file_range", "sendfile")  # fmt: skip
_TWO_PATHS: Final = ("rename", "replace", "link", "symlink")
_OPEN_CHANGES: Final = os.O_CREAT | os.O_TRUNC | (os.O_TMPFILE & ~os.O_DIRECTORY)


def _nothing(call: str, path: str) -> None:
    del call, path


@contextmanager
def watched(folder: Path, before: Watch = _nothing, after: Watch = _nothing) -> Iterator[None]:
    """Tell of each call that changes something in a folder; what `before` raises is what the caller gets."""
    inside = f"{folder.resolve()}/"
    real: dict[tuple[Any, str], Any] = {}
    is_busy = False

    def tell(watch: Watch, call: str, path: str) -> None:
        nonlocal is_busy
        if is_busy or not f"{path}/".startswith(inside):  # the watch changes the disk itself
            return
        is_busy = True
        try:
            watch(call, path)
        finally:
            is_busy = False

    def exchange(module: Any, name: str, path_of: Callable[..., str | None]) -> None:
        function = real[module, name] = getattr(module, name)

        @functools.wraps(function)
        def standing_in(*arguments: Any, **options: Any) -> Any:
            path = None if is_busy else path_of(*arguments, **options)
            if path is None:
                return function(*arguments, **options)
            tell(before, name, path)
            result = function(*arguments, **options)
            tell(after, name, path)
            return result

        setattr(module, name, standing_in)

    for name in _BY_PATH:
        exchange(os, name, functools.partial(_path_of, name in _TWO_PATHS))
    for name in _BY_DESCRIPTOR:
        exchange(os, name, _path_of_descriptor)
    exchange(os, "open", _path_of_open)
    exchange(io, "open", _path_of_file)
    exchange(fcntl, "ioctl", _path_of_descriptor)
    try:
        yield
    finally:
        for (module, name), function in real.items():
            setattr(module, name, function)


class Calls:
    """Counts the calls; at the nth one, or from it on, an error of the system comes instead."""

    def __init__(self, at: int = 0, code: int = 0, *, again: bool = False) -> None:
        self.names: list[str] = []
        self._at = at
        self._code = code
        self._again = again

    def __call__(self, call: str, path: str) -> None:
        self.names.append(f"{call} {path}")
        number = len(self.names)
        if self._code and (number == self._at or (self._again and number >= self._at)):
            raise OSError(self._code, os.strerror(self._code), path)


CODES: Final = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}


def _path_of(is_second: bool, *arguments: Any, **options: Any) -> str | None:
    place = arguments[1] if is_second and len(arguments) > 1 else arguments[0]
    if isinstance(place, int):
        return _path_of_descriptor(place)
    directory = options.get("dst_dir_fd" if is_second else "dir_fd")
    return _resolved(os.fspath(place), directory)


def _path_of_descriptor(descriptor: Any, *_arguments: Any, **_options: Any) -> str | None:
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    try:
        return os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - a Path cannot tell of no directory
    except OSError:
        return None


def _path_of_open(path: Any, flags: int = 0, *_arguments: Any, **options: Any) -> str | None:
    if not flags & _OPEN_CHANGES:
        return None
    directory = options.get("dir_fd")
    place = _resolved(os.fspath(path), directory)
    # One that is there already is not made by O_CREAT alone.
    return None if flags & os.O_CREAT and not flags & (os.O_EXCL | os.O_TRUNC) and os.path.lexists(place) else place


def _path_of_file(path: Any, mode: str = "r", *_arguments: Any, **_options: Any) -> str | None:
    if isinstance(path, int) or not set(mode) & set("wax+"):
        return None
    return _resolved(os.fspath(path), None)


def _resolved(path: str | bytes, directory: int | None) -> str:
    text = os.fsdecode(path)
    if not text.startswith("/"):
        base = _path_of_descriptor(directory) if directory is not None else os.getcwd()  # noqa: PTH109
        text = f"{base}/{text}"
    folder, _, name = text.rpartition("/")
    return f"{os.path.realpath(folder or '/')}/{name}"

"""Files that rmqtool writes for its own later runs, where a person names them: states, plans, manifests, metrics.

Each kind is recognized by its first bytes before anything is written, so that a mistyped name costs nobody a file. A
link, a directory, a pipe or a device is none of them, and neither is an empty file: it may be the lock or the mark of
another program.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Final

from rmqtool.errors import RefusedError, UnreadableError, WriteError

HEAD_SIZE: Final = 256
"""Bytes by which a file is recognized."""
_OPEN_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class OwnFile(Enum):
    """A kind of file: its name, and its first bytes in every version of rmqtool."""

    REPLAY_STATE = "a state file of replay", rb'\{"format":\d+,"id":"[0-9a-f]{16}","request":\{'
    WATCH_STATE = "a state file of watch", rb'\{"format": "rmqtool-watch-state-\d+"'
    VERIFY_STATE = "a state file of verify", rb'\{"format": "rmqtool-verify-state-\d+"'
    MIRROR_STATE = "a state file of mirror", rb'\{"master": (null|"[^"]*"), "built_offset": '
    PLAN = "a saved plan", rb'\{\s*"command":\s*"[a-z-]+",\s*"store_fingerprint":\s*"'
    MANIFEST = "a manifest of rmqtool", rb"rmqtool manifest \d+\n"
    METRICS = "a text file with metrics of rmqtool", rb"# HELP rmqtool_"

    def __init__(self, text: str, start: bytes) -> None:
        self.text = text
        self._start = re.compile(start)

    def demand(self, path: str | Path, head: bytes) -> None:
        """Refuse, as RefusedError, a file that starts as no file of this kind does."""
        if self._start.match(head[:HEAD_SIZE]) is None:
            what = "is empty, so it is not" if not head else "is not"
            raise RefusedError(f"{path}: {what} {self.text}; name another file, or remove this one if nobody needs it")


def open_own(path: Path, kind: OwnFile, flags: int = os.O_RDONLY) -> int | None:
    """A descriptor of a file of a kind; None where no file is there, RefusedError where something else is, and
    UnreadableError where it may not be opened.
    """
    try:
        descriptor = os.open(path, flags | _OPEN_FLAGS)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        code = error.errno if isinstance(error, OSError) else None
        if code in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV):
            raise _not_regular(path, kind) from error
        raise UnreadableError(f"{path}: {_reason(error)}") from error
    try:
        _demand_open(descriptor, path, kind)
    except OSError as error:
        os.close(descriptor)
        raise UnreadableError(f"{path}: {_reason(error)}") from error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def demand_own(path: Path, kind: OwnFile) -> None:
    """Refuse to replace an existing path, unless it is a file of a kind; errors as of `open_own`."""
    if (descriptor := open_own(path, kind)) is not None:
        os.close(descriptor)


def read_own(path: Path, kind: OwnFile, size_max: int) -> bytes | None:
    """The content of a file of a kind, at most one byte more than its limit; errors and None as of `open_own`."""
    descriptor = open_own(path, kind)
    if descriptor is None:
        return None
    try:
        with os.fdopen(descriptor, "rb") as file:
            return file.read(size_max + 1)
    except OSError as error:
        raise UnreadableError(f"{path}: {_reason(error)}") from error


@contextmanager
def replaced_own(path: Path, kind: OwnFile) -> Iterator[BinaryIO]:
    """Write a file of a kind beside its place; it is on the disk and renamed at the end, or nothing is left of it.
    Errors as of `open_own`, and WriteError if it cannot be written.
    """
    demand_own(path, kind)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with suppress(FileNotFoundError):
            beside.unlink()
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        demand_own(path, kind)
        beside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise WriteError(f"{path}: {_reason(error)}") from error
        raise


def replace_own(path: Path, kind: OwnFile, text: str) -> None:
    """Replace a text file of a kind, whole or not at all; errors as of `replaced_own`."""
    content = text.encode("utf-8", "backslashreplace")
    with replaced_own(path, kind) as file:
        file.write(content)


def _demand_open(descriptor: int, path: Path, kind: OwnFile) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise _not_regular(path, kind)
    kind.demand(path, os.pread(descriptor, HEAD_SIZE, 0))


def _not_regular(path: Path, kind: OwnFile) -> RefusedError:
    return RefusedError(f"{path}: a link, or not a regular file, so not {kind.text}; name another file")


def _reason(error: OSError | ValueError) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return (strerror or str(error)).lower()

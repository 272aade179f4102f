"""Makes the redacted copy of a store: every file with its size and time, and of its bytes what may leave.

Files of numbers are copied where these can be a broker's, the commit log is redacted, configuration is rebuilt from
what is declared of it, and of every other file only the size is kept, which is recorded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from rmqtool.errors import UnreadableError, UnsupportedError, WriteError
from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.evidence.rebuild_config import Rebuild, shape_of
from rmqtool.evidence.redact_log import CHUNK, read_or_zeros, redact_log, redact_records
from rmqtool.evidence.redact_record import masked
from rmqtool.evidence.redact_units import KINDS, redact_numbers
from rmqtool.store.config.config_json import SIZE_MAX
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.relaxed_json import JsonError
from rmqtool.store.source import ByteSource, read_range, reason
from rmqtool.store.view import Entry

SIDE_DATABASES: Final = frozenset({FileKind.ROCKSDB, FileKind.POP_ROCKSDB})
_CURRENT: Final = re.compile(rb"MANIFEST-\d+\n")
_CURRENT_MAX: Final = 64
_ROCKSDB_NOTES: Final = ("LOG", "OPTIONS-")
"""Paths and settings of the machine, which no verdict needs."""


class Included(StrEnum):
    """Included part of a file."""

    WHOLE = "whole"
    REDACTED = "redacted"
    RANGES = "ranges"
    """Some ranges, one after the other in the order of `CopiedFile.ranges`."""
    SIZE = "size-only"
    NOT_A_FILE = "not-a-file"


@dataclass(frozen=True)
class CopiedFile:
    """One file of the store, as the bundle lists it.

    Attributes:
        ranges: file position and length of each range; empty unless only ranges are included.
        digest: of the bytes that are in the bundle; empty where none are.
    """

    path: str
    size: int
    mtime_ns: int
    kind: str
    included: Included
    ranges: tuple[tuple[int, int], ...] = ()
    digest: str = ""


def data_bytes(store: Store, *, with_log: bool, is_redacted: bool = True) -> int:
    """Bytes of the store that a copy would hold, holes left out."""
    total = 0
    for kind, entry in files_of(store):
        is_left_out = kind is FileKind.COMMITLOG and not with_log
        if entry.is_file and not is_left_out and included_of(kind, entry, is_redacted=is_redacted) is not Included.SIZE:
            with closing(store.view.open(entry.path)) as source:
                total += sum(end - start for start, end in source.extents(0, source.size))
    return total


def copy_redacted(
    store: Store, target: Path, pseudonyms: Pseudonyms | None, progress: Callable[[int, int], None], *, with_log: bool
) -> list[CopiedFile]:
    """Write the copy into an empty directory; return the copied part of each file, by path.

    Args:
        pseudonyms: None copies bodies, keys, tags and property values too.

    Raises:
        UnsupportedError: a part of the store lies outside of its directory.
        WriteError: the copy cannot be written.
    """
    copied = []
    files = list(files_of(store))
    for directory in store.directories:
        inside(target, shown_path(directory, pseudonyms)).mkdir(parents=True, exist_ok=True)
    for number, (kind, entry) in enumerate(files):
        progress(number, len(files))
        included = included_of(kind, entry, is_redacted=pseudonyms is not None)
        if kind is FileKind.COMMITLOG and not with_log:
            included = Included.SIZE
        path = shown_path(entry.path, pseudonyms)
        copied.append(CopiedFile(path, entry.size, entry.mtime_ns, kind.value, included))
        if entry.is_file:
            write_chunks(inside(target, path), entry.size, _chunks(store, kind, entry, included, pseudonyms))
    if with_log and pseudonyms is not None:
        for path, chunks in redact_log(store.view.open, store.commitlog, pseudonyms):
            write_chunks(inside(target, shown_path(path, pseudonyms)), None, chunks)
    for file in copied:
        if file.included is not Included.NOT_A_FILE:
            os.utime(inside(target, file.path), ns=(file.mtime_ns, file.mtime_ns))
    return sorted(copied, key=lambda file: file.path)


def shown_path(path: str, pseudonyms: Pseudonyms | None) -> str:
    """The path of a file as the bundle has it."""
    return path if pseudonyms is None or not pseudonyms.names.hides else pseudonyms.names.path(path)


def files_of(store: Store) -> Iterator[tuple[FileKind, Entry]]:
    """All files of a store with their kinds."""
    for kind, entries in store.files.items():
        for entry in entries:
            yield kind, entry


def included_of(kind: FileKind, entry: Entry, *, is_redacted: bool) -> Included:
    """Part of a file that a whole copy includes."""
    if not entry.is_file:
        return Included.NOT_A_FILE
    if kind in (FileKind.COMMITLOG, FileKind.COMPACTION_LOG):
        return Included.REDACTED
    if kind in (FileKind.CONFIG, FileKind.COMPACTION_CHECKPOINT):
        is_known = shape_of(entry.path) is not None and entry.size <= SIZE_MAX
        return Included.REDACTED if is_known else Included.SIZE
    if kind in SIDE_DATABASES and entry.name == "CURRENT":
        return Included.REDACTED
    if kind is FileKind.CONSUMEQUEUE_ROCKSDB and not is_redacted:
        return Included.SIZE if entry.name.startswith(_ROCKSDB_NOTES) else Included.WHOLE
    return Included.WHOLE if kind in KINDS and not entry.name.startswith("brokerIdentity") else Included.SIZE


def _chunks(
    store: Store, kind: FileKind, entry: Entry, included: Included, pseudonyms: Pseudonyms | None
) -> Iterator[tuple[int, bytes]]:
    if included is Included.SIZE or (kind is FileKind.COMMITLOG and pseudonyms is not None):
        return
    try:
        source = store.view.open(entry.path)
    except UnreadableError:
        return
    with closing(source):
        if kind in (FileKind.CONFIG, FileKind.COMPACTION_CHECKPOINT) and pseudonyms is not None:
            yield 0, redact_config(entry.path, read_range(source, 0, entry.size), pseudonyms)
        elif kind is FileKind.COMPACTION_LOG and pseudonyms is not None:
            yield from redact_records(source, pseudonyms)
        elif kind in SIDE_DATABASES:
            yield 0, current_of(source)
        elif pseudonyms is not None:
            slot_count = store.index_slot_count if kind is FileKind.INDEX else None
            yield from redact_numbers(kind, source, slot_count, [(0, source.size)])
        else:
            for start, end in source.extents(0, source.size):
                for at in range(start, end, CHUNK):
                    yield at, read_or_zeros(source, at, min(CHUNK, end - at))


def redact_config(path: str, raw: bytes, pseudonyms: Pseudonyms) -> bytes:
    """A file with as many bytes as before; one that is no such JSON is masked, which is none either.

    Args:
        path: of a file of which something is declared.
    """
    shape = shape_of(path)
    assert shape is not None
    try:
        text = Rebuild(pseudonyms.names.each, pseudonyms.letters).text(raw, shape)
    except JsonError:
        return masked(raw)
    return text.ljust(len(raw)) if len(text) <= len(raw) else masked(raw)


def current_of(source: ByteSource) -> bytes:
    """Content of a CURRENT, which shows whether a broker opens the database; empty for anything else."""
    text = read_range(source, 0, _CURRENT_MAX)
    return text if _CURRENT.fullmatch(text) else b""


def inside(target: Path, path: str) -> Path:
    """Where a file of the store is copied to.

    Raises:
        UnsupportedError: it lies outside of the store.
    """
    if path.startswith("/") or ".." in path.split("/"):
        raise UnsupportedError(f"{path}: is outside the store directory; a bundle holds one directory only")
    return target / path


def write_chunks(path: Path, size: int | None, chunks: Iterable[tuple[int, bytes]]) -> None:
    """Write chunks into a file, with holes between them.

    Args:
        size: to which the file is cut or lengthened; None leaves it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            if size is not None:
                file.truncate(size)
            for at, data in chunks:
                file.seek(at)
                file.write(data)
    except OSError as error:
        raise WriteError(f"{path}: {reason(error)}") from error

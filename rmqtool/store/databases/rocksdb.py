"""Reads and writes RocksDB databases, in a process of its own; read through links, so that nothing in a store changes.

What the library demands is not trusted to be harmless: it writes into the directory that it opens, and damage can end
its process. So it gets a temporary directory of links to the database's files, bounded memory, and a limit of time.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from struct import Struct
from typing import IO, Final, NamedTuple

from rmqtool.errors import UnreadableError, UnsupportedError, WriteError
from rmqtool.store.databases import rocksdb_reader, rocksdb_writer
from rmqtool.store.source import read_range
from rmqtool.store.view import DirectoryView, Entry, StoreView

LIBRARY: Final = "rocksdict"
HOW_TO_INSTALL: Final = "install rmqtool[rocksdb] to read it"
MEMORY_BYTES: Final = 4 << 30
"""Memory limit of the reading process."""
TABLE_FORMAT: Final = rocksdb_reader.TABLE_FORMAT_MAX
"""Version of the format of tables that brokers read."""
SILENCE_S: Final = 120.0
"""A reading process that writes nothing for so long is ended."""
HOLES_MAX: Final = 1 << 30
"""Bytes that were never written, in a file that the library reads to its end; it would read minutes of zeros."""
_COPY_BYTES: Final = 1 << 20
_DATA_FILE: Final = re.compile(r"CURRENT|IDENTITY|MANIFEST-\d+|\d+\.(sst|ldb|log|blob)", re.ASCII)
"""Files with the database's content; its options, its lock and its diary are left out."""
_FRAME: Final = Struct(rocksdb_reader.FRAME.format)
_FRAME_MAX: Final = max(rocksdb_reader.BATCH_ROWS, rocksdb_reader.VALUE_MAX)


class RocksFailure(Enum):
    """Why a database was not read to its end."""

    NO_LIBRARY = "no library"
    DOES_NOT_OPEN = "does not open"
    """The library refuses it, as a broker's would."""
    UNREADABLE = "unreadable"
    """It opens, and some of its rows cannot be read."""
    CRASH = "crash"
    """The process ended or did not answer."""


class RocksFamily(NamedTuple):
    """A column family to read.

    Attributes:
        suffix_size: bytes at the end of a key that differ within a batch; 0 where rows come one by one.
        value_size: bytes of a value.
    """

    name: str
    suffix_size: int = 0
    value_size: int = 0


class RowBatch(NamedTuple):
    """Rows of a family that have a prefix in common: columns of suffixes and values, or the value of one key.

    Attributes:
        row_count: rows; 0 where `prefix` is a whole key and `values` its value.
    """

    family: str
    prefix: bytes
    row_count: int
    suffixes: bytes
    values: bytes


def is_installed() -> bool:
    """True if the library that reads databases is installed."""
    return find_spec(LIBRARY) is not None


@dataclass
class RocksReading:
    """One reading of a database; after `batches` has ended, also its result.

    Attributes:
        families: names of all column families, once it is open.
        failure: why not everything was read; None where it was.
        reason: the same, as a sentence.
    """

    view: StoreView
    entries: Sequence[Entry]
    families: tuple[str, ...] = ()
    failure: RocksFailure | None = None
    reason: str = ""

    def batches(self, families: Sequence[RocksFamily]) -> Generator[RowBatch]:
        """All rows of some families, in order; no more come once `failure` is set."""
        if not is_installed():
            self._fail(RocksFailure.NO_LIBRARY, HOW_TO_INSTALL)
            return
        with tempfile.TemporaryDirectory(prefix="rmqtool-") as folder:
            try:
                _link(self.view, self.entries, Path(folder))
            except (UnreadableError, OSError) as error:
                self._fail(RocksFailure.UNREADABLE, str(error))
                return
            sizes = [str(value) for family in families for value in family]
            command = [sys.executable, "-P", rocksdb_reader.__file__, folder, str(MEMORY_BYTES), *sizes]
            with (
                tempfile.TemporaryFile() as diary,
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=diary, cwd=folder
                ) as process,
            ):
                assert process.stdout is not None
                try:
                    yield from self._read(process.stdout, {family.name: family for family in families})
                except _ReadingEndedError as ended:
                    process.kill()
                    self._fail(RocksFailure.CRASH, f"{ended}{_exit_text(process.wait(), diary)}")
                finally:
                    process.kill()

    def _read(self, pipe: IO[bytes], families: dict[str, RocksFamily]) -> Iterator[RowBatch]:
        name = ""
        while True:
            kind, length, count = _FRAME.unpack(_exactly(pipe, _FRAME.size))
            if length > rocksdb_reader.KEY_MAX or count > _FRAME_MAX:
                raise _ReadingEndedError("the reading process wrote nonsense")
            text = _exactly(pipe, length)
            match kind:
                case b"U":
                    suffix_size, value_size = families[name].suffix_size, families[name].value_size
                    yield RowBatch(
                        name, text, count, _exactly(pipe, count * suffix_size), _exactly(pipe, count * value_size)
                    )
                case b"R":
                    yield RowBatch(name, text, 0, b"", _exactly(pipe, count))
                case b"N":
                    self.families = (*self.families, text.decode("utf-8", "replace"))
                case b"F":
                    name = text.decode()
                case b"M":
                    self._fail(RocksFailure.NO_LIBRARY, HOW_TO_INSTALL)
                    return
                case b"O" | b"E":
                    is_open = kind == b"E"
                    self._fail(RocksFailure.UNREADABLE if is_open else RocksFailure.DOES_NOT_OPEN, _one_line(text))
                    if not is_open:
                        return
                case _:
                    return

    def _fail(self, failure: RocksFailure, reason: str) -> None:
        if self.failure is None:
            self.failure, self.reason = failure, reason


def unknown_family(families: Iterable[str], known: Iterable[str]) -> str | None:
    """Why a broker does not open a database, as a sentence: it names families, and RocksDB demands all of them."""
    unknown = sorted({*families} - {*known})
    return f"column family {unknown[0][:60]!r}, which no known broker has" if unknown else None


def require_library() -> None:
    """Refuse to write a database without the library.

    Raises:
        UnsupportedError: it is missing.
    """
    if find_spec(LIBRARY) is None:
        raise UnsupportedError("the consume queues are in RocksDB: install rmqtool[rocksdb] to write them")


def write_database(
    folder: Path, families: Mapping[RocksFamily, Iterable[RowBatch]], table_format: int = TABLE_FORMAT
) -> str:
    """Write a database into an empty directory; the rows of each family come in the order of their keys.

    Args:
        table_format: version of the format of its tables; brokers read `TABLE_FORMAT` and older ones.

    Returns: a digest of the rows, as `sha256:<hex>`; the bytes of the files are others each time.

    Raises:
        UnsupportedError: the library is missing.
        WriteError: it cannot be written.
    """
    require_library()
    sizes = next(((family.suffix_size, family.value_size) for family in families if family.suffix_size), (0, 0))
    command = [sys.executable, "-P", rocksdb_writer.__file__, str(folder.absolute()), *map(str, (*sizes, table_format))]
    digest = hashlib.sha256()
    with tempfile.TemporaryFile() as diary, tempfile.TemporaryFile() as answer:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=answer, stderr=diary, cwd=folder) as process:
            assert process.stdin is not None
            try:
                for family, batches in families.items():
                    digest.update(_write_frame(process.stdin, b"F", family.name.encode(), 0, b""))
                    for batch in batches:
                        kind, count = (b"U", batch.row_count) if batch.row_count else (b"R", len(batch.values))
                        data = batch.suffixes + batch.values
                        digest.update(_write_frame(process.stdin, kind, batch.prefix, count, data))
                _write_frame(process.stdin, b"D", b"", 0, b"")
                process.stdin.close()
            except OSError:
                pass  # it has ended; its last words are kept
            except BaseException:
                process.kill()
                raise
            status = process.wait()
        answer.seek(0)
        if status or answer.read() != b"D":
            raise WriteError(f"{folder}: the RocksDB library did not write the database{_exit_text(status, diary)}")
    return f"sha256:{digest.hexdigest()}"


def _write_frame(pipe: IO[bytes], kind: bytes, text: bytes, count: int, data: bytes) -> bytes:
    frame = _FRAME.pack(kind, len(text), count) + text + data
    pipe.write(frame)
    return frame


class _ReadingEndedError(Exception):
    """The reading process is gone, or does not answer."""


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    """Read exactly this number of bytes from the pipe."""
    parts, missing = [], length
    waiting = select.poll()  # `select.select` takes no descriptor above 1023
    waiting.register(pipe, select.POLLIN)
    while missing:
        if not waiting.poll(SILENCE_S * 1000):
            raise _ReadingEndedError(f"the library gave no answer for {SILENCE_S:.0f} s")
        part = os.read(pipe.fileno(), missing)
        if not part:
            raise _ReadingEndedError("the library ended its process")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _exit_text(status: int, diary: IO[bytes]) -> str:
    diary.seek(max(0, diary.seek(0, os.SEEK_END) - 400))
    last = diary.read().strip().rpartition(b"\n")[2]
    how = f" (signal {-status})" if status < 0 else f" (exit code {status})" if status else ""
    return f"{how}{': ' if last else ''}{_one_line(last)}"


def _one_line(text: bytes) -> str:
    """The library's message, without its own name for the directory."""
    line = " ".join(text.decode("utf-8", "replace").split())
    return "".join(char for char in line.replace("./", "") if char.isprintable())


def _link(view: StoreView, entries: Sequence[Entry], folder: Path) -> None:
    """Make the database's files visible in a directory: by links, or as copies where the store lies elsewhere."""
    for entry in entries:
        if not entry.is_file or not _DATA_FILE.fullmatch(entry.name):
            continue
        is_read_whole = not entry.name.endswith((".sst", ".ldb", ".blob"))
        if is_read_whole and isinstance(view, DirectoryView) and entry.size - entry.allocated_bytes > HOLES_MAX:
            raise UnreadableError(f"{entry.path}: {entry.size} bytes, most of them never written, are too many to read")
        if entry.is_link:
            raise UnreadableError(f"{entry.path}: a symbolic link; files of a database are not read through links")
        if isinstance(view, DirectoryView):
            (folder / entry.name).symlink_to((view.root / entry.path).absolute())
            continue
        with closing(view.open(entry.path)) as source, (folder / entry.name).open("wb") as copy:
            for position in range(0, source.size, _COPY_BYTES):
                copy.write(read_range(source, position, min(_COPY_BYTES, source.size - position)))

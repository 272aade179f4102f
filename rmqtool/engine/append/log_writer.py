"""Appends records to the commitlog's files: room, end-of-file blank, next file, several paths, preallocation.

Broker: `CommitLog#asyncPutMessage`, `MappedFileQueue#getLastMappedFile`, `AllocateMappedFileService`,
`MultiPathMappedFileQueue#tryCreateMappedFile`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rmqtool.engine.append.encoder import encode_blank
from rmqtool.errors import WriteError
from rmqtool.formats.commitlog import BLANK_SIZE_MIN
from rmqtool.store.directory import Segment
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.sink import FileSink

BLOCK_SIZE: Final = 4 << 20
"""Bytes that are gathered before they are written."""


class LogWriter:
    """The end of the log, open for appending. Offsets are physical.

    What writes raises WriteError where the disk does not take it.

    Attributes:
        file_size: bytes of a file.
        end: after the last record that was given.
        written_end: after the last byte that was handed to the operating system.
        holds_back: bytes for a file that this writer began are kept until the file is full, or a whole block of them is
            there (`transientStorePoolEnable`; a file that was loaded has no buffer of its own).
    """

    def __init__(
        self,
        sink: FileSink,
        directories: tuple[str, ...],
        file_size: int,
        on_written: Callable[[int, bytearray], None],
        end: int | None = None,
        file: Segment | None = None,
    ) -> None:
        """An end of None is that of a log without any file; `file` holds the end, None where the next one begins there.

        `on_written` gets each block of records that was written, with its physical offset; it lies within one file.
        """
        self._on_written = on_written
        self._sink = sink
        self._directories = tuple(sorted(directories))
        self.file_size = file_size
        self._file = file.path if file is not None else None
        self._file_start = file.start if file is not None else 0
        self._pending: list[bytearray] = []
        self._pending_size = 0
        self._preallocated: str | None = None
        self._is_own_file = False
        self.holds_back = False
        self.end = end or 0
        self.written_end = self.end

    def room(self) -> int:
        """Bytes left in the current file; a whole file where the next one is still to be made."""
        return self._file_start + self.file_size - self.end if self._file is not None else self.file_size

    def fits(self, length: int) -> bool:
        """True if this number of bytes and the smallest blank after them fit into the current file."""
        return length + BLANK_SIZE_MIN <= self.room()

    def open_file(self) -> bool:
        """Open the file for the next record; False where it cannot be made."""
        if self._file is None:
            try:
                self._open_file()
            except WriteError:
                return False
        return True

    def make_files(self, count: int) -> bool:
        """Make the current file and those after it, so many in all; False where one cannot be made."""
        if not self.open_file():
            return False
        try:
            for number in range(1, count):
                self._sink.create(self._path(self._file_start + number * self.file_size), self.file_size)
        except WriteError:
            return False
        return True

    def append(self, records: bytearray) -> None:
        """Take records, which fit and were encoded for `end`."""
        if self._file is None:
            self._open_file()
        self._pending.append(records)
        self._pending_size += len(records)
        self.end += len(records)
        if self._pending_size >= BLOCK_SIZE:
            self._write_pending()

    def roll(self) -> None:
        """End the current file with a blank; the next record begins a new one."""
        if self._file is None:
            self._open_file()
        self._pending.append(bytearray(encode_blank(self.room())))
        self._write_pending()
        self._close_file()

    def write_out(self) -> None:
        """Write the gathered bytes to the operating system."""
        is_full = self._file is not None and self.room() == 0
        if not self.holds_back or not self._is_own_file or is_full:
            self._write_pending()

    def _write_pending(self) -> None:
        if not self._pending or self._file is None:
            return
        block = self._pending[0] if len(self._pending) == 1 else bytearray().join(self._pending)
        start = self.written_end
        self._sink.write_at(self._file, start - self._file_start, memoryview(block))
        self.written_end = self.end
        self._pending.clear()
        self._pending_size = 0
        if self.end > start:
            self._on_written(start, block if len(block) == self.end - start else block[: self.end - start])
        if self.end == self._file_start + self.file_size:
            self._close_file()

    def discard(self) -> None:
        """Forget the gathered bytes, as the end of a broker discards its own memory."""
        self._pending.clear()
        self._pending_size = 0
        self.end = self.written_end

    def sync(self) -> None:
        """Write out and wait until the disk has it."""
        self.write_out()
        if self._file is not None:
            self._sink.sync(self._file)

    def drop_preallocated(self) -> None:
        """Unlink the file that was made in advance, as a clean stop does."""
        if self._preallocated is not None:
            self._sink.remove(self._preallocated)
            self._preallocated = None

    def _open_file(self) -> None:
        path = self._path(self.end)
        if path != self._preallocated:
            self._sink.create(path, self.file_size)
        self._file, self._file_start, self._is_own_file = path, self.end, True
        following = self._path(self._file_start + self.file_size)
        self._preallocated = None
        # Made in advance, and not needed yet: a put that needs it reports the failure.
        with suppress(WriteError):
            self._sink.create(following, self.file_size)
            self._preallocated = following

    def _close_file(self) -> None:
        if self._file is not None:
            self._sink.sync(self._file)
            self.end = self.written_end = self._file_start + self.file_size
            self._file = None

    def _path(self, start: int) -> str:
        directory = self._directories[start // self.file_size % len(self._directories)]
        return f"{directory}/{segment_name(start)}"

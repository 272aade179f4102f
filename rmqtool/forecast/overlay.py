"""A store with what a simulated broker writes and unlinks laid over it: a view, and a sink for the engine's writers.

Nothing reaches the store itself. Only pages that change are kept; beyond a limit they go to an unnamed temporary file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import IO, Final

from rmqtool.errors import UnreadableError, WriteError
from rmqtool.store.source import ByteSource, Closable, identity_of, read_range
from rmqtool.store.view import Entry, EntryKind, StoreView

PAGE: Final = 16 << 10
WRITTEN_NS: Final = 1 << 62
"""Modification time of what the start writes: later than that of any file of the store."""
MEMORY_PAGES: Final = (256 << 20) // PAGE


class Pages:
    """Pages of bytes by number; the first ones in memory, further ones in a temporary file."""

    def __init__(self, memory_pages: int = MEMORY_PAGES) -> None:
        self._memory: list[bytearray] = []
        self._memory_pages = memory_pages
        self._count = 0
        self._spill: IO[bytes] | None = None

    def add(self, content: bytes) -> int:
        """Keep a page; its number."""
        number = self._count
        self._count += 1
        if number < self._memory_pages:
            self._memory.append(bytearray(content))
        else:
            self.write(number, 0, content)
        return number

    def read(self, number: int) -> bytes | bytearray:
        """A whole page."""
        if number < self._memory_pages:
            return self._memory[number]
        return os.pread(self._file().fileno(), PAGE, (number - self._memory_pages) * PAGE)

    def write(self, number: int, position: int, data: bytes | memoryview) -> None:
        """Write into a page.

        Raises:
            WriteError: the temporary file does not take it.
        """
        if number < self._memory_pages:
            self._memory[number][position : position + len(data)] = data
            return
        try:
            os.pwrite(self._file().fileno(), data, (number - self._memory_pages) * PAGE + position)
        except OSError as error:
            raise WriteError(f"temporary file of the forecast: {error.strerror}") from error

    def close(self) -> None:
        """Forget everything."""
        self._memory.clear()
        if self._spill is not None:
            self._spill.close()

    def _file(self) -> IO[bytes]:
        if self._spill is None:
            self._spill = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
        return self._spill


class NullContent:
    """A `FileSink` that forgets what it is given, for what is counted and not read."""

    def create(self, path: str, size: int) -> None:
        """Nothing is made."""

    def write_at(self, path: str, position: int, data: bytes | memoryview) -> None:
        """Nothing is kept."""

    def sync(self, path: str) -> None:
        """Nothing is on a disk."""

    def sync_directory(self, path: str) -> None:
        """Nothing is on a disk."""

    def remove(self, path: str) -> None:
        """Nothing is there."""

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class Changed:
    """A file with changes: its length, how much of the store's own file it still shows, and its changed pages."""

    size: int
    base_size: int
    pages: dict[int, int] = field(default_factory=dict)


class OverlaidSource:
    """Bytes of one file as the overlay shows it at the time of each read; see `ByteSource`."""

    def __init__(self, name: str, overlay: Overlay, base: ByteSource | None) -> None:
        self.name = name
        self._overlay = overlay
        self._base = base

    @property
    def size(self) -> int:
        changed = self._overlay.changes_of(self.name)
        if changed is not None:
            return changed.size
        return self._base.size if self._base is not None else 0

    @property
    def identity(self) -> Hashable | None:
        """See `identity_of`; None once anything is laid over the file."""
        is_as_it_was = self._overlay.changes_of(self.name) is None and self._base is not None
        return identity_of(self._base) if is_as_it_was and self._base is not None else None

    def read_into(self, position: int, buffer: memoryview) -> int:
        changed = self._overlay.changes_of(self.name)
        if changed is None:
            return self._base.read_into(position, buffer) if self._base is not None else 0
        byte_count = max(0, min(len(buffer), changed.size - position))
        done = 0
        while done < byte_count:
            number, inside = divmod(position + done, PAGE)
            count = min(PAGE - inside, byte_count - done)
            known = changed.pages.get(number)
            if known is not None:
                buffer[done : done + count] = self._overlay.pages.read(known)[inside : inside + count]
            else:
                self._read_base(changed, position + done, buffer[done : done + count])
            done += count
        return byte_count

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        if self._overlay.changes_of(self.name) is None and self._base is not None:
            yield from self._base.extents(start, end)
        elif start < (end := min(end, self.size)):
            yield start, end

    def close(self) -> None:
        if self._base is not None:
            self._base.close()

    def _read_base(self, changed: Changed, position: int, buffer: memoryview) -> None:
        known = max(0, min(len(buffer), changed.base_size - position))
        count = self._base.read_into(position, buffer[:known]) if self._base is not None and known else 0
        buffer[count:] = bytes(len(buffer) - count)


class Overlay(Closable):
    """A store view over another one, and a `FileSink` whose writes only this view shows.

    Attributes:
        removed: files of the store that are gone, in the order of their going.
        created: files that the store does not have, or that were removed before.
    """

    def __init__(self, base: StoreView, memory_pages: int = MEMORY_PAGES) -> None:
        self._base = base
        self.pages = Pages(memory_pages)
        self._changed: dict[str, Changed] = {}
        self.removed: dict[str, None] = {}
        self.created: set[str] = set()

    @property
    def label(self) -> str:
        return self._base.label

    def list(self, path: str) -> list[Entry]:
        entries = {entry.path: entry for entry in self._base.list(path) if entry.path not in self.removed}
        for changed in self._changed:
            if changed.rpartition("/")[0] == path and (entry := self.stat(changed)) is not None:
                entries[changed] = entry
        return [entries[name] for name in sorted(entries)]

    def stat(self, path: str) -> Entry | None:
        changed = self._changed.get(path)
        entry = None if path in self.removed and changed is None else self._base.stat(path)
        if changed is None:
            return entry
        entry = entry or Entry(path, EntryKind.FILE)
        return replace(entry, size=changed.size, mtime_ns=WRITTEN_NS if changed.pages else entry.mtime_ns)

    def open(self, path: str) -> ByteSource:
        changed = self._changed.get(path)
        if changed is None and path in self.removed:
            raise UnreadableError(f"{path}: no such file")
        return OverlaidSource(path, self, self._base.open(path) if changed is None or changed.base_size else None)

    def changes_of(self, path: str) -> Changed | None:
        """What is laid over a file; None where it is as in the store."""
        return self._changed.get(path)

    def create(self, path: str, size: int) -> None:
        """See `FileSink`; a file that is there and shorter is lengthened with zeros, as mapping one does."""
        changed = self._changed.get(path)
        if changed is not None:
            changed.size = max(changed.size, size)
            return
        entry = None if path in self.removed else self._base.stat(path)
        if entry is None:
            self.created.add(path)
        base_size = entry.size if entry is not None else 0
        self._changed[path] = Changed(max(size, base_size), base_size)

    def write_at(self, path: str, position: int, data: bytes | memoryview) -> None:
        """See `FileSink`."""
        self.create(path, 0)
        changed, rest = self._changed[path], memoryview(data).cast("B")
        changed.size = max(changed.size, position + len(rest))
        while rest:
            number, inside = divmod(position, PAGE)
            part = rest[: PAGE - inside]
            if number not in changed.pages:
                changed.pages[number] = self.pages.add(self._old_page(path, changed, number))
            self.pages.write(changed.pages[number], inside, part)
            position += len(part)
            rest = rest[len(part) :]

    def sync(self, path: str) -> None:
        """Nothing is on a disk."""

    def sync_directory(self, path: str) -> None:
        """Nothing is on a disk."""

    def remove(self, path: str) -> None:
        """See `FileSink`."""
        self._changed.pop(path, None)
        if path in self.created:
            self.created.discard(path)
            return
        self.removed[path] = None

    def unlinked(self) -> tuple[str, ...]:
        """Files of the store that are gone now, those left out that were made again."""
        return tuple(sorted(path for path in self.removed if path not in self._changed))

    def close(self) -> None:
        self.pages.close()
        self._changed.clear()

    def _old_page(self, path: str, changed: Changed, number: int) -> bytes:
        position = number * PAGE
        content = b""
        if position < changed.base_size:
            with closing(self._base.open(path)) as source:
                content = read_range(source, position, min(PAGE, changed.base_size - position))
        return content.ljust(PAGE, b"\0")

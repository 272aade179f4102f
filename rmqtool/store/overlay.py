"""A store with changes laid over it, as if they had been made: nothing is copied, and nothing reaches the store itself.

So everything that reads a store through its view, a broker's simulated start above all, can look at a repair that has
not happened yet; and a simulated broker writes into the same overlay, whose changed pages go to an unnamed temporary
file once there are many.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import IO, Final

from rmqtool.errors import UnreadableError
from rmqtool.memory import memory_budget
from rmqtool.store.sink import reported
from rmqtool.store.source import ByteSource, Closable, Content, read_range
from rmqtool.store.view import Entry, EntryKind, StoreView

OPEN_MAX: Final = 16
"""Contents of one file that are open at a time: a file may have more of them than a process may hold."""
PAGE: Final = 16 << 10
MEMORY_BYTES: Final = 32 << 20
LISTED_MAX: Final = 1 << 18
LISTED_BYTES: Final = 384
"""Entries of directories that stay in memory without a limit, and the bytes of one."""
UNKNOWN_CONTENT: Final = "unknown content"
_SPILL: Final = "temporary file of the forecast"
WRITTEN_NS: Final = 1 << 62
"""Modification time of written files: later than that of any file of the store."""


@dataclass
class OverlaidFile:
    """Overlay of one file: contents that are apart from each other, in order, and above them written pages."""

    entry: Entry
    """The file as it is listed, but for its size."""
    base_size: int
    """Bytes of the file below that still show where nothing is laid over them."""
    size: int
    contents: list[tuple[int, Content]] = field(default_factory=list)
    """With the file position of each."""
    digest: Callable[[], str | None] | None = None
    """Tells that of the content, where one content is all of the file."""
    pages: dict[int, int] = field(default_factory=dict)
    """Where in the temporary file a page lies."""

    def shown(self) -> Entry:
        allocated = self.entry.allocated_bytes + sum(content.length for _, content in self.contents)
        return replace(
            self.entry,
            size=self.size,
            mtime_ns=WRITTEN_NS if self.pages else self.entry.mtime_ns,
            allocated_bytes=min(self.size, allocated),
        )

    def splits(self, start: int, end: int) -> Iterator[tuple[int, int, int | None]]:
        """The parts of [start, end): from, to, and where the content that lies there starts, None of the file below."""
        at, number = start, max(0, bisect_right(self.contents, start, key=itemgetter(0)) - 1)
        while at < end and number < len(self.contents):
            content_start, content = self.contents[number]
            number += 1
            if at < content_start:
                yield at, min(end, content_start), None
            at, split_end = max(at, content_start), min(end, content_start + content.length)
            if at < split_end:
                yield at, split_end, content_start
                at = split_end
        if at < end:
            yield at, end, None


class Overlay(Closable):
    """A store view over another one, and a `FileSink` whose writes only this view shows.

    What changes a file raises UnreadableError where it is not there.

    A directory of the other view is listed once while there is room, however many starts are tried over this one.
    What is planned is told by `add`, `lay`, `replace` and `remove`, each file in one way; what is written, as to any
    sink.
    """

    def __init__(self, base: StoreView, memory_bytes: int | None = None) -> None:
        """`memory_bytes` of written pages are kept in memory; those after them go to a temporary file.

        Without a number it is a share of the process's memory.
        """
        if memory_bytes is None:
            memory_bytes = memory_budget().share(MEMORY_BYTES, 8)
        self._base = base
        self._listed: dict[str, Sequence[Entry]] = {}
        self._room = memory_budget().share(LISTED_MAX * LISTED_BYTES, 32) // LISTED_BYTES
        self._changes: dict[str, OverlaidFile] = {}
        self._removed: set[str] = set()
        self._new_directories: dict[str, Entry] = {}
        self._new_in: dict[str, set[str]] = {}
        self._memory_bytes = memory_bytes // PAGE * PAGE
        self._page_count = 0
        self._kept = bytearray()
        self._spill: IO[bytes] | None = None

    @property
    def label(self) -> str:
        return self._base.label

    def list(self, path: str) -> list[Entry]:
        below = self._listed.get(path)
        if below is None:
            below = self._base.list(path)
            self._room -= 1 + len(below)
            if self._room >= 0:  # a store may have a million queues
                self._listed[path] = below
        entries = {entry.path: entry for entry in below if entry.path not in self._removed}
        for listed in (*entries, *self._new_in.get(path, ())):
            if listed in self._changes:
                entries[listed] = self._changes[listed].shown()
            elif listed in self._new_directories:
                entries[listed] = self._new_directories[listed]
        return [entries[name] for name in sorted(entries)]

    def stat(self, path: str) -> Entry | None:
        if (change := self._changes.get(path)) is not None:
            return change.shown()
        return self._new_directories.get(path) or self._stat_below(path)

    def open(self, path: str) -> ByteSource:
        change = self._changes.get(path)
        if change is None and path in self._removed:
            raise UnreadableError(f"{path}: no such file")
        return OverlaidSource(path, self, self._base.open(path) if change is None or change.base_size else None)

    def change_of(self, path: str) -> OverlaidFile | None:
        """Overlay of a file; None where it is as in the store."""
        return self._changes.get(path)

    def laid_over(self, paths: Iterable[str]) -> tuple[Hashable, ...]:
        """Identity of each file's new content, or `UNKNOWN_CONTENT`; None where it is as in the store."""
        contents: list[Hashable] = []
        for path in paths:
            if path not in self._changes:
                contents.append(None)
                continue
            with closing(self.open(path)) as source:
                contents.append(UNKNOWN_CONTENT if source.identity is None else source.identity)
        return tuple(contents)

    def add(
        self, path: str, content: Content, mtime_ns: int | None = None, digest: Callable[[], str | None] | None = None
    ) -> None:
        """Show a file that is not there, and the directories it lies in; it is as old as now unless a time is given.

        Args:
            digest: tells that of the content, by which it is known again, or None as long as nobody knows it.
        """
        self._new_file(path, time.time_ns() if mtime_ns is None else mtime_ns)
        change = self._changes[path]
        change.contents.append((0, content))
        change.size, change.digest = content.length, digest

    def lay(self, path: str, file_position: int, content: Content) -> None:
        """Lay content over a part of a file, which becomes longer if that ends beyond it."""
        change = self._changes.get(path)
        if change is None:
            entry = self._file_below(path)
            change = self._changes[path] = OverlaidFile(entry, entry.size, entry.size)
        if content.length:  # nothing would hide what begins at the same place
            insort(change.contents, (file_position, content), key=itemgetter(0))
        change.size = max(change.size, file_position + content.length)

    def replace(self, path: str, content: Content, digest: Callable[[], str | None] | None = None) -> None:
        """Show other content in a file; its modification time stays, as in `add`."""
        self._changes[path] = OverlaidFile(self._file_below(path), 0, content.length, [(0, content)], digest=digest)

    def create(self, path: str, size: int) -> None:
        """Create a file, or lengthen a shorter one with zeros, as mapping it does."""
        if path not in self._changes:
            entry = self._stat_below(path)
            if entry is None:
                self._new_file(path)
            else:
                self._changes[path] = OverlaidFile(entry, entry.size, entry.size)
        self._changes[path].size = max(self._changes[path].size, size)

    def write_at(self, path: str, position: int, data: bytes | memoryview) -> None:
        self.create(path, 0)
        change, rest = self._changes[path], memoryview(data).cast("B")
        change.size = max(change.size, position + len(rest))
        while rest:
            number, inside = divmod(position, PAGE)
            part = rest[: PAGE - inside]
            if number not in change.pages:
                with closing(self.open(path)) as source:
                    old = read_range(source, number * PAGE, PAGE)
                at, self._page_count = self._page_count * PAGE, self._page_count + 1
                self._write_page(at, old.ljust(PAGE, b"\0"))
                change.pages[number] = at
            self._write_page(change.pages[number] + inside, part)
            position += len(part)
            rest = rest[len(part) :]

    def read_page(self, at: int, buffer: memoryview) -> None:
        """Fill the buffer from a written page."""
        if self._spill is None or at < self._memory_bytes:
            buffer[:] = self._kept[at : at + len(buffer)]
        else:
            with reported(_SPILL):
                os.preadv(self._spill.fileno(), [buffer], at - self._memory_bytes)

    def sync(self, path: str) -> None:
        """Nothing is on a disk."""

    sync_directory = sync

    def remove(self, path: str) -> None:
        """Show a file no more; see `FileSink`."""
        self._changes.pop(path, None)
        new = self._new_in.get(path.rpartition("/")[0], set())
        if path in new:
            new.remove(path)
        else:
            self._removed.add(path)

    def unlinked(self) -> tuple[str, ...]:
        """Files of the store that are gone now, those left out that were made again."""
        return tuple(sorted(path for path in self._removed if path not in self._changes))

    def close(self) -> None:
        if self._spill is not None:
            self._spill.close()
        self._kept = bytearray()
        self._changes.clear()

    def _stat_below(self, path: str) -> Entry | None:
        return None if path in self._removed else self._base.stat(path)

    def _file_below(self, path: str) -> Entry:
        entry = self._stat_below(path)
        if entry is None or not entry.is_file:
            raise UnreadableError(f"{path}: no such file")
        return entry

    def _new_file(self, path: str, mtime_ns: int = 0) -> None:
        self._changes[path] = OverlaidFile(Entry(path, EntryKind.FILE, mtime_ns=mtime_ns), 0, 0)
        directory = path.rpartition("/")[0]
        self._new_in.setdefault(directory, set()).add(path)
        while directory and directory not in self._new_directories and self._base.stat(directory) is None:
            self._new_directories[directory] = Entry(directory, EntryKind.DIRECTORY, mtime_ns=mtime_ns)
            above = directory.rpartition("/")[0]
            self._new_in.setdefault(above, set()).add(directory)
            directory = above

    def _write_page(self, at: int, data: bytes | memoryview) -> None:
        if at < self._memory_bytes:
            self._kept[at : at + len(data)] = data
            return
        with reported(_SPILL):
            if self._spill is None:
                self._spill = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
            if os.pwrite(self._spill.fileno(), data, at - self._memory_bytes) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass(eq=False)
class OverlaidSource:
    """Bytes of one file as the overlay shows it at the time of each read; see `ByteSource`."""

    name: str
    _overlay: Overlay
    _base: ByteSource | None
    _opened: dict[int, ByteSource] = field(default_factory=dict)

    @property
    def size(self) -> int:
        change = self._overlay.change_of(self.name)
        if change is not None:
            return change.size
        return self._base.size if self._base is not None else 0

    @property
    def identity(self) -> Hashable | None:
        """Identity of the bytes; None where anything but one content of a known digest is laid over the file."""
        change = self._overlay.change_of(self.name)
        if change is None:
            return None if self._base is None else self._base.identity
        places = [(at, content.length) for at, content in change.contents]
        is_whole = not change.pages and not change.base_size and places == [(0, change.size)]
        return change.digest() if is_whole and change.digest is not None else None

    def read_into(self, position: int, buffer: memoryview) -> int:
        change = self._overlay.change_of(self.name)
        if change is None:
            return self._base.read_into(position, buffer) if self._base is not None else 0
        buffer = buffer[: max(0, change.size - position)]
        if not change.pages:
            return self._read_below(change, position, buffer)
        done = 0
        while done < len(buffer):
            number, inside = divmod(position + done, PAGE)
            part = buffer[done : done + PAGE - inside]
            count = len(part)
            if number in change.pages:
                self._overlay.read_page(change.pages[number] + inside, part)
            else:
                count = self._read_below(change, position + done, part)
            done += count
            if count < len(part):
                break
        return done

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        change, end = self._overlay.change_of(self.name), min(end, self.size)
        if change is None:
            yield from self._base.extents(start, end) if self._base is not None else ()
        elif change.pages:
            yield from ((start, end),) if start < end else ()
        else:
            for split_start, split_end, at in change.splits(start, end):
                if at is not None:
                    for data_start, data_end in self._content(change, at).extents(split_start - at, split_end - at):
                        yield data_start + at, data_end + at
                elif self._base is not None:
                    yield from self._base.extents(split_start, min(split_end, change.base_size))

    def close(self) -> None:
        for source in self._opened.values():
            source.close()
        self._opened.clear()
        if self._base is not None:
            self._base.close()

    def _read_below(self, change: OverlaidFile, position: int, buffer: memoryview) -> int:
        """The laid contents, and the file below between them."""
        done = 0
        for start, end, at in change.splits(position, position + len(buffer)):
            part = buffer[start - position : end - position]
            if at is not None:
                count = self._content(change, at).read_into(start - at, part)
            else:
                # Zeros between the end of the file below and what is laid beyond it, as a file system has them.
                known = max(0, min(len(part), change.base_size - start))
                part[known:] = bytes(len(part) - known)
                count = self._base.read_into(start, part[:known]) if self._base is not None and known else 0
                count = len(part) if count == known else count
            done += count
            if count < len(part):  # the file below has become shorter
                break
        return done

    def _content(self, change: OverlaidFile, start: int) -> ByteSource:
        """The source of a content; one that was used long ago may have been closed for others."""
        source = self._opened.get(start)
        if source is None:
            if len(self._opened) >= OPEN_MAX:
                self._opened.pop(next(iter(self._opened))).close()
            content = next(content for at, content in change.contents if at == start and content.length)
            source = self._opened[start] = content.open()
        return source

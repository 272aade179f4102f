"""A store with planned changes laid over it, as if they had been made: nothing is copied and nothing is written.

So everything that reads a store through its view, a broker's simulated start above all, can look at a repair that has
not happened yet.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.content import Content
from rmqtool.store.source import ByteSource
from rmqtool.store.view import Entry, EntryKind, StoreView

OPEN_MAX: Final = 16
"""Ranges of one file whose sources are open at a time: a file may have more of them than a process may hold."""


@dataclass
class _Laid:
    """What is laid over one file; `ranges` are (start, content), in order and apart from each other."""

    size: int
    mtime_ns: int
    base_size: int
    """Bytes of the store's own file that are still to be seen where no range lies."""
    ranges: list[tuple[int, Content]] = field(default_factory=list)


class PlannedView:
    """A store view over another one; changes are told one by one, and each file is changed in one way only."""

    def __init__(self, base: StoreView) -> None:
        self._base = base
        self._laid: dict[str, _Laid] = {}
        self._removed: set[str] = set()
        self._made_directories: dict[str, Entry] = {}
        self._made_in: dict[str, set[str]] = {}

    @property
    def label(self) -> str:
        return self._base.label

    def write(self, path: str, file_position: int, content: Content) -> None:
        """Lay a range over a file, which becomes longer if the range ends beyond it.

        Raises:
            UnreadableError: the file is not there.
        """
        laid = self._laid.get(path)
        if laid is None:
            entry = self._base.stat(path)
            if entry is None or not entry.is_file:
                raise UnreadableError(f"{path}: no such file")
            laid = self._laid[path] = _Laid(entry.size, entry.mtime_ns, entry.size)
        insort(laid.ranges, (file_position, content), key=itemgetter(0))
        laid.size = max(laid.size, file_position + content.length)

    def replace(self, path: str, content: Content) -> None:
        """Show other content in a file; its modification time stays.

        Raises:
            UnreadableError: the file is not there.
        """
        entry = self._base.stat(path)
        if entry is None or not entry.is_file:
            raise UnreadableError(f"{path}: no such file")
        self._laid[path] = _Laid(content.length, entry.mtime_ns, 0, [(0, content)])

    def create(self, path: str, content: Content, mtime_ns: int | None = None) -> None:
        """Show a file that is not there, and the directories it lies in."""
        mtime_ns = time.time_ns() if mtime_ns is None else mtime_ns
        self._laid[path] = _Laid(content.length, mtime_ns, 0, [(0, content)])
        self._made_in.setdefault(path.rpartition("/")[0], set()).add(path)
        directory = path.rpartition("/")[0]
        while directory and directory not in self._made_directories and self._base.stat(directory) is None:
            self._made_directories[directory] = Entry(directory, EntryKind.DIRECTORY, mtime_ns=mtime_ns)
            self._made_in.setdefault(directory.rpartition("/")[0], set()).add(directory)
            directory = directory.rpartition("/")[0]

    def remove(self, path: str) -> None:
        """Show a file no more."""
        self._removed.add(path)

    def list(self, path: str) -> list[Entry]:
        shown = (self._shown(entry) for entry in self._base.list(path) if entry.path not in self._removed)
        entries = {entry.path: entry for entry in shown}
        for made_path in self._made_in.get(path, ()):
            entry = self.stat(made_path)
            if entry is not None:
                entries[made_path] = entry
        return [entries[name] for name in sorted(entries)]

    def stat(self, path: str) -> Entry | None:
        if path in self._removed:
            return None
        if path in self._made_directories:
            return self._made_directories[path]
        laid = self._laid.get(path)
        entry = self._base.stat(path)
        if entry is None:
            return None if laid is None else Entry(path, EntryKind.FILE, laid.size, laid.mtime_ns, laid.size)
        return self._shown(entry)

    def open(self, path: str) -> ByteSource:
        if path in self._removed:
            raise UnreadableError(f"{path}: no such file")
        laid = self._laid.get(path)
        if laid is None:
            return self._base.open(path)
        return _PiecedSource(path, laid, self._base.open(path) if laid.base_size else None)

    def _shown(self, entry: Entry) -> Entry:
        laid = self._laid.get(entry.path)
        if laid is None:
            return entry
        allocated = entry.allocated_bytes + sum(content.length for _, content in laid.ranges)
        return Entry(
            entry.path,
            EntryKind.FILE,
            laid.size,
            laid.mtime_ns,
            min(laid.size, allocated),
            is_link=entry.is_link,
            owner_id=entry.owner_id,
        )


class _PiecedSource:
    """A file pieced together when it is read: laid ranges, and the store's own bytes between them."""

    def __init__(self, name: str, laid: _Laid, base: ByteSource | None) -> None:
        self.name = name
        self._laid = laid
        self._base = base
        self._starts = [start for start, _ in laid.ranges]
        self._opened: dict[int, ByteSource] = {}

    @property
    def size(self) -> int:
        return self._laid.size

    def read_into(self, position: int, buffer: memoryview) -> int:
        byte_count = max(0, min(len(buffer), self.size - position))
        done = 0
        for start, end, number in self._splits(position, position + byte_count):
            part = buffer[start - position : end - position]
            if number is None:
                count = self._read_base(start, part)
            else:
                count = self._range(number).read_into(start - self._starts[number], part)
            done += count
            if count < len(part):  # the file below has become shorter
                break
        return done

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        for split_start, split_end, number in self._splits(start, min(end, self.size)):
            if number is None:
                if self._base is not None:
                    yield from self._base.extents(split_start, min(split_end, self._laid.base_size))
                continue
            at = self._starts[number]
            for data_start, data_end in self._range(number).extents(split_start - at, split_end - at):
                yield data_start + at, data_end + at

    def close(self) -> None:
        for source in self._opened.values():
            source.close()
        self._opened.clear()
        if self._base is not None:
            self._base.close()

    def _read_base(self, start: int, buffer: memoryview) -> int:
        """The store's own bytes; zeros between its end and a range that begins beyond it, as a file system has them."""
        known = max(0, min(len(buffer), self._laid.base_size - start))
        buffer[known:] = bytes(len(buffer) - known)
        count = self._base.read_into(start, buffer[:known]) if self._base is not None and known else 0
        return len(buffer) if count == known else count

    def _range(self, number: int) -> ByteSource:
        """The source of a range; one that was used long ago may have been closed for others."""
        source = self._opened.get(number)
        if source is None:
            if len(self._opened) >= OPEN_MAX:
                self._opened.pop(next(iter(self._opened))).close()
            source = self._opened[number] = self._laid.ranges[number][1].open()
        return source

    def _splits(self, start: int, end: int) -> Iterator[tuple[int, int, int | None]]:
        """The parts of [start, end): from, to, and the number of the range it lies in, None in the store's own file."""
        number, at = max(0, bisect_right(self._starts, start) - 1), start
        while at < end and number < len(self._starts):
            range_start = self._starts[number]
            range_end = range_start + self._laid.ranges[number][1].length
            if at < range_start:
                yield at, min(end, range_start), None
                at = min(end, range_start)
            if at < min(end, range_end):
                yield at, min(end, range_end), number
                at = min(end, range_end)
            number += 1
        if at < end:
            yield at, end, None

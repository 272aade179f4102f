"""The index before a window of the log: entries for records below it, which a build copies and continues.

The chains of what is copied are told from its hashes, as `IndexFile#putKey` made them; hashes and times are believed.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.index_entries import IndexEntries
from rmqtool.engine.dispatch.index_writer import DIRECTORY, IndexWriter, OpenIndexFile, enter
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats.index import ENTRY, IndexHeader, entry_position, file_size
from rmqtool.store.directory import Store
from rmqtool.store.index_file import IndexFile, index_headers
from rmqtool.store.sink import FileSink
from rmqtool.store.source import read_range

HEAD_PATH: Final = f"{DIRECTORY}/{0:017d}"
"""Where the copy is built: a name before all that follow it."""


@dataclass
class IndexPrefix:
    """The first index file of a window, copied up to it.

    Attributes:
        file: the copy, to be continued; None where the index has no entry for a record below the window.
        count: entries that were copied.
        stored_count: entries that the file says it has.
        first, last: physical offsets that the first and the last copied entry point to.
        is_newest: whether the index has nothing after what was copied.
        is_broken: whether entries for records below the window stand after others.
    """

    file: OpenIndexFile | None = None
    count: int = 0
    stored_count: int = 0
    first: int = 0
    last: int = 0
    is_newest: bool = False
    is_broken: bool = False

    def needs(self, writer: IndexWriter) -> int | None:
        """Physical offset to which a window must reach for the index to be made right; None where this one does.

        Args:
            writer: went on with the copy through the whole window.
        """
        if self.file is None:
            return None
        if self.is_broken:
            return self.first
        if writer.current is self.file and self.file.header.next_entry_number == self.count + 1:
            # The last entry's time stands in the header, and only its record tells it.
            return self.last if self.count != self.stored_count else None
        # Nothing of the window was entered before, so what lies between the last entry and the window may lack too.
        return self.last if self.is_newest else None


def copied_prefix(sink: FileSink, store: Store, begin: int, rules: BrokerRules) -> IndexPrefix:
    """Copy what the first index file of a window has for records before it.

    Args:
        begin: physical offset at which the window begins.

    Raises:
        UnreadableError, WriteError: the file cannot be read, or the copy not be written.
    """
    slots, room = store.index_slot_count, store.index_entry_count
    if not store.index_files or not slots or not room:
        return IndexPrefix()
    with closing(store.view.open(store.index_files[0].path)) as source:
        index_file = IndexFile(partial(read_range, source), slots)
        header = index_file.header
        head = IndexPrefix(stored_count=min(header.next_entry_number, room) - 1)
        used = 0
        file = OpenIndexFile(HEAD_PATH, IndexHeader(), np.zeros(slots, np.int32))
        for number, entries in index_file.entries(head.stored_count):
            offsets = entries["physical_offset"].astype(np.int64)
            below = (offsets >= 0) & (offsets < begin)
            is_whole = head.count == number - 1
            copied_count = int(np.argmin(np.append(below, False))) if is_whole else 0
            head.is_broken |= bool(below[copied_count:].any())
            if not copied_count:
                continue
            if number == 1:
                head.first = int(offsets[0])
                sink.create(HEAD_PATH, file_size(slots, room))
            head.last = int(offsets[copied_count - 1])
            used += _copy(sink, file, entries[:copied_count], number)
            head.count += copied_count
    if not head.count:
        return head
    head.is_newest = head.count == head.stored_count and not _has_entries(store)
    file.header = IndexHeader(
        header.begin_timestamp_ms,
        header.end_timestamp_ms,
        head.first,
        head.last,
        used if rules.index_counts_used_slots else head.count,
        head.count + 1,
    )
    file.stored_entry_number = head.count + 1
    head.file = file
    return head


def first_entry_offset(store: Store) -> int:
    """Physical offset that the first entry of the first index file points to; 0 where nothing tells.

    Raises:
        UnreadableError: the file cannot be read.
    """
    if not store.index_files or not store.index_slot_count:
        return 0
    with closing(store.view.open(store.index_files[0].path)) as source:
        return max(0, IndexFile(partial(read_range, source), store.index_slot_count).entry(1).physical_offset)


def _copy(sink: FileSink, file: OpenIndexFile, entries: NDArray[Any], number: int) -> int:
    """Write entries with chains of their own; how many found their slot empty."""
    copied = entries.copy()
    hashes, offsets = entries["key_hash"].astype(np.int32), entries["physical_offset"].astype(np.int64)
    raw, newly_used = enter(
        file, number, IndexEntries(hashes, offsets, np.zeros_like(offsets), ends_without=False), (0, 0)
    )
    copied["previous_entry"] = np.frombuffer(raw, ENTRY.dtype)["previous_entry"]
    sink.write_at(file.path, entry_position(number, file.slots.size), copied.tobytes())
    return newly_used


def _has_entries(store: Store) -> bool:
    """Whether a file after the first one has entries."""
    return any(header.next_entry_number > 1 for header in index_headers(store.view, store.index_files[1:]))

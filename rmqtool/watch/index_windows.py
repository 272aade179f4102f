"""The index files of a store that a broker writes to: the entries that point into a range of the log."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.formats.index import ENTRY, ENTRY_SIZE, HEADER_SIZE, IndexHeader, entry_position
from rmqtool.store.directory import Store
from rmqtool.store.view import Entry
from rmqtool.verify.survey.index_map import IndexMap
from rmqtool.verify.survey.queue_map import RunsBuilder

ENTRIES_MAX: Final = 1 << 22
"""Entries of one file that are held at once; a range of the log has far fewer."""


class IndexWindow(NamedTuple):
    """Index entries for a range of the log."""

    maps: tuple[IndexMap, ...]
    entry_count: int


def index_end(store: Store, files: OpenFiles) -> int:
    """Physical offset of the newest record in the index; -1 without one.

    Raises:
        UnreadableError: the header of the last file cannot be read.
    """
    for entry in reversed(store.index_files):
        header = IndexHeader.parse(files.read(entry.path, 0, HEADER_SIZE))
        if header.next_entry_number > 1:
            return header.end_physical_offset
    return -1


def index_window(store: Store, begin: int, end: int, files: OpenFiles) -> IndexWindow:
    """The entries that point into [begin, end) of the log; entries stand in the order of the log.

    Raises:
        UnreadableError: an index file cannot be read.
    """
    maps, entry_count = [], 0
    for entry in reversed(store.index_files):
        header = IndexHeader.parse(files.read(entry.path, 0, HEADER_SIZE))
        if header.next_entry_number <= 1 or header.begin_physical_offset >= end:
            continue
        if header.end_physical_offset < begin:
            break
        file = _map(store, entry, header, begin, end, files)
        maps.append(file)
        entry_count += int((file.entries.runs["end"] - file.entries.runs["begin"]).sum())
    return IndexWindow(tuple(reversed(maps)), entry_count)


def _map(store: Store, entry: Entry, header: IndexHeader, begin: int, end: int, files: OpenFiles) -> IndexMap:
    slots = store.index_slot_count or 0
    room = (entry.size - entry_position(0, slots)) // ENTRY_SIZE
    count = max(0, min(header.next_entry_number, room) - 1)

    def first_at(physical_offset: int) -> int:
        low, high = 1, count + 1
        while low < high:
            middle = (low + high) // 2
            raw = files.read(entry.path, entry_position(middle, slots), ENTRY_SIZE)
            if int(np.frombuffer(raw, ENTRY.dtype)[0]["physical_offset"]) >= physical_offset:
                high = middle
            else:
                low = middle + 1
        return low

    low = first_at(begin)
    high = min(max(low, first_at(end)), low + ENTRIES_MAX)
    runs = RunsBuilder(may_repeat=True)
    raw = files.read(entry.path, entry_position(low, slots), (high - low) * ENTRY_SIZE)
    entries = np.frombuffer(raw[: len(raw) // ENTRY_SIZE * ENTRY_SIZE], ENTRY.dtype)
    if len(entries):
        runs.take(low, entries["physical_offset"].astype(np.int64))
    times = header.begin_timestamp_ms, header.end_timestamp_ms
    ends = header.begin_physical_offset, header.end_physical_offset
    return IndexMap(entry.path, slots, count, *times, *ends, runs.finish())

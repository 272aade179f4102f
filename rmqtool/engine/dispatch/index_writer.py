"""Writes index files as the broker does: hash chains, header, a new file where one is full.

Broker: `IndexFile#putKey`, `IndexService#buildIndex`, `#getAndCreateLastIndexFile`. Entries are written as they come;
slots and header of the current file are kept in memory and written when it is full, and on request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from rmqtool.engine.dispatch.index_entries import COMPILED_FROM_ROWS, KERNEL, IndexEntries
from rmqtool.engine.dispatch.queue_entries import Int32s, Int64s
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.formats.checkpoint import LATEST_MS
from rmqtool.formats.index import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    entry_position,
    file_size,
    slot_position,
)
from rmqtool.quantities import JAVA_INT_MAX
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.compiled import is_worth, load_kernel
from rmqtool.store.sink import FileSink
from rmqtool.store.source import ByteSource, read_range

DIRECTORY: Final = "index"
_ENTRY: Final = ENTRY.dtype
PAGE_SLOTS: Final = 1024
"""Slots that are written together; a page without any change stays a hole."""


@dataclass
class OpenIndexFile:
    """The file that entries go to: its header and slots, and the pages of slots that are not written yet."""

    path: str
    header: IndexHeader
    slots: Int32s
    stored_entry_number: int = 0
    """Entry number in the file's header, which is 0 until the first entry, or a flush of the broker."""

    def __post_init__(self) -> None:
        self.changed_pages = np.zeros(-(-self.slots.size // PAGE_SLOTS), np.bool_)


def read_index_file(path: str, source: ByteSource, slot_count: int) -> OpenIndexFile:
    """An existing file, to be continued (`IndexHeader#load`).

    Raises:
        UnreadableError: it is shorter than its slots, or the disk does not give them.
    """
    raw = read_range(source, 0, HEADER_SIZE + SLOT_SIZE * slot_count)
    if len(raw) < HEADER_SIZE + SLOT_SIZE * slot_count:
        raise UnreadableError(f"{path}: shorter than the {slot_count} slots of an index file")
    stored = IndexHeader.parse(raw)
    header = replace(stored, next_entry_number=max(1, stored.next_entry_number))
    return OpenIndexFile(
        path, header, np.frombuffer(raw, ">i4", slot_count, HEADER_SIZE).astype(np.int32), stored.next_entry_number
    )


def holds_no_entry(source: ByteSource) -> bool:
    """True if a file is as it was created: a clean stop writes no more than the header, which counts from 1 on.

    Raises:
        UnreadableError: the disk does not give the header.
    """
    is_new = IndexHeader.parse(read_range(source, 0, HEADER_SIZE)).next_entry_number in (0, 1)
    return is_new and last_data_end(source, min(HEADER_SIZE, source.size), source.size) <= HEADER_SIZE


def creation_name(timestamp_ms: int) -> str:
    """A file's name: its creation time in the local zone (`UtilAll#timeMillisToHumanString`)."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(timestamp_ms // 1000)) + f"{timestamp_ms % 1000:03d}"


def path_behind(last: str, timestamp_ms: int) -> str:
    """Path of a file that is made at a time; where clocks went back, the number that follows the last one's name.

    Two files of one millisecond would be one file, and a broker continues with the one whose name is the last.
    """
    path = f"{DIRECTORY}/{creation_name(timestamp_ms)}"
    return path if path > last else number_behind(last)


def number_behind(last: str) -> str:
    """Path of the file whose name is the next number."""
    name = last.rpartition("/")[2]
    return f"{DIRECTORY}/{int(name) + 1:0{len(name)}d}"


def possible_times(timestamps_ms: Int64s) -> Int64s:
    """Those of store times that a broker can have written; nothing protects the time in a record."""
    are_possible = (timestamps_ms > 0) & (timestamps_ms <= LATEST_MS)
    return timestamps_ms if are_possible.all() else timestamps_ms[are_possible]


def carried_header(full: IndexHeader) -> IndexHeader:
    """The header with which a file takes over from a full one (`IndexFile#<init>`)."""
    offset, time_ms = max(0, full.end_physical_offset), max(0, full.end_timestamp_ms)
    return IndexHeader(time_ms, time_ms, offset, offset)


@dataclass(eq=False)
class IndexWriter:
    """The index of a store, continued or begun. Memory: 4 bytes per slot, and the entries of one call.

    What writes raises WriteError where the sink does not take it; no file is made before the first record.

    Attributes:
        slot_count: the broker's `maxHashSlotNum`.
        entry_count: its `maxIndexNum`; a file holds one entry fewer.
        clock_ms: tells the time, of which the name of a new file is made.
        current: the file that entries go to.
        passes_over_times: take a file's times from records with possible ones. A broker takes them as they are, and
            finds no key of a file that begins before 1970.
        full_paths: files that became full since this writer began.
        full_timestamp_ms: last store time in the latest of them, which is what the checkpoint holds; None before.
    """

    _sink: FileSink
    slot_count: int
    entry_count: int
    _rules: BrokerRules
    clock_ms: Callable[[], int]
    current: OpenIndexFile | None = None
    passes_over_times: bool = field(default=False, kw_only=True)
    full_timestamp_ms: int | None = None
    full_paths: list[str] = field(default_factory=list)
    _begins_open: bool = False
    """True while no record has given the current file's start."""

    def __post_init__(self) -> None:
        assert self.slot_count > 0, self.slot_count
        assert self.entry_count > 1, self.entry_count

    def put(self, entries: IndexEntries) -> None:
        """Enter records."""
        # Each entry raises the header's end to its own record, and a record below that end is left out.
        offsets = entries.physical_offsets
        end = self.current.header.end_physical_offset if self.current is not None else 0
        if offsets.size and (offsets[0] < end or (offsets[1:] < offsets[:-1]).any()):
            fresh = offsets >= np.maximum.accumulate(np.concatenate([[end], offsets]))[:-1]
            entries = IndexEntries(
                entries.key_hashes[fresh],
                offsets[fresh],
                entries.store_timestamps_ms[fresh],
                entries.ends_without or not fresh[-1],
            )
        at, count = 0, entries.physical_offsets.size
        while at < count:
            file = self._file_with_room()
            part = slice(at, min(count, at + self.entry_count - file.header.next_entry_number))
            self._append(
                file, entries.key_hashes[part], entries.physical_offsets[part], entries.store_timestamps_ms[part]
            )
            at = part.stop
        if entries.ends_without:
            self._file_with_room()

    def flush(self) -> None:
        """Write slots and header of the current file."""
        file = self.current
        if file is None:
            return
        pages = np.flatnonzero(file.changed_pages)
        for run in np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1) if pages.size else ():  # neighbors together
            first, last = int(run[0]) * PAGE_SLOTS, (int(run[-1]) + 1) * PAGE_SLOTS
            self._sink.write_at(file.path, slot_position(first), file.slots[first:last].astype(">i4").tobytes())
        file.changed_pages[:] = False
        header = replace(file.header, next_entry_number=file.stored_entry_number)
        self._sink.write_at(file.path, 0, header.build())

    def finish(self, *, clean: bool) -> None:
        """Leave the files as a broker does that ends cleanly, or is killed."""
        if self.current is not None and clean and self._rules.index_flushed_at_stop:
            self.current.stored_entry_number = self.current.header.next_entry_number
        self.flush()

    def _file_with_room(self) -> OpenIndexFile:
        """The current file, or a new one that continues where a full one ends."""
        file = self.current
        carried = IndexHeader()
        if file is not None:
            if file.header.next_entry_number < self.entry_count:
                return file
            file.stored_entry_number = file.header.next_entry_number
            self.flush()
            self.full_paths.append(file.path)
            last = file.header
            self.full_timestamp_ms = last.end_timestamp_ms
            carried = carried_header(last)
        path = path_behind(file.path if file is not None else "", self.clock_ms())
        self._sink.create(path, file_size(self.slot_count, self.entry_count))
        self.current = OpenIndexFile(path, carried, np.zeros(self.slot_count, np.int32))
        return self.current

    def _append(self, file: OpenIndexFile, hashes: Int32s, physical_offsets: Int64s, timestamps_ms: Int64s) -> None:
        header, count = file.header, hashes.size
        is_first = header.next_entry_number <= 1
        times_ms = possible_times(timestamps_ms) if self.passes_over_times else timestamps_ms
        begins = (header.begin_timestamp_ms, header.begin_timestamp_ms)
        if is_first:
            header = replace(header, begin_physical_offset=int(physical_offsets[0]))
            self._begins_open = True
        if self._begins_open and times_ms.size:
            # The first entry is still measured from what the file before left, all others from the first one.
            begins = (begins[0] if is_first else int(times_ms[0]), int(times_ms[0]))
            header = replace(header, begin_timestamp_ms=int(times_ms[0]))
            self._begins_open = False
        number = header.next_entry_number
        entries = IndexEntries(hashes, physical_offsets, timestamps_ms, ends_without=False)
        raw, newly_used = enter(file, number, entries, begins)
        self._sink.write_at(file.path, entry_position(number, self.slot_count), raw)
        file.header = replace(
            header,
            end_timestamp_ms=int(times_ms[-1]) if times_ms.size else header.end_timestamp_ms,
            end_physical_offset=int(physical_offsets[-1]),
            used_slot_count=header.used_slot_count + (newly_used if self._rules.index_counts_used_slots else count),
            next_entry_number=header.next_entry_number + count,
        )
        file.stored_entry_number = file.header.next_entry_number


def enter(
    file: OpenIndexFile, first_number: int, entries: IndexEntries, begins: tuple[int, int]
) -> tuple[memoryview, int]:
    """Enter entries into the slots: their bytes in the file, and how many found their slot empty.

    Args:
        begins: times from which the first entry, and all others, count their own.
    """
    is_many = is_worth(entries.key_hashes.size, COMPILED_FROM_ROWS)
    return (compiled_enter if is_many else plain_enter)(file, first_number, entries, begins)


def plain_enter(
    file: OpenIndexFile, first_number: int, entries: IndexEntries, begins: tuple[int, int]
) -> tuple[memoryview, int]:
    """`enter` without a compiled kernel."""
    slots = entries.key_hashes % np.int32(file.slots.size)
    order = np.argsort(slots, kind="stable")
    in_order, numbers_in_order = slots[order], first_number + order
    follows = np.zeros(order.size, np.bool_)
    follows[1:] = in_order[1:] == in_order[:-1]
    previous_in_order = file.slots[in_order].astype(np.int32)
    # A slot that names an entry which is not written yet is taken for empty.
    previous_in_order[(previous_in_order <= 0) | (previous_in_order > numbers_in_order)] = 0
    previous_in_order[1:][follows[1:]] = numbers_in_order[:-1][follows[1:]]
    is_last = np.ones(order.size, np.bool_)
    is_last[:-1] = ~follows[1:]
    file.slots[in_order[is_last]] = numbers_in_order[is_last]
    file.changed_pages[in_order[is_last] // PAGE_SLOTS] = True
    from_ms = np.full(order.size, begins[1], np.int64)
    from_ms[:1] = begins[0]
    times_ms = (entries.store_timestamps_ms - from_ms).clip(min=0) // 1000
    rows = np.empty(order.size, _ENTRY)
    rows["key_hash"] = entries.key_hashes
    rows["physical_offset"] = entries.physical_offsets
    rows["time_delta_seconds"] = np.where(from_ms <= 0, 0, times_ms.clip(max=JAVA_INT_MAX))
    rows["previous_entry"][order] = previous_in_order
    return rows.view(np.uint8).data, int((previous_in_order == 0).sum())


def compiled_enter(
    file: OpenIndexFile, first_number: int, entries: IndexEntries, begins: tuple[int, int]
) -> tuple[memoryview, int]:
    """`enter` without the sort that takes most of the time."""
    words = np.empty((entries.key_hashes.size, ENTRY_SIZE // 4), np.int32)
    newly_used = load_kernel(KERNEL).enter_entries(
        *entries[:3], first_number, np.array(begins, np.int64), file.slots, PAGE_SLOTS, file.changed_pages, words
    )
    return words.astype(">i4").view(np.uint8).ravel().data, int(newly_used)

"""The index while a broker loads and starts: dropped files, new entries, and covered records.

Broker: `IndexService#load`, `#buildIndex`, `IndexFile#putKey`.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.index_entries import index_entries
from rmqtool.engine.dispatch.index_writer import DIRECTORY, IndexWriter, OpenIndexFile, read_index_file
from rmqtool.engine.reading.record import read_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.forecast.log_recovery import Records
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.record_arrays import OffsetRanges
from rmqtool.formats import index
from rmqtool.formats.properties import KEYS, UNIQUE_KEY
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import is_java_long
from rmqtool.store.index_file import IndexFile
from rmqtool.store.overlay import Overlay
from rmqtool.store.sink import DiscardingSink, FileSink
from rmqtool.store.view import Entry

_LAST_YEAR_MS: Final = 253_370_764_800_000
SAMPLES: Final = 16
"""Entries of a file by which the log is recognized."""


class IndexState:
    """The index files that are kept, and those that grow.

    Attributes:
        slot_count: hash slots of each file.
        dropped: files that load unlinks after a crash.
        kept: those that it keeps.
        covered: the records that the index knows after the start.
        duplicate_entries: entries for records that a kept file knows already.
        writer: of new entries, once there is one; flushed, the overlay has them.
        why_not: why load fails over the index, which the broker says once it has recovered; None where it does not.
    """

    def __init__(
        self, store: Store, overlay: Overlay, rules: BrokerRules, options: ForecastOptions, *, keeps_content: bool
    ) -> None:
        """`keeps_content` keeps what is entered, so that it can be asked for; it is large, and counting needs none."""
        self._store, self._overlay = store, overlay
        self._sink: FileSink = overlay if keeps_content else DiscardingSink()
        self._rules = rules
        self._enabled = options.enters_index
        self.slot_count: int = store.index_slot_count or index.DEFAULT_SLOT_COUNT
        self._entry_count: int = store.index_entry_count or index.DEFAULT_ENTRY_COUNT
        self.dropped: list[str] = []
        self.kept: list[Entry] = []
        self.covered = OffsetRanges()
        self.duplicate_entries = 0
        self.why_not: str | None = None
        self._not_loaded: frozenset[str] = frozenset()
        self._before = OffsetRanges()
        self._split: dict[int, int] = {}
        self.writer: IndexWriter | None = None

    def load(self, files: OpenFiles, *, crashed: bool, index_timestamp_ms: int) -> None:
        """Map all files; after a crash drop those that end later than the checkpoint's time."""
        entries = [entry for entry in self._overlay.list(DIRECTORY) if is_java_long(entry.name)]
        for number, entry in enumerate(entries):
            if entry.is_directory:
                if self._rules.index_failure_stops_load:
                    self.why_not = f"{entry.path}: a directory in index/"
                self._not_loaded = frozenset(later.path for later in entries[number:])
                break
            if not entry.is_file:
                continue
            file = IndexFile(partial(files.read, entry.path), self.slot_count)
            header = file.header
            if crashed and header.end_timestamp_ms > index_timestamp_ms:
                self._overlay.remove(entry.path)
                self.dropped.append(entry.path)
                continue
            # Mapping a file makes it as long as it should be.
            self._overlay.create(entry.path, index.file_size(self.slot_count, self._entry_count))
            self.kept.append(entry)
            self._cover(entry, file, files)

    def put(self, records: Records) -> None:
        """Enter records, by the rules of the broker's put."""
        if not self._enabled:
            return
        entries = index_entries(records.rows, records.topics, records.texts, self._rules)
        if records.own_offset is not None:
            entries = entries._replace(physical_offsets=np.full_like(entries.physical_offsets, records.own_offset))
        if self.writer is None:
            current: OpenIndexFile | None = None
            if self.kept:
                path = self.kept[-1].path
                with closing(self._overlay.open(path)) as source:
                    current = read_index_file(path, source, self.slot_count)
            # New files come after the last one; the real time would make a forecast differ from the one before.
            name = self.kept[-1].name if self.kept else ""
            try:
                later_ms = (int(time.mktime(time.strptime(name[:14], "%Y%m%d%H%M%S"))) + 1) * 1000
            except (ValueError, OverflowError):
                later_ms = _LAST_YEAR_MS if name else 0
            self.writer = IndexWriter(
                self._sink, self.slot_count, self._entry_count, self._rules, lambda: later_ms, current
            )
        writer = self.writer
        end = writer.current.header.end_physical_offset if writer.current is not None else 0
        fresh = entries.physical_offsets[entries.physical_offsets >= end]
        repeated = fresh[self._before.contain(fresh)]
        self.duplicate_entries += int(repeated.size)
        for physical_offset, entry_count in self._split.items():
            self.duplicate_entries -= max(0, int((repeated == physical_offset).sum()) - entry_count)
        writer.put(entries)
        if fresh.size and records.own_offset is None:
            last = records.rows[-1]
            self.covered.add(int(fresh[0]), int(last["physical_offset"]) + int(last["size"]))

    def files(self) -> tuple[Entry, ...]:
        """All index files that the broker has after the start, in the order of their names."""
        entries = self._overlay.list(DIRECTORY)
        return tuple(
            entry
            for entry in entries
            if entry.is_file and is_java_long(entry.name) and entry.path not in self._not_loaded
        )

    def _cover(self, entry: Entry, file: IndexFile, files: OpenFiles) -> None:
        header = file.header
        if header.next_entry_number <= 1 or header.begin_physical_offset > header.end_physical_offset:
            return
        if entry.size < index.entry_position(header.next_entry_number, self.slot_count):
            # Cut short: its end reads as zeros, and chains that begin there lead nowhere.
            for physical_offset in reachable_records(files, entry, self.slot_count).tolist():
                self.covered.add(physical_offset, physical_offset + 1)
            return
        if not self._is_of_log(file, files):
            return
        for ranges in (self.covered, self._before):
            ranges.add(header.begin_physical_offset, header.end_physical_offset + 1)
        # A file may end in the middle of a record's keys, whose other entries are in the next one.
        entries = self._split.pop(header.begin_physical_offset, 0)
        if header.begin_physical_offset != header.end_physical_offset:
            entries = 0
        self._split[header.end_physical_offset] = entries + file.entries_of_last_record()

    def _is_of_log(self, file: IndexFile, files: OpenFiles) -> bool:
        """True if a file has keys of records of this log; an index of another log finds none.

        It counts as one of this log where none of the entries that are looked at leads into the log.
        """
        log, last, leads_here = Log(self._store, self._rules, files), file.header.next_entry_number - 1, False
        for number in sorted({1 + (last - 1) * sample // SAMPLES for sample in range(SAMPLES + 1)}):
            entry = file.entry(number)
            if not self._store.log_start <= entry.physical_offset < self._store.log_end:
                continue
            leads_here = True
            with suppress(UnreadableError):
                record = read_record(log, entry.physical_offset)
                if record is None:
                    continue
                keys = [record.properties.get(UNIQUE_KEY, ""), *record.properties.get(KEYS, "").split(" ")]
                texts = [index.key_text(record.topic, key) for key in keys if key]
                if entry.key_hash in map(index.key_hash, [*texts, index.tag_text(record.topic, record.tags or "")]):
                    return True
        return not leads_here


def reachable_records(files: OpenFiles, entry: Entry, slot_count: int) -> NDArray[np.int64]:
    """Physical offsets of the records to which the chains of a file lead that is too short.

    A file has as many slots as a setting says, and most of such a one may be a hole, which is not read.
    """
    first = index.entry_position(0, slot_count)
    heads = [np.empty(0, np.int64)]
    for start, end in files.extents(entry.path, index.HEADER_SIZE, min(first, entry.size)):
        begin = start - (start - index.HEADER_SIZE) % index.SLOT_SIZE
        raw = files.read(entry.path, begin, min(first, -(-end // index.SLOT_SIZE) * index.SLOT_SIZE) - begin)
        slots = np.frombuffer(raw[: len(raw) // index.SLOT_SIZE * index.SLOT_SIZE], ">i4")
        heads.append(slots[slots != 0].astype(np.int64))
    data_end = max((end for _, end in files.extents(entry.path, first, entry.size)), default=first)
    raw = files.read(entry.path, first, -(-(data_end - first) // index.ENTRY_SIZE) * index.ENTRY_SIZE)
    entries = np.frombuffer(raw[: len(raw) // index.ENTRY_SIZE * index.ENTRY_SIZE], index.ENTRY.dtype)
    reached = np.zeros(entries.size, np.bool_)
    numbers = np.concatenate(heads)
    while (numbers := np.unique(numbers[(numbers > 0) & (numbers < entries.size)])).size:
        numbers = numbers[~reached[numbers]]
        reached[numbers] = True
        numbers = entries["previous_entry"][numbers].astype(np.int64)
    return np.unique(entries["physical_offset"][reached]).astype(np.int64)

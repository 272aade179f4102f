"""Builds the database of consume queues in RocksDB again from the log, and the steps that bring it into the store.

The database is replaced whole: its files are in no order that could be repaired. What it has of queues whose messages
have all expired, or that are not asked for, is taken over, so that their next offsets stay.

Until they are complete the rows lie in a temporary file. Broker: `RocksDBConsumeQueueStore#putMessagePosition0`: of
several records with one queue offset the last one has the unit, and a queue's end is the one that was put last.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.derived_writer import HELD_ROWS_MAX, EntrySelector
from rmqtool.engine.dispatch.queue_entries import QueueEntries, joined_entries
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import first_with
from rmqtool.errors import UnsupportedError, WriteError
from rmqtool.formats.consumequeue import UNIT as FILE_UNIT
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.queue_name import QueueKey, QueueName, queue_key, queue_name, topic_text
from rmqtool.formats.rocksdb.queue import DISPATCHED, DISPATCHED_KEY, OFFSET, UNIT, offset_key, queue_prefix
from rmqtool.quantities import OFFSETS_END
from rmqtool.repair.derived.builder import dispatch_settings
from rmqtool.repair.derived.gap_queue_writer import GAP_UNITS_MAX, KeptUnits, RecordOffsets
from rmqtool.repair.derived.log_pass import Bad, LogReading
from rmqtool.repair.derived.result import BuildOptions, RemovedTopics, file_step
from rmqtool.repair.machine.steps import Step, remove_file
from rmqtool.scan.log import DISPATCH_BLOCK_SIZE, ScanOptions, open_log
from rmqtool.scan.runner import OnProgress
from rmqtool.store.databases.queue_database import FAMILIES, ROW_SIZE, QueueDatabase, StoredEnd, StoredEnds, row_type
from rmqtool.store.databases.rocksdb import RowBatch, require_library, write_database
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import reason

Rows = NDArray[Any]

FRAME_ROWS: Final = 8192
QUEUES: Final = "consumequeue"
KEPT_FILES: Final = ("LOCK", "LOG")
"""The lock, which must stay the file that it is, and the library's diary."""
_OFFSET: Final = Struct(OFFSET.struct_code)
_DISPATCHED: Final = Struct(DISPATCHED.struct_code)
Selects = Callable[[str, int], bool]


@dataclass
class DatabaseBuild:
    """Result of a database build.

    Attributes:
        directory: the database's, in the store.
        staged: where the new one lies; None where the store's own is as it should be.
        notes: what a person should know, as sentences.
        bad: where the log has something that is no record; the database ends before it.
        rows_digest: of all rows of the staged one.
        again: where in the log topics begin again, by topic.
    """

    store: Store
    directory: str
    staged: Path | None
    notes: list[str] = field(default_factory=list)
    bad: Bad | None = None
    rows_digest: str | None = None
    again: Mapping[str, int] = field(default_factory=dict)

    def steps(self, why: str) -> Iterator[Step]:
        if self.staged is None:
            return
        built = {f"{self.directory}/{path.name}": path for path in self.staged.iterdir() if path.name not in KEPT_FILES}
        for entry in self.store.files.get(FileKind.CONSUMEQUEUE_ROCKSDB, ()):
            if entry.path.rpartition("/")[0] != self.directory or entry.name in KEPT_FILES or entry.path in built:
                continue
            yield remove_file(self.store.view, entry.path, "a file of the database that is replaced")
        for path in sorted(built):
            yield from file_step(self.store.view, path, built[path], why, rows=self.rows_digest)


def build_database(
    store: Store,
    rules: BrokerRules,
    selects: Selects | None,
    log_end: int | None,
    staging: Path,
    options: BuildOptions,
    on_progress: OnProgress | None = None,
    known_ends: Mapping[QueueKey, StoredEnd] | None = None,
    incomplete_topics: frozenset[str] = frozenset(),
) -> DatabaseBuild:
    """Build the database into a directory, if the store's own does not match the log.

    Args:
        selects: tells by (topic, queue id) which queues are built; None: all. Others stay as they are.
        incomplete_topics: topics of which a check has told that queues lack messages.
        known_ends: last units of queues that another side of the store knows of.

    Raises:
        UnsupportedError: the library is missing, or queues are to stay that cannot be read.
    """
    require_library()
    old = store.queue_database
    if selects is not None and (old is None or old.failure is not None):
        raise UnsupportedError("the database of the consume queues cannot be read, so all queues have to be rebuilt")
    log = RecordOffsets([segment.start for segment in store.commitlog])
    readable = old if old is not None and old.failure is None else None
    removed = RemovedTopics.of(store, options.restored, incomplete_topics)
    kept = KeptUnits(store, rules, log_end)
    rows = DatabaseRows(log, removed, kept)
    try:
        bad = _read_log(store, rules, rows, log, selects, log_end, options, on_progress)
        if rows.again:  # other queues of the topics may have records that were removed with those before
            removed = replace(removed, again=rows.again)
            rows = DatabaseRows(log, removed, kept)
            bad = _read_log(store, rules, rows, log, selects, log_end, options, on_progress)
        database = _NewDatabase(store, rows, selects, readable, known_ends or {})
        directory = old.directory if old is not None else QUEUES
        if old is not None and database.is_same():
            return DatabaseBuild(store, directory, None, bad=bad, again=removed.again)
        rows.gap_units = rows.unfilled = 0
        staged = staging / "rocksdb" / directory
        staged.mkdir(parents=True)
        digest = write_database(staged, {FAMILIES[0]: database.unit_batches(), FAMILIES[1]: database.end_batches()})
    except OSError as error:
        raise WriteError(f"temporary file: {reason(error)}") from error
    return DatabaseBuild(store, directory, staged, _notes(rows, old), bad, digest, removed.again)


def _read_log(
    store: Store,
    rules: BrokerRules,
    rows: DatabaseRows,
    log: RecordOffsets,
    selects: Selects | None,
    log_end: int | None,
    options: BuildOptions,
    on_progress: OnProgress | None,
) -> Bad | None:
    settings = replace(dispatch_settings(store, rules, options), batch_topics=frozenset())
    held: dict[QueueKey, list[QueueEntries]] = {}
    held_rows = done = 0

    def flush() -> None:
        for parts in held.values():
            rows.put(joined_entries(parts))
        held.clear()

    scan = ScanOptions(
        options.delays_ms, compiled=options.compiled, block_size=DISPATCH_BLOCK_SIZE, cache=options.cache,
        columns_only=True,
    )  # fmt: skip
    with open_log(store.view.open, store.commitlog, scan, finds_crc=True) as table:
        selector = EntrySelector(settings, True, False)
        reading = LogReading(table, log_end, selector, options.threads, options.part_bytes)
        for read_rows in reading.rows():
            if not options.shows_tombstones:
                log.tombstones.update(read_rows.tombstones)
            assert read_rows.entries is not None
            for entries in read_rows.entries.queues:
                if selects is None or selects(decode_java_utf8(entries.topic), entries.queue_id):
                    held.setdefault((entries.topic, entries.queue_id), []).append(entries)
            held_rows += read_rows.entries.row_count
            if held_rows >= HELD_ROWS_MAX:
                flush()
                held_rows = 0
            done += read_rows.size
            if on_progress is not None:
                on_progress(done, table.scan.log_bytes)
    flush()
    return reading.bad


@dataclass
class _NewDatabase:
    """Rows of the new database: those of the log, and the kept ones of the old one."""

    store: Store
    rows: DatabaseRows
    selects: Selects | None
    old: QueueDatabase | None
    known_ends: Mapping[QueueKey, StoredEnd]

    def __post_init__(self) -> None:
        self.log_minimum = self.store.log_start
        self.kept = {key: ends for key, ends in self._kept() if key not in self.rows.queues}
        self.ends: dict[QueueKey, StoredEnds] = dict(self.kept)
        self.ends.update({key: StoredEnds(None, queue.end) for key, queue in self.rows.queues.items()})
        old = self.old.dispatched or 0 if self.old is not None and self.selects is not None else 0
        self.dispatched = max(self.rows.dispatched, old)

    def _kept(self) -> Iterator[tuple[QueueKey, StoredEnds]]:
        """Queues that stay: those of the old database not requested, and the ends of those that have expired."""
        for key, end in self.known_ends.items():
            if end.physical_offset < self.log_minimum:
                yield key, StoredEnds(None, end)
        for topic, queue_id in self.old.names if self.old is not None else ():
            assert self.old is not None
            ends = self.old.ends.get((topic, queue_id), StoredEnds())
            if self.selects is not None and not self.selects(topic, queue_id):
                yield queue_key(topic, queue_id), ends
            elif ends.maximum is not None and ends.maximum.physical_offset < self.log_minimum:
                yield queue_key(topic, queue_id), StoredEnds(None, ends.maximum)

    def units(self, key: QueueKey) -> Iterator[Rows]:
        if key in self.rows.queues:
            yield from self.rows.units(key)
        elif self.old is not None and self.selects is not None:
            name = queue_name(*key)
            count = self.old.number_of(name, 1 << 63)
            for first in range(0, count, FRAME_ROWS):
                yield self.old.rows(name, first, FRAME_ROWS)

    def is_same(self) -> bool:
        old = self.old
        families = {family.name for family in FAMILIES}
        if old is None or old.odd_row_count or old.dispatched != self.dispatched or set(old.families) != families:
            return False
        names = {queue_name(*key): key for key in self.ends}
        served = {name for name, ends in old.ends.items() if ends.maximum is not None} | old.units.keys()
        if served != names.keys():
            return False
        return all(self._is_same_queue(old, name, key) for name, key in names.items() if key not in self.kept)

    def _is_same_queue(self, old: QueueDatabase, name: QueueName, key: QueueKey) -> bool:
        ends, first = old.ends.get(name, StoredEnds()), None
        if ends.maximum != self.ends[key].maximum or ends.maximum is None:
            return False
        count, stop = 0, ends.maximum.queue_offset + 1
        for rows in self.units(key):
            mine = rows[rows["queue_offset"] < stop]
            if not len(mine):
                continue
            begin, end = int(mine["queue_offset"][0]), int(mine["queue_offset"][-1]) + 1
            first = begin if first is None else first
            if not np.array_equal(old.between(name, begin, end), mine):
                return False
            count += len(mine)
        if first is None:
            return False
        minimum = ends.minimum
        hides = minimum is not None and minimum.physical_offset >= self.log_minimum and minimum.queue_offset > first
        below = old.between(name, 0, first)
        return not hides and not (below["physical_offset"] >= self.log_minimum).any()

    def unit_batches(self) -> Iterator[RowBatch]:
        for key in sorted(self.ends, key=lambda key: queue_prefix(*key)):
            prefix = queue_prefix(*key)
            for rows in self.units(key):
                for at in range(0, len(rows), FRAME_ROWS):
                    part = rows[at : at + FRAME_ROWS]
                    values = np.empty(len(part), UNIT.dtype)
                    for name in UNIT.dtype.names or ():
                        values[name] = part[name]
                    suffixes = np.ascontiguousarray(part["queue_offset"]).tobytes()
                    yield RowBatch(FAMILIES[0].name, prefix, len(part), suffixes, values.tobytes())

    def end_batches(self) -> Iterator[RowBatch]:
        values = {DISPATCHED_KEY: _DISPATCHED.pack(self.dispatched)}
        for (topic, queue_id), ends in self.ends.items():
            for end, is_maximum in ((ends.minimum, False), (ends.maximum, True)):
                if end is not None:
                    values[offset_key(topic, queue_id, is_maximum=is_maximum)] = _OFFSET.pack(*StoredEnd(*end))
        for key in sorted(values):
            yield RowBatch(FAMILIES[1].name, key, 0, b"", values[key])


def _notes(rows: DatabaseRows, old: QueueDatabase | None) -> list[str]:
    notes = []
    if rows.gap_units:
        notes.append(f"Units of messages that the commit log does not have: {rows.gap_units}. Consumers skip them")
    if rows.unfilled:
        notes.append(
            f"Messages that the commit log does not have, and for which no unit can be written: {rows.unfilled}. "
            f"Brokers from {first_with('rocksdb_pull_reads_on')} on fail to answer pulls that come to them"
        )
    if old is not None and old.failure is None and old.why_not_opened is not None:
        notes.append(f"Of the old database only the queues are kept: it has a {old.why_not_opened}")
    if old is not None and old.failure is not None:
        notes.append(
            "The old database cannot be read: queues of which the commit log has no message start again at offset 0"
        )
    return notes


@dataclass
class QueueRowsBuilder:
    """Rows of one queue so far."""

    parts: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of rows, and how many follow each other."""
    first: int = 0
    """The queue offset of the first record."""
    last: int = -1
    """The highest queue offset."""
    is_in_order: bool = True
    end: StoredEnd | None = None
    cuts: list[tuple[int, int]] = field(default_factory=list)
    """After how many rows the queue went on at an earlier place, and at which."""
    row_count: int = 0


class DatabaseRows:
    """All units of a database that is being built.

    Attributes:
        queues: by topic and queue id.
        dispatched: end of the last record that has a unit.
        again: where in the log topics begin again of which a queue does, by topic.
        gap_units: units that stand for messages that the log does not have.
        unfilled: messages that the log does not have, and for which no unit can stand.
    """

    def __init__(self, log: RecordOffsets, removed: RemovedTopics, kept: KeptUnits) -> None:
        """Take rows; see `GapPreservingQueueWriter` for which of several records has a place."""
        self._removed, self._kept = removed, kept
        self.again: dict[str, int] = {}
        self.queues: dict[QueueKey, QueueRowsBuilder] = {}
        self.dispatched = 0
        self.gap_units = 0
        self.unfilled = 0
        self._log = log
        self._rows: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self._count = 0
        weakref.finalize(self, self._rows.close)

    def put(self, entries: QueueEntries) -> None:
        """Enter records of one queue, in the order of the log.

        Raises:
            OSError: the temporary file does not take them.
        """
        rows = np.empty(len(entries.queue_offsets), row_type())
        rows["queue_offset"], rows["physical_offset"] = entries.queue_offsets, entries.physical_offsets
        rows["record_size"], rows["tags_code"] = entries.record_sizes, entries.tags_codes
        rows["store_timestamp_ms"] = entries.store_timestamps_ms
        rows = rows[rows["queue_offset"] >= 0]
        key = (entries.topic, entries.queue_id)
        removed_before = self._removed.end(topic_text(entries.topic))
        if removed_before:
            offsets = rows["queue_offset"].astype(np.int64)
            is_kept = self._kept.lead_to(_directory(key), offsets, rows["physical_offset"])
            rows = rows[(rows["physical_offset"] >= removed_before) | is_kept]
        for part in np.split(rows, np.flatnonzero(np.diff(rows["queue_offset"].astype(np.int64)) != 1) + 1):
            if len(part):
                self._enter(key, part)

    def _enter(self, key: QueueKey, rows: Rows) -> None:
        queue = self.queues.get(key)
        first = int(rows["queue_offset"][0])
        if queue is not None and first <= queue.last:
            directory, offsets = _directory(key), rows["queue_offset"].astype(np.int64)
            is_kept = self._kept.lead_to(directory, offsets, rows["physical_offset"])
            others = self._kept.physical_offsets(directory, first, len(rows))
            is_older = (others >= 0) & (others < rows["physical_offset"]) & (rows["queue_offset"] <= queue.last)
            if (is_older & ~is_kept).any() or not (len(rows) > 1 or is_kept[0]):
                rows = rows[~(is_older | (rows["queue_offset"] <= queue.last)) | is_kept]
            else:
                queue.cuts.append((queue.row_count, first))
                queue.last = first - 1
                if first <= queue.first:
                    topic = topic_text(key[0])
                    self.again[topic] = min(int(rows["physical_offset"][0]), self.again.get(topic, OFFSETS_END))
        if not len(rows):
            return
        queue = self.queues.setdefault(key, QueueRowsBuilder(first=first))
        queue.row_count += len(rows)
        places = np.concatenate([[queue.last], rows["queue_offset"]])
        queue.is_in_order &= bool((places[1:] > places[:-1]).all())
        queue.last = int(places.max())
        queue.end = StoredEnd(int(rows["physical_offset"][-1]), int(rows["queue_offset"][-1]))
        self.dispatched = max(self.dispatched, int((rows["physical_offset"] + rows["record_size"]).max()))
        queue.parts.append((self._count, len(rows)))
        self._count += len(rows)
        self._rows.write(rows.tobytes())

    def units(self, key: QueueKey) -> Iterator[Rows]:
        queue = self.queues[key]
        self._rows.flush()
        file = self._rows.fileno()
        parts: Iterable[Rows] = (
            np.frombuffer(os.pread(file, count * ROW_SIZE, first * ROW_SIZE), row_type())
            for first, count in queue.parts
        )
        if not queue.is_in_order or queue.cuts:
            rows = np.concatenate(list(parts))
            stays = np.ones(len(rows), np.bool_)
            for count, place in queue.cuts:
                stays[:count] &= rows["queue_offset"][:count] < place
            rows = rows[stays][::-1]
            _, at = np.unique(rows["queue_offset"].astype(np.int64), return_index=True)
            parts = (rows[at],)
        following: int | None = None
        for rows in parts:
            yield from self._filled(self._without_tombstones(rows), following)
            following = int(rows["queue_offset"][-1]) + 1

    def _without_tombstones(self, rows: Rows) -> Rows:
        if not self._log.tombstones:
            return rows
        rows = rows.copy()
        for number, place in enumerate(rows["physical_offset"].tolist()):
            unit = self._log.dead_unit(place, in_front=False) if place in self._log.tombstones else None
            if unit is not None:
                for name in FILE_UNIT.dtype.names or ():
                    rows[name][number] = unit[name][0]
        return rows

    def _filled(self, rows: Rows, following: int | None) -> Iterator[Rows]:
        """The rows, with dead units for queue offsets that are missing between them: 5.5.0 fails at a missing unit."""
        places = rows["queue_offset"].astype(np.int64)
        before = np.concatenate([[places[0] if following is None else following], places[:-1] + 1])
        start = 0
        for number in np.flatnonzero(places > before).tolist():
            yield rows[start:number]
            start = number
            count = int(places[number] - before[number])
            unit = self._log.dead_unit(int(rows["physical_offset"][number]), in_front=False)
            if unit is None or count > GAP_UNITS_MAX:
                self.unfilled += count
                continue
            gap = np.empty(count, row_type())
            gap["queue_offset"] = np.arange(before[number], places[number])
            gap["store_timestamp_ms"] = rows["store_timestamp_ms"][number]
            for name in FILE_UNIT.dtype.names or ():
                gap[name] = unit[name][0]
            self.gap_units += count
            yield gap
        yield rows[start:]


def _directory(key: QueueKey) -> str:
    """Directory that the queue has in files."""
    return f"{QUEUES}/{topic_text(key[0])}/{key[1]}"

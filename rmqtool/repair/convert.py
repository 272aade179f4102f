"""Plans `convert`: consume queues from files to RocksDB and back, or a log of DLedger to a plain one.

Who only changes `storeType` loses: from 5.4.0 on a start looks at the last ten files of the log, and the new side has
the messages of these alone.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from rmqtool.engine.queues.kinds import QueueSource, open_queue
from rmqtool.engine.reading.log_presence import is_log_missing
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import first_with
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import RefusedError, UnsupportedError, UsageError
from rmqtool.forecast.record_arrays import MovedRecords
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, MAGIC_BLANK, MAGIC_BYTES, PHYSICAL_OFFSET_AT
from rmqtool.formats.consumequeue import BATCH_UNIT, FILLER_UNIT, UNIT
from rmqtool.formats.dledger import ENTRY_SIZE
from rmqtool.formats.properties import HALF_TOPIC
from rmqtool.formats.queue_name import QueueKey, queue_key
from rmqtool.repair.derived.build import build
from rmqtool.repair.derived.database_build import build_database
from rmqtool.repair.derived.result import BuildOptions, BuildRequest, checkpoint_steps
from rmqtool.repair.machine.plan import PlannedRepair, view_over
from rmqtool.repair.machine.steps import Remove, Step, WriteRange, create_file, remove_file, replace_file
from rmqtool.repair.rebuild import RebuildChoice, plan_rebuild, require_intact, require_log, require_sound_entries
from rmqtool.repair.timer import plan_timer
from rmqtool.scan.runner import OnProgress
from rmqtool.sides.dledger import BadRange, LogEntry, read_entries
from rmqtool.sides.kinds import unread_files
from rmqtool.sides.timer.files import is_timer_checked
from rmqtool.store.databases.queue_database import StoredEnd
from rmqtool.store.directory import Segment, Store, survey, with_settings
from rmqtool.store.dledger_files import DLedgerLog, dledger_log, dledger_logs
from rmqtool.store.file_kinds import FileKind, segment_name
from rmqtool.store.sink import reported
from rmqtool.store.source import ByteSource, FilePart, read_range

_PREPARED_BEFORE_BODY: Final = 12
"""Bytes from the offset of the half message to the body: both host addresses, whose length varies, are before them."""
_FILE_SIZE_MAX: Final = (1 << 31) - 1
"""Brokers keep the size of a log file in 32 bits with a sign."""
_NOTED: Final = "before", "now"


class QueueSide(StrEnum):
    """Where consume queues are to be."""

    ROCKSDB = "rocksdb"
    FILE = "file"
    BOTH = "both"


SETTINGS = {
    QueueSide.ROCKSDB: "storeType=defaultRocksDB",
    QueueSide.FILE: "storeType=default",
    QueueSide.BOTH: "rocksdbCQDoubleWriteEnable=true",
}
"""Settings that the broker's properties file needs before the broker starts."""
_PLAIN_LOG: Final = "commitlog"
_REMOVED: Final = (FileKind.INDEX, FileKind.CHECKPOINT, FileKind.DLEDGER)
"""Files that depend on more of a log than the offsets of its records, or belong to DLedger."""
_MESSAGES: Final = "the messages of the DLedger log"
_WITH_OFFSETS: Final = {
    FileKind.COMPACTION_LOG: "compacted topics",
    FileKind.ROCKSDB: "index, timers or transactions in RocksDB",
    FileKind.POP_ROCKSDB: "the state of pop consumers in RocksDB",
    FileKind.TIERED: "a tiered store",
}
"""Files that may hold physical offsets of the log, and are not rebuilt."""
_BLOCK_UNITS: Final = 1 << 16


def plan_convert(
    store: Store,
    rules: BrokerRules,
    side: QueueSide,
    staging: Path,
    options: BuildOptions,
    on_progress: OnProgress | None = None,
) -> PlannedRepair:
    """Build the missing queues of a side, and find the steps that leave the queues there only.

    Raises:
        UsageError: the version has no queues in RocksDB.
        RefusedError: the broker did not stop cleanly.
        UnsupportedError: the log is damaged, the library is missing, or topics have batch queues.
    """
    require_log(store)
    if not rules.rocksdb_queues and side is not QueueSide.FILE:
        raise UsageError(
            f"brokers of version {rules.version} do not keep consume queues in RocksDB: pass --broker-version with the "
            f"version that will start on the store ({first_with('rocksdb_queues')} or later)"
        )
    if store.has_abort:
        raise RefusedError(f"{store.view.label}: the broker did not stop cleanly: run rmqtool recover first")
    if store.batch_queues and side is not QueueSide.FILE:
        raise UnsupportedError(f"{store.view.label}: topics have batch queues, which RocksDB does not keep")
    kind = store.queue_kind
    notes = [f"set {SETTINGS[side]} in the broker's properties file before the broker starts"]
    left, removed_why = tuple[FileKind, ...](), ""
    if kind != "file" and side is QueueSide.FILE:
        left, removed_why = (FileKind.CONSUMEQUEUE_ROCKSDB,), "the consume queues are in files now"
    if kind != "rocksdb" and side is QueueSide.ROCKSDB:
        left = (FileKind.CONSUMEQUEUE, FileKind.CONSUMEQUEUE_EXT)
        removed_why = "the consume queues are in RocksDB now"
    entries = [entry for one in left for entry in store.files.get(one, ())]
    steps: list[Step] = [remove_file(store.view, entry.path, removed_why) for entry in entries]
    why = "built from the commit log"
    if side is not QueueSide.ROCKSDB and (kind != "file" or side is QueueSide.FILE):
        built = build(store, rules, BuildRequest(lambda _topic, _queue_id: True, False), staging, options, on_progress)
        require_intact(built)
        steps += built.steps(why, why)
        notes += built.notes()
        if kind == "rocksdb":  # which leaves the time of the queues in the checkpoint as it was
            steps += checkpoint_steps(store, rules, built.last_record, built.log_end)
    else:
        built = build(store, rules, BuildRequest(None, False), staging, options, on_progress)
    if side is not QueueSide.FILE and (kind != "rocksdb" or side is QueueSide.ROCKSDB):
        database = build_database(
            store, rules, None, None, staging, options, on_progress, dict(_ends_in_files(store, rules))
        )
        require_intact(replace(built, bad=database.bad))
        steps += database.steps(why)
        notes += database.notes
    return PlannedRepair(tuple(steps), tuple(notes) if steps else ())


def _ends_in_files(store: Store, rules: BrokerRules) -> Iterator[tuple[QueueKey, StoredEnd]]:
    """Last unit of each queue in files: where all its messages have expired, only that shows its next offset."""
    with OpenFiles(store.view) as files:
        source = QueueSource(store, rules, files, store.commitlog[0].start)
        for topic, queue_id in store.queues:
            queue = open_queue(source, (topic, queue_id))
            last = queue.last_record()
            if last is not None and queue.max_queue_offset > 0:
                yield queue_key(topic, queue_id), StoredEnd(last[0], queue.max_queue_offset - 1)


def plan_from_dledger(
    store: Store, rules: BrokerRules, staging: Path, options: BuildOptions, on_progress: OnProgress | None = None
) -> PlannedRepair:
    """Write a plain log with the messages of a DLedger log, build queues and index for it, and drop DLedger's files.

    Queue offsets stay, and so do the files of `config/`; physical offsets change.

    Raises:
        UnsupportedError: the log is damaged, or something that is not built again holds physical offsets.
    """
    log = _dledger_log(store, rules)
    folders = {name: staging / name for name in (_PLAIN_LOG, "places", "queues", "derived")}
    for folder in folders.values():
        folder.mkdir()
    written = write_plain_log(log, rules, folders[_PLAIN_LOG], folders["places"], on_progress)
    steps: list[Step] = [
        create_file(store.view, f"{_PLAIN_LOG}/{name}", FilePart.whole(folders[_PLAIN_LOG] / name), _MESSAGES, mtime_ns)
        for name, mtime_ns in written.files.items()
    ]
    kept = dict(_moved_queues(store, written.moved, folders["queues"]))
    removed = {entry.path for kind in _REMOVED for entry in store.files.get(kind, ()) if not entry.path.startswith("/")}
    plain = view_over(store.view, steps)
    for path, content in kept.items():
        plain.replace(path, content)
    for path in removed:
        plain.remove(path)
    settings = with_settings(
        replace(store.settings, commitlog_directories=(), dledger_directories=(), uses_dledger=False),
        consumequeue_file_size=store.consumequeue_file_size or None,
        extension_file_size=store.extension_file_size or None,
        batch_file_size=store.batch_file_size or None,
        index_slot_count=store.index_slot_count,
        index_entry_count=store.index_entry_count,
    )
    built = plan_rebuild(survey(plain, settings), rules, RebuildChoice(), folders["derived"], options, on_progress)
    for step in built.steps:
        is_there = step.path in kept or step.path in removed
        kept.pop(step.path, None)
        removed.discard(step.path)
        if isinstance(step, Remove):
            steps.append(remove_file(store.view, step.path, step.why))
        elif is_there and not isinstance(step, WriteRange):
            steps.append(replace_file(store.view, step.path, step.content, step.why))
        else:
            steps.append(step)
    why = "the physical offsets of the plain commit log"
    steps += [replace_file(store.view, path, content, why) for path, content in kept.items()]
    dledger = {entry.path for entry in store.files.get(FileKind.DLEDGER, ())}
    steps += [
        remove_file(store.view, path, "belongs to DLedger" if path in dledger else "leads to the DLedger log")
        for path in sorted(removed)
    ]
    notes = [*_notes_of(log, written), *built.notes]
    after = survey(view_over(store.view, steps), settings)
    if after.files.get(FileKind.TIMER_LOG) and is_timer_checked(after, rules):
        timer = plan_timer(after, rules, folders["derived"], on_progress=on_progress)
        steps += timer.steps
        notes += timer.notes
    return PlannedRepair(
        tuple(steps),
        tuple(notes),
        looked_at=frozenset({FileKind.DLEDGER}),
        settings=settings,
        again=built.again,
        moved=written.moved,
    )


def _dledger_log(store: Store, rules: BrokerRules) -> DLedgerLog:
    label = store.view.label
    if not any(log.data for log in dledger_logs(store)):
        if dledger_logs(store) and is_log_missing(store):
            raise UnsupportedError(f"{label}: the log of DLedger is missing: check that its disk is mounted")
        raise UsageError(f"{label}: there is no log of DLedger")
    log = dledger_log(store)
    if log is None:
        raise UnsupportedError(
            f"{label}: there are several logs of DLedger: --broker-conf FILE tells which one the broker reads"
        )
    before, size = store.commitlog[-1:], log.data[0].size
    if before and (before[0].start + size, before[0].size) != (log.data[0].start, size):
        raise UnsupportedError(
            f"{label}: there is a plain commit log beside the log of DLedger, which does not end where that begins; "
            "the two are not joined"
        )
    if store.queue_database is not None:
        raise UnsupportedError(f"{label}: the consume queues are in RocksDB; only queues in files are converted")
    for files in unread_files(store):
        kinds = [what for kind, what in _WITH_OFFSETS.items() if kind.value == files.kind]
        if kinds:
            raise UnsupportedError(f"{label}: {kinds[0]} in {files.path} may hold offsets of the log; not converted")
    require_sound_entries(store, rules, log.data[-1].path)
    return log


def _moved_queues(store: Store, moved: MovedRecords, directory: Path) -> Iterator[tuple[str, FilePart]]:
    """Files of the consume queues for the plain log, without those that stay as they are.

    What a queue has stays so, as in every repair: only it tells which messages of a topic were there before it was
    deleted and used again, and the next offset where all have expired.
    """
    for queues, dtype in ((store.queues, UNIT.dtype), (store.batch_queues, BATCH_UNIT.dtype)):
        for segment in (segment for queue in queues.values() for segment in queue.segments):
            path = directory / segment.path
            is_moved = False
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(store.view.open(segment.path)) as source, reported(str(path)), path.open("wb") as file:
                for at in range(0, source.size, _BLOCK_UNITS * dtype.itemsize):
                    raw = bytearray(read_range(source, at, min(_BLOCK_UNITS * dtype.itemsize, source.size - at)))
                    units = np.frombuffer(raw, dtype, len(raw) // dtype.itemsize)
                    leads = (units["record_size"] > 0) & (units["record_size"] != FILLER_UNIT[1])
                    places = moved.to_now(units["physical_offset"].astype(np.int64))
                    is_moved |= bool((units["physical_offset"] != places)[leads].any())
                    units["physical_offset"][leads] = places[leads]
                    file.write(raw)
            if is_moved:
                yield segment.path, FilePart.whole(path)
            else:
                path.unlink()


def _notes_of(log: DLedgerLog, written: PlainLog) -> Iterator[str]:
    yield (
        "before the broker starts, remove enableDLegerCommitLog and the other dLeger settings from its properties file"
    )
    yield "physical offsets change, and with them message ids that contain one; queue offsets and unique keys stay"
    if written.last is not None:
        index, term = written.last
        yield (
            f"the last entry is {index} of term {term}: the group's messages are all in the member whose last entry is "
            "of the highest term, and of these the highest number; convert that one"
        )
        uncommitted = index - log.committed_index if log.committed_index is not None else 0
        if uncommitted > 0:
            yield (
                f"entries after the last one that the group is known to have committed: {uncommitted}; other members "
                "may not have them"
            )
    if written.left_out:
        yield f"entries without a message, which only the group needs: {written.left_out}"
    if written.tail:
        yield f"bytes after the last entry, which DLedger removes at its start too: {written.tail}"


@dataclass
class PlainLog:
    """The log as it was written.

    Attributes:
        places: a directory with what `moved` reads.
        files: name of each file, and the modification time that it gets.
        left_out: entries without a message, which only the group needs.
        last: number and term of the last entry; None without one.
        tail: bytes after the last entry that are none; DLedger cuts them off as well.
    """

    places: Path
    files: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    last: tuple[int, int] | None = None
    tail: int = 0

    @property
    def moved(self) -> MovedRecords:
        """Where its records were before; mapped, not read."""
        before, now = (np.memmap(self.places / name, np.int64, "r") for name in _NOTED)
        return MovedRecords(before, now)


def write_plain_log(
    log: DLedgerLog, rules: BrokerRules, directory: Path, places: Path, on_progress: OnProgress | None = None
) -> PlainLog:
    """Write the messages of a log of DLedger into the files of a plain one.

    Args:
        directory, places: where the files of the log are made, and those that tell where its records were; both are
            there, and empty.

    Raises:
        UnsupportedError: a file of the log is damaged, but for its end, or has a size of its own.
    """
    written = PlainLog(places)
    size = log.data[0].size
    for segment in log.data:  # a record of a longer file may not fit into the new ones
        if segment.size > min(size, _FILE_SIZE_MAX) or (segment.size < size and segment is not log.data[-1]):
            raise UnsupportedError(
                f"{log.store.view.label}: {segment.path} has {segment.size:,} bytes and the first file {size:,}: "
                "nothing is converted; copy the directory from another member of the group first"
            )
    with closing(_Writer(log.data[0], directory, written)) as writer:
        for number, segment in enumerate(log.data):
            with closing(log.store.view.open(segment.path)) as source:
                for entry in read_entries(source, segment.start, rules):
                    if isinstance(entry, BadRange) and segment is log.data[-1]:
                        written.tail = entry.length
                        continue
                    if isinstance(entry, BadRange) or not entry.is_right:
                        raise UnsupportedError(
                            f"{log.store.view.label}: {segment.path} is damaged at byte {entry.file_position}: "
                            "nothing is converted; copy the directory from another member of the group first"
                        )
                    written.last = entry.values["index"], entry.values["term"]
                    if entry.record is not None:
                        writer.append(source, segment, entry)
                    else:
                        written.left_out += 1
            if on_progress is not None:
                on_progress(number + 1, len(log.data))
    return written


class _Writer:
    def __init__(self, first: Segment, directory: Path, written: PlainLog) -> None:
        self._directory, self._written = directory, written
        self._file_size = first.size
        self._start, self._at = first.start, 0
        self._file: BinaryIO | None = None
        self._path = directory
        self._halves, self._new_halves = array("q"), array("q")
        self._old_end = first.start
        self._noted = [(written.places / name).open("wb") for name in _NOTED]

    def append(self, source: ByteSource, segment: Segment, entry: LogEntry) -> None:
        record = entry.record
        assert record is not None, "only entries with a message are appended"
        if self._at + record.size + BLANK_SIZE_MIN > self._file_size:
            blank = (self._file_size - self._at).to_bytes(4, "big") + MAGIC_BYTES[MAGIC_BLANK]
            self._write(blank)
            self._end_file()
            self._start, self._at = self._start + self._file_size, 0
        raw = bytearray(read_range(source, entry.file_position + ENTRY_SIZE, record.size))
        place = self._start + self._at
        raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = place.to_bytes(8, "big")
        half = bisect_left(self._halves, record.prepared_transaction_offset)
        if self._halves[half : half + 1] == array("q", [record.prepared_transaction_offset]):
            at = record.body_position - _PREPARED_BEFORE_BODY
            raw[at : at + 8] = self._new_halves[half].to_bytes(8, "big")
        if record.topic == HALF_TOPIC:
            self._halves.append(record.physical_offset)
            self._new_halves.append(place)
        self._write(raw)
        self._note(record.physical_offset, place)
        self._old_end = record.physical_offset + record.size
        self._written.files[self._path.name] = segment.entry.mtime_ns

    def close(self) -> None:
        self._note(self._old_end, self._start + self._at)
        with reported(str(self._written.places)):
            for file in self._noted:
                file.close()
        self._end_file()

    def _note(self, *places: int) -> None:
        with reported(str(self._written.places)):
            for file, place in zip(self._noted, places, strict=True):
                file.write(place.to_bytes(8, sys.byteorder))

    def _end_file(self) -> None:
        if self._file is not None:
            with reported(str(self._path)), self._file as file:
                file.flush()
                os.ftruncate(file.fileno(), self._file_size)
            self._file = None

    def _write(self, data: bytes | bytearray) -> None:
        with reported(str(self._path)):
            if self._file is None:
                self._path = self._directory / segment_name(self._start)
                self._file = self._path.open("wb")
            self._file.write(data)
        self._at += len(data)

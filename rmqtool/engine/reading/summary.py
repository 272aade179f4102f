"""Summary of a store: the log's ends, the queues' ends, the counts; no body but the last one is read.

What cannot be read is said in `problems` and left unknown, never reported as absent. Where files lie in the log and in
time is read from a sample of them on a large store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from rmqtool.engine.queues.kinds import QueueSource, open_queue, queue_names
from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.reading.log_end import LogEnd, find_log_end
from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.errors import UnreadableError
from rmqtool.formats.abort import parse_abort
from rmqtool.formats.checkpoint import FIELDS_SIZE, Checkpoint, parse_checkpoint
from rmqtool.formats.index import HEADER_SIZE, IndexHeader
from rmqtool.scan.first_time import first_store_time_ms
from rmqtool.store.config.config_database import read_config_databases
from rmqtool.store.config.tiered import tiered_root
from rmqtool.store.databases.rocksdb_files import has_to_open
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FENCE_NAME, FileKind
from rmqtool.store.location import log_directories
from rmqtool.store.source import read_range

LAST_BODY_MAX: Final = 64 << 20
"""Bytes of the last record's body up to which its CRC is looked at."""
UNKNOWN_KINDS: Final = (FileKind.UNKNOWN, FileKind.STRAY_COMMITLOG, FileKind.STRAY_QUEUE, FileKind.STRAY_INDEX)
UNDECODED_KINDS: Final = (
    FileKind.DLEDGER,
    FileKind.CONSUMEQUEUE_ROCKSDB,
    FileKind.ROCKSDB,
    FileKind.CONFIG_ROCKSDB,
    FileKind.POP_ROCKSDB,
    FileKind.TIMER_WHEEL,
    FileKind.TIMER_LOG,
    FileKind.COMPACTION_LOG,
    FileKind.COMPACTION_QUEUE,
    FileKind.COMPACTION_LEFTOVER,
    FileKind.TIERED,
)
"""Kinds that are told apart and counted, and whose content is not read."""


class Shutdown(StrEnum):
    """State in which the last broker stopped."""

    CLEAN = "clean"
    ABNORMAL = "abnormal"
    NEVER_STARTED = "never-started"


class QueueSummary(NamedTuple):
    """One queue; the two numbers are None where its files cannot be read."""

    topic: str
    queue_id: int
    min_queue_offset: int | None
    max_queue_offset: int | None


@dataclass(frozen=True)
class StoreSummary:
    """Summary of a store; offsets and sizes in bytes unless named otherwise, times in ms."""

    shutdown: Shutdown
    abort_process_id: int | None
    min_physical_offset: int | None
    """None without any file of the log."""
    log_end: LogEnd
    first_store_timestamp_ms: int | None
    last_store_timestamp_ms: int | None
    queues: tuple[QueueSummary, ...]
    index_entry_count: int | None
    """None where a header cannot be read."""
    checkpoint: Checkpoint | None
    """None where there is none, or it cannot be read."""
    undecoded: dict[FileKind, int]
    """Number of files of each kind that is not read."""
    unknown_files: tuple[str, ...]
    has_unfinished_repair: bool
    unlisted: frozenset[FileKind]
    """Of log, queues and index: those whose directory cannot be listed, so that files may be there and not be seen."""
    problems: tuple[str, ...] = field(default=())


def summarize(store: Store, rules: BrokerRules, on_queue: Callable[[Queue], None] | None = None) -> StoreSummary:
    """Look at a store as the brokers of these rules have it; seconds on a terabyte, whatever is broken.

    Args:
        on_queue: is given each queue that can be read, while its files are open.
    """
    problems = list(map(str, store.unread_places))
    abort, checkpoint_file = store.first(FileKind.ABORT), store.first(FileKind.CHECKPOINT)
    if store.has_abort:
        shutdown = Shutdown.ABNORMAL
    elif store.commitlog or checkpoint_file or store.files.get(FileKind.DLEDGER) or store.queues or store.index_files:
        shutdown = Shutdown.CLEAN
    else:
        shutdown = Shutdown.NEVER_STARTED
    with OpenFiles(store.view) as files:
        log = Log(store, rules, files)
        queues, last_records = _queues(store, rules, files, log.minimum, problems, on_queue)
        end, last = _end(log, find_log_end(store.commitlog, files, last_records), problems)
        abort_text = _read(files, abort.path, 32, problems) if abort is not None else None
        first_timestamp_ms = _first_timestamp(log, problems)
        entry_counts: list[int] = []
        for entry in store.index_files:
            raw = _read(files, entry.path, HEADER_SIZE, problems)
            if raw is None:
                break
            # Numbers begin at 1; a header of nothing but zeros belongs to a file that was only just made.
            entry_counts.append(max(0, IndexHeader.parse(raw).next_entry_number - 1))
        times = None
        if checkpoint_file is not None and checkpoint_file.is_file and checkpoint_file.size < FIELDS_SIZE:
            text = f"{checkpoint_file.path}: {checkpoint_file.size} bytes long, too short for its times"
            problems.append(text)
        elif checkpoint_file is not None:
            times = _read(files, checkpoint_file.path, FIELDS_SIZE, problems)

    def is_decoded(kind: FileKind) -> bool:
        if kind is FileKind.CONSUMEQUEUE_ROCKSDB:
            return store.queue_kind == "rocksdb" and store.are_queues_known
        if kind is FileKind.CONFIG_ROCKSDB:
            return all(database.failure is None for database in read_config_databases(store.view))
        return kind is FileKind.ROCKSDB and not has_to_open(store.view, store.files[kind])

    def is_listed(directory: str) -> bool:
        try:
            store.view.list(directory)
        except UnreadableError:
            return False
        return True

    tiered = (tiered_root(store.view) if FileKind.TIERED in store.files else None) or ""
    directories = {
        FileKind.COMMITLOG: log_directories(store),
        FileKind.CONSUMEQUEUE: ("consumequeue",),
        FileKind.INDEX: ("index",),
    }
    return StoreSummary(
        shutdown=shutdown,
        abort_process_id=parse_abort(abort_text) if abort_text is not None else None,
        min_physical_offset=store.commitlog[0].start if store.commitlog else None,
        log_end=end,
        first_store_timestamp_ms=first_timestamp_ms,
        last_store_timestamp_ms=last.store_timestamp_ms if last is not None else None,
        queues=queues,
        index_entry_count=sum(entry_counts) if len(entry_counts) == len(store.index_files) else None,
        checkpoint=None if times is None else parse_checkpoint(times),
        undecoded={
            kind: len(store.files[kind]) for kind in UNDECODED_KINDS if kind in store.files and not is_decoded(kind)
        },
        unknown_files=(
            *(entry.path for kind in UNKNOWN_KINDS for entry in store.files.get(kind, ())),
            *(f"{directory}/" for directory in store.unknown_directories if not tiered.startswith(f"{directory}/")),
        ),
        has_unfinished_repair=any(entry.name == FENCE_NAME for entry in store.files.get(FileKind.RMQTOOL, ())),
        unlisted=frozenset(kind for kind, names in directories.items() if not all(map(is_listed, names))),
        problems=tuple(dict.fromkeys(problems)),
    )


def _queues(
    store: Store,
    rules: BrokerRules,
    files: OpenFiles,
    log_minimum: int,
    problems: list[str],
    on_queue: Callable[[Queue], None] | None,
) -> tuple[tuple[QueueSummary, ...], list[tuple[int, int]]]:
    """All queues, and the log ranges of their last units."""
    summaries: list[QueueSummary] = []
    last_records: list[tuple[int, int]] = []
    source = QueueSource(store, rules, files, log_minimum)
    for name in queue_names(store):
        try:
            queue = open_queue(source, name, quickly=True)
            summaries.append(QueueSummary(*name, queue.min_queue_offset, queue.max_queue_offset))
            last_record = queue.last_record()
            if on_queue is not None:
                on_queue(queue)
        except UnreadableError as error:
            problems.append(str(error))
            summaries.append(QueueSummary(*name, None, None))
            continue
        if last_record is not None:
            last_records.append(last_record)
    return tuple(summaries), last_records


def _end(log: Log, end: LogEnd, problems: list[str]) -> tuple[LogEnd, Record | None]:
    """The end, before the last record where that is torn, and the last record; its body is the only one read."""
    if end.last_record is None:
        return end, None
    at = end.last_record
    try:
        last = read_record(log, at)
        if last is not None and (last.body_length > LAST_BODY_MAX or last.body_crc_ok):
            return end, last
    except UnreadableError as error:
        problems.append(str(error))
        return LogEnd(at, is_exact=False, last_record=at, reason="the last record cannot be read"), None
    problems.append(f"the last record, at physical offset {at}, is torn: a broker truncates the commit log there")
    return LogEnd(at, is_exact=False, last_record=at, reason="the last record is torn"), last


def _first_timestamp(log: Log, problems: list[str]) -> int | None:
    """Store time of the first record that begins a file."""
    for segment in log.segments:
        try:
            first = read_record(log, segment.start)
        except UnreadableError as error:
            problems.append(str(error))
            continue
        if first is not None:
            return first.store_timestamp_ms
    return None


def _read(files: OpenFiles, path: str, length: int, problems: list[str]) -> bytes | None:
    """First bytes of a file; None, and a problem more, where the disk does not give them."""
    try:
        return files.read(path, 0, length)
    except UnreadableError as error:
        problems.append(str(error))
        return None


SAMPLE_MAX: Final = 200
"""Files of one kind that are opened."""
Sampled = TypeVar("Sampled")


def file_times(store: Store, paths: Sequence[str]) -> dict[str, int]:
    """Store time of the first record of files of the log, by path; without those that do not begin with a record.

    Args:
        paths: files that belong to the sample in any case.
    """
    times = {}
    for path in dict.fromkeys((*_sample([segment.path for segment in store.commitlog]), *paths)):
        with suppress(UnreadableError), closing(store.view.open(path)) as source:
            if (moment := first_store_time_ms(source)) is not None:
                times[path] = moment
    return times


def index_headers(store: Store) -> Iterator[tuple[str, IndexHeader]]:
    """Path and header of index files, without those that have no entry or cannot be read."""
    for entry in _sample(store.index_files):
        header = None
        with suppress(UnreadableError), closing(store.view.open(entry.path)) as source:
            header = IndexHeader.parse(read_range(source, 0, HEADER_SIZE))
        if header is not None and header.next_entry_number > 1:
            yield entry.path, header


def _sample(items: Sequence[Sampled]) -> list[Sampled]:
    """All items, or an evenly spread sample with the first and the last."""
    count = len(items)
    if count <= SAMPLE_MAX:
        return list(items)
    return [items[number * (count - 1) // (SAMPLE_MAX - 1)] for number in range(SAMPLE_MAX)]

"""What a store holds, at a glance: the log's ends, the queues' ends, the counts; no body but the last one is read.

What cannot be read is said in `problems` and left unknown, never reported as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from rmqtool.store.config.config_database import read_config_databases
from rmqtool.store.config.tiered import tiered_root
from rmqtool.store.databases.rocksdb_files import has_to_open
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FENCE_NAME, FileKind
from rmqtool.store.location import log_directories

LAST_BODY_MAX: Final = 64 << 20
"""Bytes of the last record's body up to which its CRC is looked at."""
UNKNOWN_KINDS: Final = (
    FileKind.UNKNOWN,
    FileKind.STRAY_COMMITLOG,
    FileKind.STRAY_QUEUE,
    FileKind.STRAY_INDEX,
)
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

Found = TypeVar("Found")


class Shutdown(StrEnum):
    """How the last broker stopped."""

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
    """What a store holds; offsets and sizes in bytes unless named otherwise, times in ms."""

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
    """How many files there are of the kinds that are not read."""
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
    tiered = (tiered_root(store.view) if FileKind.TIERED in store.files else None) or ""
    with OpenFiles(store.view) as files:
        log = Log(store, rules, files)
        queues, last_records = _queues(store, rules, files, log.minimum, problems, on_queue)
        end, last = _end(log, find_log_end(store.commitlog, files, last_records), problems)
        return StoreSummary(
            shutdown=_shutdown(store),
            abort_process_id=_abort_process_id(store, files, problems),
            min_physical_offset=store.commitlog[0].start if store.commitlog else None,
            log_end=end,
            first_store_timestamp_ms=_first_timestamp(log, problems),
            last_store_timestamp_ms=last.store_timestamp_ms if last is not None else None,
            queues=queues,
            index_entry_count=_index_entry_count(store, files, problems),
            checkpoint=_checkpoint(store, files, problems),
            undecoded={kind: len(store.files[kind]) for kind in _undecoded(store)},
            unknown_files=(
                *(entry.path for kind in UNKNOWN_KINDS for entry in store.files.get(kind, ())),
                *(f"{directory}/" for directory in store.unknown_directories if not tiered.startswith(f"{directory}/")),
            ),
            has_unfinished_repair=any(entry.name == FENCE_NAME for entry in store.files.get(FileKind.RMQTOOL, ())),
            unlisted=_unlisted(store),
            problems=tuple(dict.fromkeys(problems)),
        )


def _undecoded(store: Store) -> Iterator[FileKind]:
    for kind in UNDECODED_KINDS:
        is_read = kind is FileKind.CONSUMEQUEUE_ROCKSDB and store.queue_kind == "rocksdb" and store.are_queues_known
        if kind is FileKind.CONFIG_ROCKSDB and kind in store.files:
            is_read = all(database.failure is None for database in read_config_databases(store.view))
        is_read |= kind is FileKind.ROCKSDB and not has_to_open(store.view, store.files.get(kind, ()))
        if kind in store.files and not is_read:
            yield kind


def _unlisted(store: Store) -> frozenset[FileKind]:
    directories = {
        FileKind.COMMITLOG: log_directories(store),
        FileKind.CONSUMEQUEUE: ("consumequeue",),
        FileKind.INDEX: ("index",),
    }
    return frozenset(
        kind for kind, names in directories.items() if not all(_can_be_listed(store, name) for name in names)
    )


def _can_be_listed(store: Store, directory: str) -> bool:
    try:
        store.view.list(directory)
    except UnreadableError:
        return False
    return True


def _shutdown(store: Store) -> Shutdown:
    if store.has_abort:
        return Shutdown.ABNORMAL
    was_started = store.commitlog or store.first(FileKind.CHECKPOINT) or store.files.get(FileKind.DLEDGER)
    return Shutdown.CLEAN if was_started or store.queues or store.index_files else Shutdown.NEVER_STARTED


def _abort_process_id(store: Store, files: OpenFiles, problems: list[str]) -> int | None:
    entry = store.first(FileKind.ABORT)
    if entry is None:
        return None
    return _readable(lambda: parse_abort(files.read(entry.path, 0, 32)), problems)


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
    """The end, before the last record where that is torn, and the last record; its body is the only one looked at."""
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


def _index_entry_count(store: Store, files: OpenFiles, problems: list[str]) -> int | None:
    total = 0
    for entry in store.index_files:
        raw = _readable(lambda path=entry.path: files.read(path, 0, HEADER_SIZE), problems)  # type: ignore[misc]
        if raw is None:
            return None
        # Numbers begin at 1; a header of nothing but zeros belongs to a file that was only just made.
        total += max(0, IndexHeader.parse(raw).next_entry_number - 1)
    return total


def _checkpoint(store: Store, files: OpenFiles, problems: list[str]) -> Checkpoint | None:
    entry = store.first(FileKind.CHECKPOINT)
    if entry is None:
        return None
    if entry.is_file and entry.size < FIELDS_SIZE:
        problems.append(f"{entry.path}: {entry.size} bytes long, too short for its times")
        return None
    raw = _readable(lambda: files.read(entry.path, 0, FIELDS_SIZE), problems)
    return None if raw is None else parse_checkpoint(raw)


def _readable(read: Callable[[], Found], problems: list[str]) -> Found | None:
    """What a read gives; None, and a problem more, where it fails."""
    try:
        return read()
    except UnreadableError as error:
        problems.append(str(error))
        return None

"""A store as its directory shows it: every file found and told apart, file sizes known, nothing decoded."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter
from posixpath import normpath
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqtool.errors import NotAStoreError, UnknownSizeError, UnreadableError
from rmqtool.formats import dledger
from rmqtool.formats.commitlog import MAGIC_BYTES, MESSAGE_MAGICS
from rmqtool.formats.consumequeue import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqtool.formats.queue_name import QueueName
from rmqtool.quantities import JAVA_LONG_MAX, SEGMENT_START_MAX
from rmqtool.store.config.tiered import what_is_no_store
from rmqtool.store.file_kinds import (
    FileKind,
    is_broker_directory,
    is_java_long,
    is_segment_name,
    kind_of,
    segment_name,
    stray_kind_of,
)
from rmqtool.store.list_files import list_files
from rmqtool.store.sizes import (
    DEFAULT_INDEX_FILE_SIZE,
    DEFAULT_LOG_FILE_SIZE,
    DEFAULT_QUEUE_FILE_SIZE,
    LogFileSize,
    cut_log_file_size,
    infer_file_size,
    infer_log_file_size,
)
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import Entry, EntryKind, StoreView, UnreadPlace

if TYPE_CHECKING:
    from rmqtool.store.databases.queue_database import QueueDatabase


EVIDENCE: Final = frozenset(
    {
        FileKind.COMMITLOG, FileKind.CONSUMEQUEUE, FileKind.BATCH_CONSUMEQUEUE, FileKind.CONSUMEQUEUE_ROCKSDB,
        FileKind.INDEX, FileKind.CHECKPOINT, FileKind.ABORT, FileKind.DLEDGER, FileKind.TIMER_WHEEL, FileKind.TIERED,
    }
)  # fmt: skip
"""Kinds of which one file makes a directory a store; `lock` and `config/` are too common to tell anything."""
_NOT_THERE: Final = (EntryKind.DANGLING, EntryKind.LOOP, EntryKind.BROKEN)
"""Kinds of entry for which Java's `File#exists` is false."""
_STRAY_KINDS: Final = (FileKind.STRAY_COMMITLOG, FileKind.STRAY_QUEUE, FileKind.STRAY_INDEX)
_STREAM_KINDS: Final = frozenset(
    {
        FileKind.COMMITLOG, FileKind.CONSUMEQUEUE, FileKind.CONSUMEQUEUE_EXT, FileKind.BATCH_CONSUMEQUEUE,
        FileKind.INDEX,
    }
)  # fmt: skip
STORE_DIRECTORIES: Final = frozenset({"commitlog", "consumequeue"})


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a stream that is cut into files of equal size and named by their first byte's place."""

    entry: Entry
    start: int
    has_entries: bool = False
    """True for a file of DLedger, whose records are in entries."""
    path: str = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    end: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.entry.path)
        object.__setattr__(self, "size", self.entry.size)
        object.__setattr__(self, "end", self.start + self.entry.size)


@dataclass(frozen=True, slots=True)
class QueueFiles:
    """The files of one consume queue (or extension, or batch queue)."""

    topic: str
    queue_id: int
    segments: tuple[Segment, ...]

    @property
    def directory(self) -> str:
        return self.segments[0].path.rpartition("/")[0]


class QueueRoles(NamedTuple):
    """Roles of files and RocksDB where queues are written to both; each is `file` or `rocksdb`.

    Attributes:
        reads: the side that pulls are answered from (combineCQPreferCQType).
        assigns: the side that gives new messages their queue offsets (combineAssignOffsetCQType).
        light_in_rocksdb: whether light queues are in RocksDB alone (combineCQUseRocksdbForLmq).
    """

    reads: str
    assigns: str
    light_in_rocksdb: bool = False


@dataclass(frozen=True)
class Settings:
    """Settings that a store's files do not show; None means inferred."""

    commitlog_directories: tuple[str, ...] = ()
    commitlog_file_size: int | None = None
    consumequeue_file_size: int | None = None
    extension_file_size: int | None = None
    batch_file_size: int | None = None
    index_slot_count: int | None = None
    index_entry_count: int | None = None
    timer_log_file_size: int | None = None
    compaction_log_file_size: int | None = None
    compaction_queue_file_size: int | None = None
    runs_timer: bool = True
    queue_kind: str | None = None
    queue_roles: QueueRoles | None = None
    makes_index: bool | None = None
    """True if the broker writes an index (`messageIndexEnable`); None if unknown."""
    has_light_queues: bool | None = None
    """The broker's `enableLmq`; None where nobody says."""
    uses_dledger: bool | None = None
    """True if the broker's log is one of DLedger; None to infer it from the files."""
    dledger_id: str | None = None
    dledger_directories: tuple[str, ...] = ()
    """Those of `commitlog_directories` that hold the data of DLedger; none where it lies in `dledger-ID/data`."""
    defaults_hold: bool = False
    """True if the broker's own properties file was read, so that its default holds for a size that it does not name."""

    @property
    def log_directories(self) -> frozenset[str]:
        """The directories that were named, as paths of the view; none where the log lies in `commitlog`."""
        return frozenset(directory.rstrip("/") or "/" for directory in self.commitlog_directories)


@dataclass(frozen=True)
class Store:
    """A surveyed store.

    Attributes:
        unknown_directories: those of `directories` in which no broker looks, and nobody here.
        problems: the places that could not be looked at.
        nodes: FIFOs, directories and the like where a broker opens a file; they are among the problems.
        known: an earlier look at it; what is the same is held once.
    """

    view: StoreView
    settings: Settings
    files: dict[FileKind, tuple[Entry, ...]]
    directories: tuple[str, ...]
    unknown_directories: tuple[str, ...] = ()
    problems: tuple[UnreadPlace, ...] = field(default=())
    nodes: tuple[Entry, ...] = ()
    known: Store | None = field(default=None, compare=False, repr=False)

    @cached_property
    def commitlog(self) -> tuple[Segment, ...]:
        """Commitlog segments of all paths, by their start."""
        return _segments(self.files.get(FileKind.COMMITLOG, ()), self.files.get(FileKind.DLEDGER, ()))

    @property
    def log_start(self) -> int:
        """Physical offset at which the commit log starts; 0 without files."""
        return self.commitlog[0].start if self.commitlog else 0

    @property
    def log_end(self) -> int:
        """Physical offset at which its last file ends; 0 without files."""
        return self.commitlog[-1].end if self.commitlog else 0

    @property
    def has_dledger_log(self) -> bool:
        """True if the commit log is that of DLedger, or ends in it."""
        return bool(self.commitlog) and self.commitlog[-1].has_entries

    @cached_property
    def loadable_log(self) -> tuple[Segment, ...]:
        """The log's files as brokers load them: also those whose names are numbers of fewer than 20 digits."""
        named = self.settings.log_directories
        numbered = []
        for entry in self.files.get(FileKind.STRAY_COMMITLOG, ()):
            directory = entry.path.rpartition("/")[0]
            is_inside = directory in named if named else is_broker_directory(directory)
            if is_inside and _is_numbered(entry):
                numbered.append(entry)
        return _segments((*self.files.get(FileKind.COMMITLOG, ()), *numbered))

    @cached_property
    def queues(self) -> dict[QueueName, QueueFiles]:
        """File consume queues by (topic, queue id)."""
        entries, known = self.files.get(FileKind.CONSUMEQUEUE, ()), self.known
        if known is not None and known.files.get(FileKind.CONSUMEQUEUE) is entries:
            return known.queues
        return _queues(entries)

    @cached_property
    def loadable_queues(self) -> dict[QueueName, QueueFiles]:
        """The file consume queues; of a store without any, the files that have numbers of fewer digits for names."""
        strays = () if self.queues else self.files.get(FileKind.STRAY_QUEUE, ())
        numbered = []
        for entry in strays:
            directory = entry.path.rpartition("/")[0]
            is_inside = directory.startswith("consumequeue/") and directory.count("/") == 2
            if is_inside and is_broker_directory(directory) and _is_numbered(entry):
                numbered.append(entry)
        return self.queues or _queues(tuple(numbered))

    @cached_property
    def extensions(self) -> dict[QueueName, QueueFiles]:
        return _queues(self.files.get(FileKind.CONSUMEQUEUE_EXT, ()))

    @cached_property
    def batch_queues(self) -> dict[QueueName, QueueFiles]:
        return _queues(self.files.get(FileKind.BATCH_CONSUMEQUEUE, ()))

    @cached_property
    def index_files(self) -> tuple[Entry, ...]:
        """Index files in the order of their names, which is that of their making."""
        return self.files.get(FileKind.INDEX, ())

    @property
    def stray_log_directories(self) -> tuple[str, ...]:
        """Directories among the files of the log, where brokers make none."""
        named = self.settings.log_directories
        above = ((path, path.rpartition("/")[0]) for path in self.unknown_directories)
        return tuple(
            path
            for path, parent in above
            if (parent in named if named else parent.startswith("commitlog") and "/" not in parent)
        )

    @cached_property
    def commitlog_file_size(self) -> int:
        """Bytes of a full commitlog file; 0 where there is none to judge by."""
        return self.log_file_size.bytes

    @cached_property
    def log_file_size(self) -> LogFileSize:
        """Bytes of a full commitlog file, and whether anything shows them."""
        if self.settings.commitlog_file_size:
            return LogFileSize(self.settings.commitlog_file_size, is_shown=True, is_proven=True)
        log = self.commitlog or self.loadable_log
        inferred = infer_log_file_size(log, others_are_default=self.has_default_derived_sizes)
        if self.settings.defaults_hold and log and not inferred.is_proven:
            return LogFileSize(DEFAULT_LOG_FILE_SIZE, is_shown=True, is_proven=True)
        is_lone = bool(log) and log[0].start == log[-1].start
        if is_lone and not inferred.is_proven and inferred.bytes != DEFAULT_LOG_FILE_SIZE:
            last = log[-1]
            reach = record_end_across(self.view, self.files.get(FileKind.CONSUMEQUEUE, ()), last.entry, last.start)
            if reach is not None:
                return cut_log_file_size(reach - log[0].start, self.has_default_derived_sizes)
        return inferred

    @cached_property
    def has_default_derived_sizes(self) -> bool | None:
        """True if queue and index files have the broker's default sizes; None where there are none.

        One file of exactly such a length is enough: no other configuration makes one.
        """
        of_queues = {segment.size for queue in self.loadable_queues.values() for segment in queue.segments}
        of_index = {entry.size for entry in self.index_files}
        if not of_queues and not of_index:
            return None
        return DEFAULT_QUEUE_FILE_SIZE in of_queues or DEFAULT_INDEX_FILE_SIZE in of_index

    @property
    def uses_default_sizes(self) -> bool:
        """True if a size that no file shows may be assumed to be the broker's default, as all known sizes are."""
        if self.settings.defaults_hold:
            return True
        return self.commitlog_file_size in (0, DEFAULT_LOG_FILE_SIZE) and self.has_default_derived_sizes is not False

    @cached_property
    def consumequeue_file_size(self) -> int:
        return self.settings.consumequeue_file_size or _queue_file_size(self.loadable_queues, UNIT_SIZE)

    @cached_property
    def extension_file_size(self) -> int:
        return self.settings.extension_file_size or _queue_file_size(self.extensions)

    @cached_property
    def batch_file_size(self) -> int:
        return self.settings.batch_file_size or _queue_file_size(self.batch_queues, BATCH_UNIT_SIZE, rounds_up=False)

    @cached_property
    def index_slot_count(self) -> int | None:
        """Hash slots of the index files; None where no file tells."""
        if self.settings.index_slot_count:
            return self.settings.index_slot_count
        from rmqtool.store.index_slots import infer_slot_count  # late: a store without an index needs no construct

        return infer_slot_count(self.view, self.index_files) if self.index_files else None

    @cached_property
    def index_entry_count(self) -> int | None:
        """Entries for which an index file has room (`maxIndexNum`); None where nothing tells."""
        if self.settings.index_entry_count or self.index_slot_count is None:
            return self.settings.index_entry_count
        from rmqtool.store.index_slots import infer_entry_count

        return infer_entry_count(self.index_files, self.index_slot_count)

    @property
    def queue_kind(self) -> str:
        """Where the consume queues are kept, by the broker's settings or else by the files: file, rocksdb, or mixed."""
        has_database = bool(self.files.get(FileKind.CONSUMEQUEUE_ROCKSDB))
        by_files = ("mixed" if self.queues else "rocksdb") if has_database else "file"
        return self.settings.queue_kind or by_files

    @property
    def are_queues_known(self) -> bool:
        """True if all queues can be read: those in files, or those of the only database."""
        return self.queue_database is None or self.queue_database.failure is None

    @cached_property
    def queue_database(self) -> QueueDatabase | None:
        """The consume queues in RocksDB, read when they are first asked for; None where there are (also) others."""
        return self._read_queue_database() if self.queue_kind == "rocksdb" else None

    @cached_property
    def second_database(self) -> QueueDatabase | None:
        """The consume queues in RocksDB of a store that has them in files too; None where there are only others."""
        return self._read_queue_database() if self.queue_kind == "mixed" else None

    def _read_queue_database(self) -> QueueDatabase:
        from rmqtool.store.databases.queue_database import read_queue_database

        return read_queue_database(self.view, self.files.get(FileKind.CONSUMEQUEUE_ROCKSDB, ()))

    @cached_property
    def is_log_listed(self) -> bool:
        """True if the log's directories can be listed; else it may have files that are not seen."""
        for directory in self.settings.commitlog_directories or ("commitlog",):
            try:
                self.view.list(directory)
            except UnreadableError:
                return False
        return True

    @cached_property
    def unread_places(self) -> tuple[UnreadPlace, ...]:
        """The problems, and paths that have the name of a file of log, queues or index but are not files."""
        strays = (self.files.get(kind, ()) for kind in _STRAY_KINDS)
        nodes = [entry for entries in strays for entry in entries if not entry.is_file]
        nodes += [Entry(path, EntryKind.DIRECTORY) for path in self.directories]
        of_streams = (node.not_a_file for node in nodes if kind_of(node.path) in _STREAM_KINDS)
        return (*self.problems, *(place for place in of_streams if place is not None))

    @property
    def has_abort(self) -> bool:
        """True if `abort` exists in any form, so that a broker takes the last stop for a crash."""
        is_node = any(node.path == "abort" and node.kind not in _NOT_THERE for node in self.nodes)
        return is_node or bool(self.files.get(FileKind.ABORT))

    @cached_property
    def owner_ids(self) -> frozenset[int]:
        """User ids that own the commitlog files (or whatever there is)."""
        entries = self.files.get(FileKind.COMMITLOG) or [entry for entries in self.files.values() for entry in entries]
        return frozenset(entry.owner_id for entry in entries)

    def segment_at(self, physical_offset: int) -> Segment | None:
        """The file of the log that has a byte; None where none has it."""
        return next((segment for segment in self.commitlog if segment.start <= physical_offset < segment.end), None)

    def first(self, kind: FileKind) -> Entry | None:
        """The one file of a kind of which there is at most one."""
        return next(iter(self.files.get(kind, ())), None)


def survey(view: StoreView, settings: Settings | None = None, known: Store | None = None) -> Store:
    """List every file of a store with its kind.

    Args:
        known: an earlier look at the same store; what is as it was then is held once.

    Raises:
        NotAStoreError: nothing in it was written by a RocketMQ broker.
        UnreadableError: the directory itself may not be read.
    """
    settings = settings or Settings()
    named = tuple(directory.rstrip("/") or "/" for directory in settings.commitlog_directories)
    by_name_or_content = (
        directory
        for directory in named
        if kind_of(f"{directory}/{segment_name(0)}") is FileKind.DLEDGER or _begins_with_entry(view, directory)
    )
    dledger = tuple(dict.fromkeys((*settings.dledger_directories, *by_name_or_content)))
    if settings.uses_dledger:  # such a broker needs no directory of a plain log
        named = tuple(path for path in named if path in dledger or view.stat(path) is not None)
    settings = replace(settings, commitlog_directories=named, dledger_directories=dledger)
    known_files = {} if known is None else known.files
    walked = list_files(view, chain.from_iterable(known_files.values()))
    entries_by_kind: dict[FileKind, list[Entry]] = defaultdict(list)
    for entry in walked.entries:
        kind = kind_of(entry.path) if entry.kind is EntryKind.FILE else stray_kind_of(entry.path)
        entries_by_kind[kind].append(entry)
    problems = walked.problems
    if settings.commitlog_directories:
        directories = move_log(view, settings.log_directories, entries_by_kind, problems, frozenset(dledger))
        walked.directories = sorted({*walked.directories, *directories})
        walked.unknown_directories += [path for path in directories if not is_broker_directory(normpath(path))]
    set_twins_aside(entries_by_kind)
    files = {kind: tuple(entries) for kind, entries in entries_by_kind.items() if entries}
    files = {kind: known_files[kind] if known_files.get(kind) == files[kind] else files[kind] for kind in files}
    if not (EVIDENCE & files.keys() or STORE_DIRECTORIES & set(walked.directories)):
        raise NotAStoreError(f"{view.label}: {what_is_no_store(view)}")
    unknown = tuple(
        path
        for path in sorted({*walked.unknown_directories})
        if not any(f"{directory}/".startswith(f"{normpath(path)}/") for directory in settings.log_directories)
    )
    return Store(view, settings, files, tuple(walked.directories), unknown, tuple(problems), tuple(walked.nodes), known)


def with_settings(settings: Settings, **changes: object) -> Settings:
    """Settings with those changes that are not None; a person's value overrides a file's."""
    given = {name: value for name, value in changes.items() if value not in (None, ())}
    return replace(settings, **given)  # type: ignore[arg-type]


def _is_numbered(entry: Entry) -> bool:
    is_number = entry.name.isdigit() and is_java_long(entry.name)
    return entry.is_file and is_number and int(entry.name) <= SEGMENT_START_MAX


def _segments(entries: tuple[Entry, ...], of_dledger: tuple[Entry, ...] = ()) -> tuple[Segment, ...]:
    paths = {entry.path for entry in of_dledger}
    segments = (Segment(entry, int(entry.name), entry.path in paths) for entry in entries)
    return tuple(sorted(segments, key=attrgetter("start", "path")))


def _queues(entries: tuple[Entry, ...]) -> dict[QueueName, QueueFiles]:
    grouped: dict[QueueName, tuple[Entry, ...]] = {}
    for directory, files in groupby(entries, lambda entry: entry.path.rpartition("/")[0]):
        _, topic, queue_id = directory.split("/")
        key = intern(topic), int(queue_id)
        grouped[key] = (*grouped.get(key, ()), *files)
    return {key: QueueFiles(*key, _segments(grouped.pop(key))) for key in sorted(grouped)}


def _queue_file_size(queues: dict[QueueName, QueueFiles], unit_size: int = 1, *, rounds_up: bool = True) -> int:
    """One size holds for all queues, and their names are multiples of it too: they are judged together."""
    segments = [segment for queue in queues.values() for segment in queue.segments]
    return infer_file_size(segments, unit_size, rounds_up=rounds_up)


def _begins_with_entry(view: StoreView, directory: str) -> bool:
    """True if the second number of the file shows an entry (as in `DLedgerCommitLog#checkMessageAndReturnSize`)."""
    try:
        first = next((entry for entry in view.list(directory) if entry.is_file and is_segment_name(entry.name)), None)
        if first is None:
            return False
        with closing(view.open(first.path)) as source:
            head = read_range(source, 0, dledger.END_SIZE_MIN)
    except UnreadableError:
        return False
    kind = int.from_bytes(head[:4], "big", signed=True)
    return kind in (*dledger.KINDS, dledger.END_OF_FILE) and head[4:] not in MAGIC_BYTES.values()


def move_log(
    view: StoreView,
    log_directories: frozenset[str],
    entries_by_kind: dict[FileKind, list[Entry]],
    problems: list[UnreadPlace],
    of_dledger: frozenset[str] = frozenset(),
) -> list[str]:
    """Take the commitlog from the directories that were named; files of another `commitlog` become unknown ones.

    The directories that lie among its files.

    Args:
        of_dledger: those of the directories that hold the data of DLedger.
    """
    directories: list[str] = []
    log_kinds = (FileKind.COMMITLOG, FileKind.STRAY_COMMITLOG)
    for kind in log_kinds:
        entries_by_kind[FileKind.UNKNOWN] += entries_by_kind.pop(kind, [])
    for directory in sorted(log_directories):
        try:
            if view.stat(directory) is None:
                problems.append(UnreadPlace(directory, "no such directory"))
            listed = view.list(directory)
        except UnreadableError as error:
            problems.append(UnreadPlace.of_error(directory, error))
            continue
        directories += [entry.path for entry in listed if entry.is_directory]
        for entry in listed:
            if entry.is_directory:
                continue
            is_segment = entry.is_file and is_segment_name(entry.name)
            is_own = kind_of(f"commitlog/{entry.name}") is FileKind.RMQTOOL
            kind = FileKind.DLEDGER if directory in of_dledger else log_kinds[0 if is_segment else 1]
            entries_by_kind[FileKind.RMQTOOL if is_own else kind].append(entry)
    for kind, entries in entries_by_kind.items():
        if kind not in log_kinds:
            others = log_directories - of_dledger if kind is FileKind.DLEDGER else log_directories
            entries_by_kind[kind] = [
                entry
                for entry in dict.fromkeys(entries)
                if kind is FileKind.RMQTOOL or entry.path.rpartition("/")[0] not in others
            ]
    return directories


def set_twins_aside(entries_by_kind: dict[FileKind, list[Entry]]) -> None:
    """Of several files of one queue whose names mean one offset, keep the one that has the name a broker gives.

    The others (`Long#parseLong` skips zeros in front) count as files that are none of the queue.
    """
    for kind in (FileKind.CONSUMEQUEUE, FileKind.CONSUMEQUEUE_EXT, FileKind.BATCH_CONSUMEQUEUE):
        best: dict[tuple[str, int], Entry] = {}
        for entry in sorted(entries_by_kind.get(kind, ()), key=lambda entry: (len(entry.name), entry.path)):
            known = best.setdefault((entry.path.rpartition("/")[0], int(entry.name)), entry)
            if known is not entry:
                entries_by_kind[FileKind.STRAY_QUEUE].append(entry)
        if len(best) < len(entries_by_kind.get(kind, ())):
            kept = {entry.path for entry in best.values()}
            entries_by_kind[kind] = [entry for entry in entries_by_kind[kind] if entry.path in kept]


# Tells whether a log file was cut: a queue unit, or a record of its own, reaches over the file's end.
# A broker never writes a record across the end of a log file, so the file was longer when that record was written. A
# unit is not believed where the log has a record at its place that ends inside the file, or where the next unit of its
# queue leads into what it names: then the unit's size is damaged.

_UNIT: Final = struct.Struct(">qiq")
_FRAME: Final = struct.Struct(">ii")
_WALKED_MAX: Final = 64 << 10
_BLOCK: Final = _UNIT.size << 15


def record_end_across(view: StoreView, queue_files: Iterable[Entry], last: Entry, begin: int) -> int | None:
    """The highest physical offset to which units or the file's records reach, if one of them crosses the log's end.

    Args:
        queue_files: files of plain queues, each of whose units stand in the order of the log.
        last: the last file of the log, which begins at the physical offset `begin`.
    """
    end = begin + last.size
    highest = begin + _end_of_records(view, last)
    crosses = highest > end

    def ends_inside(physical_offset: int) -> bool:
        """True if the file has a record here that ends inside it by its own size."""
        if physical_offset < begin:
            return False
        with closing(view.open(last.path)) as source:
            frame = read_range(source, physical_offset - begin, _FRAME.size)
        if len(frame) < _FRAME.size:
            return False
        size, magic = _FRAME.unpack(frame)
        return magic in MESSAGE_MAGICS and _FRAME.size < size <= end - physical_offset

    for entry in queue_files:
        with suppress(UnreadableError), closing(view.open(entry.path)) as source:
            crosses_here, reach = _look(source, end, ends_inside)
            crosses, highest = crosses or crosses_here, max(highest, reach)
    return highest if crosses else None


def _end_of_records(view: StoreView, last: Entry) -> int:
    """End of the file's last record by its own size; 0 for a file that takes long to walk through."""
    position = 0
    if last.size >= _WALKED_MAX:
        return position
    with suppress(UnreadableError), closing(view.open(last.path)) as source:
        raw = read_range(source, 0, last.size)
        while position + _FRAME.size <= len(raw):
            size, magic = _FRAME.unpack_from(raw, position)
            if magic not in MESSAGE_MAGICS or size <= _FRAME.size:
                break
            position += size
    return position


def _look(source: ByteSource, end: int, ends_inside: Callable[[int], bool]) -> tuple[bool, int]:
    """True if a unit crosses the end, and how far the units reach; read backwards, down to the first one below it."""
    crosses, highest, following = False, 0, JAVA_LONG_MAX
    for low, high in reversed(list(source.extents(0, source.size))):
        stop = -(-high // _UNIT.size) * _UNIT.size
        while stop > low:
            start = max(low // _UNIT.size * _UNIT.size, stop - _BLOCK)
            raw = read_range(source, start, stop - start)
            below = False
            units = list(_UNIT.iter_unpack(raw[: len(raw) // _UNIT.size * _UNIT.size]))
            for physical_offset, size, _ in reversed(units):
                if physical_offset >= 0 and 0 < size < (1 << 31) - 1:
                    crosses_here = physical_offset < end < physical_offset + size
                    is_overlapped = physical_offset < following < physical_offset + size
                    following = physical_offset
                    if crosses_here and (is_overlapped or ends_inside(physical_offset)):
                        continue
                    highest = max(highest, physical_offset + size)
                    crosses |= crosses_here
                    below |= physical_offset + size <= end
            if below:
                return crosses, highest
            stop = start
    return crosses, highest


# File sizes that nothing in a store proves: what is assumed, as sentences, and where an assumption will not do.

SIZE_UNKNOWN: Final = (
    "nothing shows the size of a full file, on which it depends whether a broker starts; give it with --log-file-size "
    "BYTES or --broker-conf FILE"
)
"""Why the log of a store is not judged to its end."""


def size_assumptions(store: Store) -> tuple[str, ...]:
    """File sizes that are taken for the broker's, though nothing in the store proves them, as sentences."""
    if not store.loadable_log:
        return ()
    size, assumptions = store.log_file_size, []
    if not size.is_shown:
        is_lone = len({segment.start for segment in store.loadable_log}) == 1
        assumptions.append(
            f"the {'only' if is_lone else 'first'} commit log file has {store.loadable_log[0].size} bytes, and nothing "
            f"shows whether that is the size of a full file, which is taken to have {size.bytes}; "
            "pass --log-file-size BYTES or --broker-conf FILE for another size"
        )
    elif not size.is_proven and size.bytes != DEFAULT_LOG_FILE_SIZE:
        assumptions.append(
            f"only the length of the only commit log file shows the file size, {size.bytes} bytes: a broker that "
            f"is configured "
            f"for another one, such as the default {DEFAULT_LOG_FILE_SIZE}, does not start, or does not read the file"
        )
    has_no_size = store.queue_database is None and not store.loadable_queues
    if has_no_size and not store.uses_default_sizes and not store.settings.consumequeue_file_size:
        assumptions.append(
            f"no file shows the size of a queue file: the default {DEFAULT_QUEUE_FILE_SIZE} is assumed; "
            "pass --queue-file-size BYTES or --broker-conf FILE for another size"
        )
    return tuple(assumptions)


def is_log_file_size_known(store: Store) -> bool:
    """True if the files show the size of a full one, or that the only one is shorter than that."""
    return not store.loadable_log or store.log_file_size.is_shown or store.log_file_size.is_cut


def demand_log_file_size(store: Store, options: str) -> None:
    """Refuse a forecast for a lone log file whose length is not a likely size.

    Args:
        options: those that give the size.

    Raises:
        UnknownSizeError: nothing shows the size.
    """
    if not is_log_file_size_known(store):
        segment = store.loadable_log[0]
        raise UnknownSizeError(
            f"{segment.path}: {segment.size} bytes, and nothing shows whether that is the size of a full file, so "
            f"whether a broker would start is not known; give the size with {options}",
            "commitlog_file_size",
            store.commitlog_file_size,
        )

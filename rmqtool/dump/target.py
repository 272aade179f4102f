"""Target of `dump PATH`: a store, one of its directories, or a file, known by place and name, else by content."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from rmqtool.errors import NotAStoreError, UnreadableError, UnsupportedError
from rmqtool.formats.commitlog import MAGIC_BYTES
from rmqtool.store.config.broker_conf import read_broker_conf
from rmqtool.store.directory import Segment, Store
from rmqtool.store.dledger_files import reads_dledger
from rmqtool.store.file_kinds import FileKind, is_broker_directory, is_segment_name, kind_of
from rmqtool.store.location import StoreLocation, survey_store
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.source import FileSource, read_range, reason
from rmqtool.store.view import DirectoryView, Entry, EntryKind, StoreView, open_directory


class DumpKind(StrEnum):
    """Kinds of files, by the broker's names of the places."""

    COMMITLOG = "commitlog"
    CONSUMEQUEUE = "consumequeue"
    EXTENSION = "consumequeue_ext"
    BATCH = "batchconsumequeue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    ABORT = "abort"
    CONFIG = "config"
    TIMER_WHEEL = "timerwheel"
    TIMER_LOG = "timerlog"
    TIMER_CHECK = "timercheck"
    DLEDGER = "dledger"
    ROCKSDB = "rocksdbstore"
    TIERED = "tiered"
    PENDING = "pending"
    TRANSACTIONS = "transactions"
    POP = "pop"


KINDS: Final = {
    FileKind.COMMITLOG: DumpKind.COMMITLOG,
    FileKind.CONSUMEQUEUE: DumpKind.CONSUMEQUEUE,
    FileKind.CONSUMEQUEUE_ROCKSDB: DumpKind.CONSUMEQUEUE,
    FileKind.CONSUMEQUEUE_EXT: DumpKind.EXTENSION,
    FileKind.BATCH_CONSUMEQUEUE: DumpKind.BATCH,
    FileKind.INDEX: DumpKind.INDEX,
    FileKind.CHECKPOINT: DumpKind.CHECKPOINT,
    FileKind.ABORT: DumpKind.ABORT,
    FileKind.CONFIG: DumpKind.CONFIG,
    FileKind.CONFIG_ROCKSDB: DumpKind.CONFIG,
    FileKind.COMPACTION_LOG: DumpKind.COMMITLOG,
    FileKind.COMPACTION_QUEUE: DumpKind.BATCH,
    FileKind.COMPACTION_CHECKPOINT: DumpKind.CONFIG,
    FileKind.DLEDGER: DumpKind.DLEDGER,
    FileKind.ROCKSDB: DumpKind.ROCKSDB,
    FileKind.TIERED: DumpKind.TIERED,
    FileKind.TIMER_WHEEL: DumpKind.TIMER_WHEEL,
    FileKind.TIMER_LOG: DumpKind.TIMER_LOG,
    FileKind.TIMER_CHECK: DumpKind.TIMER_CHECK,
}
LISTINGS: Final = frozenset({DumpKind.PENDING, DumpKind.TRANSACTIONS, DumpKind.POP})
"""Listings that are made of several kinds of files of a store."""
_STRAYS: Final = frozenset(
    {FileKind.UNKNOWN, FileKind.STRAY_COMMITLOG, FileKind.STRAY_QUEUE, FileKind.STRAY_INDEX, FileKind.RMQTOOL}
)
_DEPTH: Final = 5
"""Names in the longest path of a store's file (`compaction/compactionLog/TOPIC/QUEUE/FILE`)."""
_COMPACTED: Final = (FileKind.COMPACTION_LOG, FileKind.COMPACTION_QUEUE)
_DATABASES: Final = {
    FileKind.CONSUMEQUEUE_ROCKSDB: "the queues in it",
    FileKind.CONFIG_ROCKSDB: "the configuration in it",
    FileKind.ROCKSDB: "index, timers and transactions",
}
_SNIFF_BYTES: Final = 8192
_IN_STORE: Final = ("commitlog", "consumequeue")
"""Directories by which a store is told."""


@dataclass(frozen=True)
class Target:
    """Files of one kind, in order, and the store if all of it is dumped; a commitlog file has `file_size` bytes, if
    known. Sentences name places that could not be looked at; in the `unread` ones files of this kind would be.
    """

    kind: DumpKind
    view: StoreView
    entries: tuple[Entry, ...]
    file_size: int = 0
    index_slot_count: int | None = None
    problems: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    store: Store | None = None

    @property
    def label(self) -> str:
        return self.view.label

    @property
    def is_chain(self) -> bool:
        """True if each file continues where the one before ended; compacted ones have gaps, and end anywhere."""
        return not any(kind_of(entry.path) in _COMPACTED for entry in self.entries[:1])


@dataclass(frozen=True)
class TargetOptions:
    """Options of the command line about the target."""

    kind: DumpKind | None = None
    commitlog: list[Path] | None = None
    index_slots: int | None = None
    broker_conf: Path | None = None


def find_target(place: StoreLocation, options: TargetOptions) -> Target:
    """Target at a path; NotAStoreError if a broker has nothing there, UnreadableError, or UnsupportedError if not
    decoded.
    """
    path = place.path
    if path is None:
        return _elsewhere(place, options)
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise NotAStoreError(f"{path}: no such file or directory") from error
    except OSError as error:
        raise UnreadableError(f"{path}: {reason(error)}") from error
    if not is_directory:
        root_and_name = place_in_store(path, directory=False)
        root, name = root_and_name if root_and_name is not None else (path.parent, path.name)
        FileSource.open(path).close()  # no FIFO, nothing that may not be read
        return _entry(DirectoryView(root), name, str(path), options)
    if not options.commitlog:
        part = place_in_store(path, directory=True)
        if part is not None:
            root, prefix = part
            view = open_directory(root)
            open_directory(path)  # a directory that may not be read must not look empty
            return _part_of_store(view, prefix, str(root / prefix), options)
    return _store(place, options)


def _elsewhere(place: StoreLocation, options: TargetOptions) -> Target:
    """Target of a URL: a file or directory with a broker's name, or a store."""
    from rmqtool.store.remote import connect, open_remote

    assert place.url is not None
    here = connect(place.url)
    kind = here.kind()
    if kind is None:
        raise NotAStoreError(f"{place}: no such file or directory")
    counts = range(1, min(_DEPTH, here.depth()) + 1)
    names = [here.split(count) for count in (reversed(counts) if kind is EntryKind.DIRECTORY else counts)]
    if kind is not EntryKind.DIRECTORY:
        root, name = next(
            (root_and_name for root_and_name in names if kind_of(root_and_name[1]) not in _STRAYS), names[0]
        )
        return _entry(open_remote(root), name, str(place), options)
    part = next((root_and_name for root_and_name in names if is_broker_directory(root_and_name[1])), None)
    if part is not None and not options.commitlog:
        view = open_remote(here)
        if not any(view.stat(name) is not None for name in _IN_STORE):
            return _part_of_store(open_remote(part[0]), part[1], str(place), options)
    return _store(place, options)


def _store(place: StoreLocation, options: TargetOptions) -> Target:
    conf = read_broker_conf(options.broker_conf) if options.broker_conf is not None else None
    try:
        store = survey_store(place, options.commitlog, options.index_slots, conf)
    except NotAStoreError:
        loose = _loose_files(place.view(), options)
        if loose is None:
            raise
        return loose
    kind = options.kind or DumpKind.COMMITLOG
    if kind is DumpKind.COMMITLOG and reads_dledger(store):
        raise _unsupported(str(place), FileKind.DLEDGER)
    problems = tuple(map(str, store.unread_places))
    if kind in LISTINGS:
        entries = tuple(segment.entry for segment in store.commitlog)
        return Target(kind, store.view, entries, problems=problems, unread=problems, store=store)
    # What compactions keep are copies of messages: only who names their directory is shown them.
    entries = tuple(
        entry
        for file_kind, entries in store.files.items()
        if KINDS.get(file_kind) is kind and file_kind not in _COMPACTED
        for entry in entries
    )
    if kind is DumpKind.COMMITLOG:
        entries = tuple(segment.entry for segment in store.commitlog)
    if not entries and kind is DumpKind.INDEX and FileKind.ROCKSDB in store.files:
        raise UnsupportedError(f"{place}: there are no index files; --type rocksdbstore shows an index in RocksDB")
    slots = store.index_slot_count if kind is DumpKind.INDEX else None
    unread = tuple(str(place) for place in store.unread_places if _concerns(place.path, kind, store))
    return Target(kind, store.view, entries, store.commitlog_file_size, slots, problems, unread, store)


def _concerns(place: str, kind: DumpKind, store: Store) -> bool:
    """True if a broker keeps files of a kind in a directory."""
    if KINDS.get(kind_of(place)) is kind:
        return True
    if kind is DumpKind.COMMITLOG and place in store.settings.commitlog_directories:
        return True
    top = place.partition("/")[0]
    if kind is DumpKind.COMMITLOG:
        return is_broker_directory(place) and top.startswith(kind)
    return is_broker_directory(place) and (top == kind or KINDS.get(kind_of(f"{top}/CURRENT")) is kind)


def _unsupported(label: str, kind: FileKind) -> UnsupportedError:
    if kind is FileKind.DLEDGER:
        return UnsupportedError(f"{label}: the log, or its end, belongs to DLedger; --type dledger shows its entries")
    if kind is FileKind.POP_ROCKSDB:
        return UnsupportedError(f"{label}: what pop consumers hold; `rmqtool dump STORE --pop` shows it")
    if kind in _DATABASES:
        return UnsupportedError(f"{label}: a part of a RocksDB database; pass its directory to dump {_DATABASES[kind]}")
    if kind is FileKind.LOCK:
        return UnsupportedError(f"{label}: the broker's lock file, which is empty; `rmqtool info` shows the lock")
    return UnsupportedError(f"{label}: {kind.value}: rmqtool recognizes this file but does not decode it")


def _part_of_store(view: StoreView, prefix: str, label: str, options: TargetOptions) -> Target:
    """A directory that has a place in a store, even if the rest of the store is missing."""
    problems: list[str] = []
    by_kind: dict[FileKind, list[Entry]] = {}
    for entry in _files_below(view, prefix, problems):
        by_kind.setdefault(kind_of(entry.path), []).append(entry)
    known: dict[DumpKind, list[Entry]] = {}
    for file_kind, entries in by_kind.items():
        if file_kind in KINDS:
            known.setdefault(KINDS[file_kind], []).extend(entries)
    if options.kind is not None and options.kind not in known:
        known = {options.kind: [entry for entries in by_kind.values() for entry in entries]}
    kind = options.kind or min(known, key=list(DumpKind).index, default=None)
    undecoded = next((file_kind for file_kind in by_kind if file_kind not in KINDS and file_kind not in _STRAYS), None)
    if kind is None and undecoded is not None:
        raise _unsupported(label, undecoded)
    if kind is None or not known[kind]:
        if problems:
            raise UnreadableError(problems[0])
        raise NotAStoreError(f"{label}: no broker file in this directory")
    return _target(kind, view, known[kind], options.index_slots, tuple(problems))


def _loose_files(view: StoreView, options: TargetOptions) -> Target | None:
    """A directory anywhere with a broker's segments in it; None if there are none."""
    files = [entry for entry in view.list("") if entry.is_file]
    if options.kind is None:
        files = [entry for entry in files if is_segment_name(entry.name)]
    if not files:
        return None
    kind = options.kind or next((content_kind for entry in files if (content_kind := _by_content(view, entry))), None)
    return _target(kind, view, files, options.index_slots) if kind is not None else None


def _entry(view: StoreView, name: str, label: str, options: TargetOptions) -> Target:
    """A file, known by its place if it has one, else by its content."""
    entry = view.stat(name)
    if entry is None:
        raise NotAStoreError(f"{label}: no such file")
    place = kind_of(entry.path)
    if place in _DATABASES and options.kind in (None, KINDS[place]):
        raise _unsupported(label, place)
    if options.kind is not None:
        return _target(options.kind, view, [entry], options.index_slots)
    if place in KINDS:
        return _target(KINDS[place], view, [entry], options.index_slots)
    if place not in _STRAYS:
        raise _unsupported(label, place)
    kind = _by_content(view, entry)
    if kind is None:
        what = "an empty file" if entry.size == 0 else "neither name nor content shows what it is"
        raise NotAStoreError(f"{label}: {what}; pass --type to name its kind")
    return _target(kind, view, [entry], options.index_slots)


def _target(
    kind: DumpKind, view: StoreView, entries: list[Entry], index_slots: int | None, problems: tuple[str, ...] = ()
) -> Target:
    slots = index_slots
    if kind is DumpKind.INDEX and slots is None:
        from rmqtool.store.index_slots import infer_slot_count

        slots = infer_slot_count(view, entries)
    named = [entry for entry in entries if is_segment_name(entry.name)]
    size = infer_file_size([Segment(entry, int(entry.name)) for entry in named])
    ordered = sorted(entries, key=lambda entry: (entry.path.rpartition("/")[0], len(entry.name), entry.name))
    return Target(kind, view, tuple(ordered), size, slots, problems, problems)


def place_in_store(path: Path, *, directory: bool) -> tuple[Path, str] | None:
    """The store root that a path would belong to, and the path in it; None if nothing in it is a broker's name."""
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - links stay: their names are what is looked at
    counts = range(1, min(_DEPTH, len(whole.parts) - 1) + 1)
    for count in reversed(counts) if directory else counts:
        name = "/".join(whole.parts[-count:])
        if is_broker_directory(name) if directory else kind_of(name) not in _STRAYS:
            root = Path(*whole.parts[:-count])
            # A directory with a broker's name may be a whole store that happens to be called so.
            return None if directory and any((whole / inside).is_dir() for inside in _IN_STORE) else (root, name)
    return None


def _files_below(view: StoreView, prefix: str, problems: list[str]) -> list[Entry]:
    """Files of a broker in a directory and below it, without circular links."""
    files: list[Entry] = []
    pending = [prefix]
    while pending:
        try:
            listed = view.list(pending.pop())
        except UnreadableError as error:
            problems.append(str(error))
            continue
        files += [entry for entry in listed if entry.is_file]
        pending += [entry.path for entry in listed if entry.is_directory and is_broker_directory(entry.path)]
    return files


def _by_content(view: StoreView, entry: Entry) -> DumpKind | None:
    """Kind that a file's first bytes show; None if they show nothing."""
    from rmqtool.formats.checkpoint import FIELDS_SIZE, FILE_SIZE
    from rmqtool.store.index_slots import slot_count_of

    with closing(view.open(entry.path)) as source:
        head = read_range(source, 0, _SNIFF_BYTES)
        if head[4:8] in MAGIC_BYTES.values():
            return DumpKind.COMMITLOG
        if head.lstrip()[:1] == b"{":
            return DumpKind.CONFIG
        if not any(head):
            return None
        if entry.size == FILE_SIZE and not any(head[FIELDS_SIZE:]):
            return DumpKind.CHECKPOINT
        if _looks_like_units(head):
            return DumpKind.CONSUMEQUEUE
        return DumpKind.INDEX if slot_count_of(source) is not None else None


def _looks_like_units(head: bytes) -> bool:
    """True if the first units point to rising offsets of a log, at records of a possible size."""
    from struct import iter_unpack

    from rmqtool.formats.commitlog import RECORD_SIZE_MIN
    from rmqtool.formats.consumequeue import FILLER_UNIT, UNIT, UNIT_SIZE

    last = -1
    for values in iter_unpack(UNIT.struct_code, head[: len(head) // UNIT_SIZE * UNIT_SIZE]):
        if values == FILLER_UNIT:
            continue
        physical_offset, record_size, _ = values
        if record_size == 0 and physical_offset == 0:
            break
        if physical_offset <= last or record_size < RECORD_SIZE_MIN:
            return False
        last = physical_offset
    return last >= 0

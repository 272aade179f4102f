"""A store as its directory shows it: every file found and told apart, file sizes known, nothing decoded."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from rmqtool.errors import NotAStoreError, UnreadableError
from rmqtool.store.kinds import FileKind, is_segment_name, kind_of
from rmqtool.store.sizes import infer_file_size
from rmqtool.store.view import Entry, EntryKind, StoreView

DEPTH_MAX: Final = 8
"""Directories nested deeper than any broker makes are not followed: a link in a circle must end."""
EVIDENCE: Final = frozenset(
    {
        FileKind.COMMITLOG,
        FileKind.CONSUMEQUEUE,
        FileKind.BATCH_CONSUMEQUEUE,
        FileKind.CONSUMEQUEUE_ROCKSDB,
        FileKind.INDEX,
        FileKind.CHECKPOINT,
        FileKind.ABORT,
        FileKind.DLEDGER,
        FileKind.TIMER_WHEEL,
    }
)
"""Kinds of which one file makes a directory a store; `lock` and `config/` are too common to tell anything."""
STORE_DIRECTORIES: Final = frozenset({"commitlog", "consumequeue"})


@dataclass(frozen=True)
class Segment:
    """One file of a stream that is cut into files of equal size and named by their first byte's place."""

    entry: Entry
    start: int

    @property
    def path(self) -> str:
        return self.entry.path

    @property
    def size(self) -> int:
        return self.entry.size

    @property
    def end(self) -> int:
        return self.start + self.entry.size


@dataclass(frozen=True)
class QueueFiles:
    """The files of one consume queue (or extension, or batch queue)."""

    topic: str
    queue_id: int
    segments: tuple[Segment, ...]

    @property
    def directory(self) -> str:
        return self.segments[0].path.rpartition("/")[0]


@dataclass(frozen=True)
class Settings:
    """What a store's files do not say about themselves; None where it is to be inferred."""

    commitlog_directories: tuple[str, ...] = ()
    commitlog_file_size: int | None = None
    consumequeue_file_size: int | None = None
    extension_file_size: int | None = None
    batch_file_size: int | None = None
    index_slot_count: int | None = None
    index_entry_count: int | None = None


@dataclass(frozen=True)
class Store:
    """A surveyed store. `problems` are the places that could not be looked at, as sentences."""

    view: StoreView
    settings: Settings
    files: dict[FileKind, tuple[Entry, ...]]
    directories: tuple[str, ...]
    problems: tuple[str, ...] = field(default=())

    @cached_property
    def commitlog(self) -> tuple[Segment, ...]:
        """Commitlog segments of all paths, by their start."""
        return _segments(self.files.get(FileKind.COMMITLOG, ()))

    @cached_property
    def queues(self) -> dict[tuple[str, int], QueueFiles]:
        """File consume queues by (topic, queue id)."""
        return _queues(self.files.get(FileKind.CONSUMEQUEUE, ()))

    @cached_property
    def extensions(self) -> dict[tuple[str, int], QueueFiles]:
        return _queues(self.files.get(FileKind.CONSUMEQUEUE_EXT, ()))

    @cached_property
    def batch_queues(self) -> dict[tuple[str, int], QueueFiles]:
        return _queues(self.files.get(FileKind.BATCH_CONSUMEQUEUE, ()))

    @cached_property
    def index_files(self) -> tuple[Entry, ...]:
        """Index files in the order of their names, which is that of their making."""
        return self.files.get(FileKind.INDEX, ())

    @cached_property
    def commitlog_file_size(self) -> int:
        """Bytes of a full commitlog file; 0 where there is none to judge by."""
        return self.settings.commitlog_file_size or infer_file_size(self.commitlog)

    @cached_property
    def consumequeue_file_size(self) -> int:
        return self.settings.consumequeue_file_size or _queue_file_size(self.queues)

    @cached_property
    def extension_file_size(self) -> int:
        return self.settings.extension_file_size or _queue_file_size(self.extensions)

    @cached_property
    def batch_file_size(self) -> int:
        return self.settings.batch_file_size or _queue_file_size(self.batch_queues)

    @property
    def queue_kind(self) -> str:
        """Where the consume queues are kept: file, rocksdb, or mixed."""
        if not self.files.get(FileKind.CONSUMEQUEUE_ROCKSDB):
            return "file"
        return "mixed" if self.queues else "rocksdb"

    @property
    def has_abort(self) -> bool:
        return bool(self.files.get(FileKind.ABORT))

    @cached_property
    def owner_ids(self) -> frozenset[int]:
        """User ids that own the commitlog files (or whatever there is)."""
        entries = self.files.get(FileKind.COMMITLOG) or tuple(entry for found in self.files.values() for entry in found)
        return frozenset(entry.owner_id for entry in entries)

    def first(self, kind: FileKind) -> Entry | None:
        """The one file of a kind of which there is at most one."""
        return next(iter(self.files.get(kind, ())), None)


def survey(view: StoreView, settings: Settings | None = None) -> Store:
    """Look at every file of a store and tell what it is.

    Raises:
        NotAStoreError: nothing in it was written by a RocketMQ broker.
        UnreadableError: the directory itself may not be read.
    """
    settings = settings or Settings()
    found: dict[FileKind, list[Entry]] = defaultdict(list)
    directories: list[str] = []
    problems: list[str] = []
    for entry in _walk(view, "", 0, directories, problems):
        found[kind_of(entry.path) if entry.is_file else _special_kind(entry)].append(entry)
    for directory in settings.commitlog_directories:
        if directory.startswith("/") or not directory.startswith("commitlog"):
            entries = _log_entries(view, directory, problems)
            found[FileKind.UNKNOWN] = [entry for entry in found[FileKind.UNKNOWN] if entry not in entries]
            for entry in entries:
                found[FileKind.COMMITLOG if is_segment_name(entry.name) else FileKind.STRAY_COMMITLOG].append(entry)
    if settings.commitlog_directories:
        wanted = {directory.rstrip("/") for directory in settings.commitlog_directories}
        found[FileKind.COMMITLOG] = [entry for entry in found[FileKind.COMMITLOG] if entry.path.rpartition("/")[0] in wanted]
    files = {kind: tuple(entries) for kind, entries in found.items() if entries}
    if not (EVIDENCE & files.keys() or STORE_DIRECTORIES & set(directories)):
        raise NotAStoreError(f"{view.label}: not a RocketMQ store (no commitlog, consumequeue, index, checkpoint or abort in it)")
    return Store(view, settings, files, tuple(directories), tuple(problems))


def with_settings(settings: Settings, **changes: object) -> Settings:
    """Settings with those of the changes that are not None; what a person says goes before what a file says."""
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def relative_to_store(directory: Path, root: Path) -> str:
    """The view's path of a directory that a person named: relative if it lies in the store, absolute elsewhere."""
    place = directory if directory.is_absolute() else Path.cwd() / directory
    try:
        return str(place.resolve().relative_to(root.resolve()))
    except ValueError:
        return str(place)


def _walk(view: StoreView, path: str, depth: int, directories: list[str], problems: list[str]) -> list[Entry]:
    entries: list[Entry] = []
    try:
        listed = view.list(path)
    except UnreadableError as error:
        if depth == 0:
            raise
        problems.append(str(error))
        return []
    for entry in listed:
        if not entry.is_directory:
            entries.append(entry)
            continue
        directories.append(entry.path)
        if depth < DEPTH_MAX:
            entries += _walk(view, entry.path, depth + 1, directories, problems)
        else:
            problems.append(f"{entry.path}: nested too deep to be a broker's")
    return entries


def _special_kind(entry: Entry) -> FileKind:
    """A FIFO, device or broken link is never one of the broker's files, but stops it where one of those is expected."""
    kind = kind_of(entry.path)
    strays = {
        FileKind.COMMITLOG: FileKind.STRAY_COMMITLOG,
        FileKind.CONSUMEQUEUE: FileKind.STRAY_QUEUE,
        FileKind.BATCH_CONSUMEQUEUE: FileKind.STRAY_QUEUE,
        FileKind.CONSUMEQUEUE_EXT: FileKind.STRAY_QUEUE,
        FileKind.INDEX: FileKind.STRAY_INDEX,
    }
    return strays.get(kind, kind if kind in strays.values() else FileKind.UNKNOWN)


def _log_entries(view: StoreView, directory: str, problems: list[str]) -> list[Entry]:
    try:
        return [entry for entry in view.list(directory) if entry.kind is EntryKind.FILE]
    except UnreadableError as error:
        problems.append(str(error))
        return []


def _segments(entries: tuple[Entry, ...]) -> tuple[Segment, ...]:
    return tuple(sorted((Segment(entry, int(entry.name)) for entry in entries), key=lambda segment: (segment.start, segment.path)))


def _queues(entries: tuple[Entry, ...]) -> dict[tuple[str, int], QueueFiles]:
    grouped: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for entry in entries:
        _, topic, queue_id, _ = entry.path.split("/")
        grouped[topic, int(queue_id)].append(entry)
    return {(topic, queue_id): QueueFiles(topic, queue_id, _segments(tuple(found))) for (topic, queue_id), found in sorted(grouped.items())}


def _queue_file_size(queues: dict[tuple[str, int], QueueFiles]) -> int:
    sizes = Counter(infer_file_size(queue.segments) for queue in queues.values())
    return sizes.most_common(1)[0][0] if sizes else 0

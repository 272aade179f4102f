"""Writes the journal of a repair: everything that the plan changes is saved before anything is changed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from rmqtool.errors import RefusedError, UnsupportedError, UsageError, WriteError
from rmqtool.repair.machine.digest import digest_of
from rmqtool.repair.machine.disk import Disk, Metadata, NewContent
from rmqtool.repair.machine.journal import Journal, Manifest, SavedFile, SavedRange, journals, record
from rmqtool.repair.machine.journal_check import JournalEntry, base_beside, outer_folder, staged_file
from rmqtool.repair.machine.plan import ABORT_NAME, Plan
from rmqtool.repair.machine.root import Root, RootPart, RootPath
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.steps import Create, Remove, Replace, Step, WriteRange
from rmqtool.repair.machine.store_paths import UNDO, StorePaths, demand_own, own_file_like, own_like, raise_fences
from rmqtool.store.file_kinds import FileKind, kind_of, stray_kind_of
from rmqtool.store.source import FilePart, reason


@dataclass(frozen=True)
class FileChange:
    """All steps of one file, and its saved parts."""

    steps: tuple[Step, ...]
    entry: JournalEntry
    adopts: bool
    """True if the new file is the planner's own, so that nothing has to be copied."""

    @property
    def is_copied(self) -> bool:
        """True if ranges are written into a copy that replaces the file, which has other names."""
        return isinstance(self.steps[0], WriteRange) and self.entry.saved.action == "replace"

    @property
    def staged(self) -> RootPath:
        """Where the new file is built."""
        if self.entry.staged is None:
            raise UnsupportedError(f"{self.entry.saved.path}: the plan has no new file for this change")
        return self.entry.staged


@dataclass(frozen=True)
class PreparedJournal:
    """A journal that is complete, and the changes it answers for, in order."""

    journal: Journal
    manifest: Manifest
    changes: tuple[FileChange, ...]


class _Folders:
    """Temporary folders for old and new files, one on each file system."""

    def __init__(self, places: StorePaths, journal: Journal) -> None:
        self._places = places
        self._journal = journal
        self._own_device = journal.folder.device()
        self.others: dict[str, RootPath] = {}
        """Folders outside the store, by their names in the journal."""

    def folder(self, file: RootPath) -> tuple[str, RootPath, bool]:
        """Name in the journal, path, and True if the file can be renamed into it."""
        device = file.parent.device()
        if self._places.undo_directory is not None:
            return self._outer(Root.open(self._places.undo_directory.resolve()), device)
        is_linked = self._places.is_linked(file)
        if self._own_device == device and not is_linked:
            return "", self._journal.folder, True
        if file.root is not self._places.top.root:
            base = Root.open(base_beside(file.root))
            if base.device == device and os.access(".", os.W_OK | os.X_OK, dir_fd=base.descriptor, effective_ids=True):
                return self._outer(base, device)
        if is_linked and file.parent.root not in [fence.root for fence in self._places.fences]:
            raise RefusedError(
                f"{file}: a link leads there, and nothing can be kept in {base_beside(file.root)} beside it; "
                f"pass --undo-dir DIR for replaced files"
            )
        return "", self._journal.folder, self._own_device == device

    def _outer(self, base: Root, device: int) -> tuple[str, RootPath, bool]:
        name = outer_folder(base.label, self._places, self._journal.number)
        folder = self.others.setdefault(name, base / str(Path(name).relative_to(base.label)))
        return name, folder, base.device == device


def changes_of(plan: Plan, places: StorePaths, folders: _Folders) -> tuple[FileChange, ...]:
    """The plan's steps by file, in the order in which they are carried out."""
    grouped: dict[str, list[Step]] = {}
    # `abort` is removed after all others, for it makes the broker recover.
    for step in sorted(plan.steps, key=lambda step: isinstance(step, Remove) and step.path == ABORT_NAME):
        grouped.setdefault(step.path, []).append(step)
    staged = Counter(part.place for part in map(_part_of_file, plan.steps) if part is not None)
    changes: list[FileChange] = []
    for number, (path, steps) in enumerate(grouped.items()):
        file, first = places.file(path), steps[0]
        adopted = _adopted(first, file, places, staged)
        folder_name, folder, is_same_device = folders.folder(file)
        has_other_names = isinstance(first, WriteRange) and is_shared(file)
        building: str | None = None
        if isinstance(first, Replace | Create) or has_other_names:
            building = adopted or ("new" if is_same_device else "beside")
        # Before anything of the file is read, for that changes the time at which it was read last.
        metadata = None if isinstance(first, Create) else Metadata.of(file)
        digest = first.before if isinstance(first, Replace | Remove) else None
        if has_other_names:
            with file.source() as source:
                digest = digest_of(source, 0, source.size, salvaging=True)
        saved = SavedFile(
            path=path,
            action="replace" if has_other_names else first.action,
            metadata=metadata,
            folder=folder_name,
            number=number,
            is_moved=is_same_device,
            staged=building,
            digest=digest,
        )
        entry = JournalEntry(saved, file, folder, staged_file(saved, file, folder, places))
        changes.append(FileChange(tuple(steps), entry, adopted is not None))
    return _with_ranges(changes)


def is_shared(file: RootPath) -> bool:
    """True if a file has several names, so that a write into it would show under the others too."""
    state = file.lstat()
    return state is not None and state.st_nlink > 1


def copied_files(steps: Iterable[Step], places: StorePaths) -> dict[str, int]:
    """Files that are written in place and have other names, and their sizes: each is replaced by a copy instead.

    Raises:
        RefusedError, WriteError: a path leads where no repair goes.
    """
    written = dict.fromkeys(step.path for step in steps if isinstance(step, WriteRange))
    return {path: Metadata.of(places.file(path)).size for path in written if is_shared(places.file(path))}


def demand_own_kinds(plan: Plan, places: StorePaths) -> None:
    """Refuse to change what no broker has where only a link of the store leads there, with RefusedError."""
    for step in plan.steps:
        file = places.file(step.path)
        if places.is_linked(file) and kind_of(step.path) in (FileKind.UNKNOWN, stray_kind_of(step.path)):
            outside = file.root.real_path
            raise RefusedError(
                f"{step.path}: not a broker file, and a symbolic link of the store points to {outside}; "
                f"if that is the commit log of the store, pass --commitlog {outside}"
            )


def write_journal(plan: Plan, session: Session, demand_fit: Callable[[], None]) -> PreparedJournal:
    """Put the fences up, and save all that the plan changes.

    Args:
        demand_fit: refuses a store that is no longer the one of the plan, or that a broker loads. Asked once the fences
            stand: from then on none begins to load it.

    Raises:
        WriteError: something cannot be written; whoever calls rolls back what the journal has.
        UnreadableError: something that is to be saved cannot be read.
        RefusedError: a link of the store leads where no journal may lead.
    """
    places, disk = session.places, session.disk
    demand_own_kinds(plan, places)
    directory_like, like = own_like(places.top), own_file_like(places.top)
    number = max((journal.number for journal in journals(places)), default=0) + 1
    journal = Journal(number, places.own_top / UNDO / str(number))
    for directory in (places.own_top, journal.folder.parent, journal.folder):
        disk.make_directory(directory, directory_like)
        disk.sync_directory(directory.parent)
    folders = _Folders(places, journal)
    for fence in places.fences:
        folders.folder(fence)  # what lies beside a linked log tells whoever undoes the repair that the link is meant
    changes = changes_of(plan, places, folders)
    _demand_room(changes)
    manifest = Manifest(
        command=plan.command,
        began_ms=time.time_ns() // 1_000_000,
        step_count=len(plan.steps),
        log_directories=places.log_directories,
        folders=tuple(folders.others),
        files=tuple(change.entry.saved for change in changes),
        made_directories=_missing_directories(places, changes),
        directory_times={**_directory_times(places, changes), "": session.root_times_ns},
        made_lock=session.lock.was_missing,
        store=places.identity,
    )
    disk.publish(journal.folder / "manifest", record(manifest), like)
    raise_fences(places, disk)
    demand_fit()
    for folder in folders.others.values():
        for directory in (folder.parent.parent, folder.parent, folder):
            demand_own(directory, places.top.root)
            disk.make_directory(directory, directory_like)
            disk.sync_directory(directory.parent)
    for folder in {journal.folder, *(change.entry.folder for change in changes)}:
        for name in ("files", "new"):
            disk.make_directory(folder / name, directory_like)
    for change in changes:
        _save(change, disk, like)
    for folder in {change.entry.folder for change in changes}:
        if (folder / "ranges").exists():
            disk.sync(folder / "ranges")
        disk.sync_directory(folder / "files")
        disk.sync_directory(folder)
    disk.publish(journal.folder / "saved", b"{}", like)
    return PreparedJournal(journal, manifest, changes)


def check_undo_directory(places: StorePaths) -> None:
    """Refuse a directory in which saved files would be strays of the store.

    Raises:
        UsageError: it is one, or there is none.
    """
    undo_directory = places.undo_directory
    if undo_directory is None:
        return
    if not undo_directory.is_dir():
        raise UsageError(f"{undo_directory}: no such directory for the undo journal")
    for inside in (places.root, *places.outer_logs):
        if undo_directory.resolve().is_relative_to(inside.resolve()):
            raise UsageError(f"{undo_directory}: inside the store; without --undo-dir the journal is kept there anyway")


def _with_ranges(changes: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """Give each overwritten range its position in the folder's file of ranges, one after the other."""
    ends: Counter[str] = Counter()
    placed: list[FileChange] = []
    for change in changes:
        ranges: list[SavedRange] = []
        metadata, folder = change.entry.saved.metadata, change.entry.saved.folder
        for step in change.steps if change.entry.saved.action == "write" else ():
            if isinstance(step, WriteRange) and metadata is not None:
                begin = min(step.file_position, metadata.size)  # what is written after the file's end replaces nothing
                length = min(step.end, metadata.size) - begin
                ranges.append(SavedRange(begin, length, ends[folder], step.before))
                ends[folder] += length
        saved = structs.replace(change.entry.saved, ranges=tuple(ranges))
        placed.append(replace(change, entry=replace(change.entry, saved=saved)))
    return tuple(placed)


def _save(change: FileChange, disk: Disk, like: Metadata) -> None:
    saved, entry = change.entry.saved, change.entry
    if saved.action == "write":
        if not entry.ranges.exists():
            disk.create(entry.ranges, 0)
            disk.give_owner(entry.ranges, like.user_id, like.group_id, like.mode)
        for part in saved.ranges:
            content = RootPart(change.entry.file, part.file_position, part.length)
            disk.write(entry.ranges, part.saved_position, content, salvaging=True)
    elif saved.metadata is not None and not saved.is_moved:
        disk.create(entry.old, saved.metadata.size)
        disk.write(entry.old, 0, RootPart(change.entry.file, 0, saved.metadata.size), salvaging=True)
        disk.give_owner(entry.old, saved.metadata.user_id, saved.metadata.group_id, saved.metadata.mode)
        disk.sync(entry.old)


def _missing_directories(places: StorePaths, changes: Iterable[FileChange]) -> tuple[str, ...]:
    missing: dict[str, None] = {}
    for change in changes:
        names = change.entry.saved.path.split("/")[:-1]
        if change.entry.saved.action == "create" and not change.entry.saved.path.startswith("/"):
            for depth in range(1, len(names) + 1):
                directory = "/".join(names[:depth])
                if not places.directory(directory).is_directory():
                    missing[directory] = None
    return tuple(missing)


def _directory_times(places: StorePaths, changes: Iterable[FileChange]) -> dict[str, tuple[int, int]]:
    """Times of every directory in which a name comes or goes, as far as it exists."""
    directories = {*places.log_directories}
    for change in changes:
        directory = change.entry.saved.path.rpartition("/")[0]
        while directory and not places.directory(directory).is_directory():
            directory = directory.rpartition("/")[0]
        directories.add(directory)
    times: dict[str, tuple[int, int]] = {}
    for directory in sorted(directories):
        metadata = Metadata.of(places.directory(directory))
        times[directory] = (metadata.atime_ns, metadata.mtime_ns)
    return times


def _demand_room(changes: Iterable[FileChange]) -> None:
    """Fail before anything is changed where the disk lacks room; holes take none."""
    needed: Counter[int] = Counter()
    shown: dict[int, RootPath] = {}
    for change in changes:
        saved, device = change.entry.saved, change.entry.file.parent.device()
        kept_on = change.entry.folder.device()
        shown.setdefault(device, change.entry.file.parent)
        shown.setdefault(kept_on, change.entry.folder)
        whole = _data_bytes(RootPart(change.entry.file, 0, saved.metadata.size)) if saved.metadata is not None else 0
        if not change.adopts:
            needed[device] += sum(_data_bytes(step.content) for step in change.steps if not isinstance(step, Remove))
        if change.is_copied:
            needed[device] += whole
        needed[kept_on] += sum(part.length for part in saved.ranges)
        if saved.action != "write" and not saved.is_moved:
            needed[kept_on] += whole
    for device, count in needed.items():
        free = _free_bytes(shown[device])
        if count > free:
            raise WriteError(f"{shown[device]}: the repair needs {count} bytes here, of which {free} are free")


def _free_bytes(directory: RootPath) -> int:
    while directory.path and not directory.is_directory():
        directory = directory.parent
    try:
        with directory.entry() as (above, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=above)
        try:
            file_system = os.statvfs(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WriteError(f"{directory}: {reason(error)}") from error
    return file_system.f_bavail * file_system.f_frsize


def _data_bytes(content: NewContent) -> int:
    with closing(content.open()) as source:
        return sum(end - start for start, end in source.extents(0, content.length))


def _part_of_file(step: Step) -> FilePart | None:
    """The file part that a step replaces a whole file with; None if the content is not from a file."""
    return step.content if isinstance(step, Replace | Create) and isinstance(step.content, FilePart) else None


def _adopted(step: Step, file: RootPath, places: StorePaths, staged: Counter[Path]) -> str | None:
    """The planner's file, by its path in the store, if one step takes all of it on its own file system; else None."""
    part = _part_of_file(step)
    path = None if part is None or part.position or staged[part.place] > 1 else places.staged_path(part.place)
    if part is None or path is None:
        return None
    built = places.top / path
    if built.device() != file.parent.device():
        return None
    with built.source() as source:
        return path if source.size == part.length else None

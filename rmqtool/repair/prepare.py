"""Writes the journal of a repair: everything that the plan changes is saved before anything is changed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtool.errors import UnsupportedError, UsageError, WriteError
from rmqtool.repair.disk import Disk, Metadata
from rmqtool.repair.fence import raise_fences
from rmqtool.repair.journal import Journal, Manifest, SavedFile, SavedRange, next_number
from rmqtool.repair.places import Places, device_of
from rmqtool.repair.plan import OWN_DIRECTORY, Plan
from rmqtool.repair.steps import Create, Remove, Replace, Step, WriteRange
from rmqtool.store.content import Content, FilePart
from rmqtool.store.source import FileSource, reason


@dataclass(frozen=True)
class Change:
    """All steps of one file, and what is saved of it."""

    steps: tuple[Step, ...]
    place: Path
    saved: SavedFile
    adopts: bool
    """Whether the new file is the planner's own, so that nothing has to be copied."""

    @property
    def staged(self) -> Path:
        """Where the new file is built."""
        if self.saved.staged is None:
            raise UnsupportedError(f"{self.saved.path}: no new file is built for this step")
        return Path(self.saved.staged)


@dataclass(frozen=True)
class Prepared:
    """A journal that is complete, and the changes it answers for, in order."""

    journal: Journal
    manifest: Manifest
    changes: tuple[Change, ...]


class _Folders:
    """Where old and new files of each file system are kept meanwhile."""

    def __init__(self, places: Places, journal: Journal, undo_directory: Path | None) -> None:
        self._places = places
        self._journal = journal
        self._undo_directory = undo_directory
        self.others: dict[Path, Path] = {}
        """Folders beside the journal's own one, by the directory they are made in."""

    def folder(self, place: Path) -> tuple[Path, bool]:
        """The folder for a file, and whether the file can be renamed into it."""
        device = device_of(place.parent)
        if self._undo_directory is not None:
            return self._other(self._undo_directory), device_of(self._undo_directory) == device
        own = self._journal.folder
        if device_of(own) == device:
            return own, True
        beside = self._beside(place, device)
        return (own, False) if beside is None else (self._other(beside), True)

    def _other(self, directory: Path) -> Path:
        name = f"{self._places.identity}-{self._journal.number}"
        return self.others.setdefault(directory, directory / OWN_DIRECTORY / "undo" / name)

    def _beside(self, place: Path, device: int) -> Path | None:
        """The directory that holds the log's (or whatever top directory lies on another disk), if it is on that disk.

        Inside of the log's own directory nothing may be kept: a broker would not load the store.
        """
        root = self._places.root
        top = root / place.relative_to(root).parts[0] if place.is_relative_to(root) else place.parent
        above = top.resolve().parent
        usable = above.stat().st_dev == device and os.access(above, os.W_OK | os.X_OK)
        return above if usable else None


def changes_of(plan: Plan, places: Places, folders: _Folders) -> tuple[Change, ...]:
    """The plan's steps by file, in the order in which they are carried out."""
    grouped: dict[str, list[Step]] = {}
    for step in plan.in_order():
        grouped.setdefault(step.path, []).append(step)
    staged = Counter(part.place for part in map(_part_of_file, plan.steps) if part is not None)
    made: list[Change] = []
    for number, (path, steps) in enumerate(grouped.items()):
        place = places.file(path)
        adopted = _adopted(steps[0], place, places, staged)
        folder, is_same_device = folders.folder(place)
        first = steps[0]
        building: Path | None = None
        if isinstance(first, Replace | Create):
            beside = place.with_name(f".rmqtool-new-{number}")
            building = adopted or (folder / "new" / str(number) if is_same_device else beside)
        saved = SavedFile(
            path=path,
            action=first.action,
            metadata=None if isinstance(first, Create) else Metadata.of(place),
            folder=str(folder),
            name=str(number),
            is_moved=is_same_device,
            staged=str(building) if building is not None else None,
            digest=first.before if isinstance(first, Replace | Remove) else None,
        )
        made.append(Change(tuple(steps), place, saved, adopted is not None))
    return _with_ranges(made)


def prepare(plan: Plan, places: Places, disk: Disk, undo_directory: Path | None) -> Prepared:
    """Save all that the plan changes, and put the fences up.

    Raises:
        WriteError: something cannot be written; whoever calls takes back what the journal has.
        UnreadableError: something that is to be saved cannot be read.
    """
    journal = begin(places, disk)
    folders = _Folders(places, journal, undo_directory)
    changes = changes_of(plan, places, folders)
    _demand_room(changes, journal)
    manifest = Manifest(
        command=plan.command,
        began_ms=time.time_ns() // 1_000_000,
        step_count=len(plan.steps),
        log_directories=places.log_directories,
        folders=tuple(str(folder.absolute()) for folder in folders.others.values()),
        files=tuple(change.saved for change in changes),
        made_directories=_missing_directories(places, changes),
        directory_times=_directory_times(places, changes),
    )
    disk.publish(journal.manifest_place, manifest.to_json(journal), places.root)
    raise_fences(places, disk)
    _make_folders(places, journal, manifest, changes, disk)
    for change in changes:
        _save(change, disk)
    for folder in {change.saved.folder for change in changes}:
        if (Path(folder) / "ranges").exists():
            disk.sync(Path(folder) / "ranges")
        disk.sync_directory(Path(folder) / "files")
        disk.sync_directory(Path(folder))
    disk.publish(journal.saved_place, b"{}", places.root)
    return Prepared(journal, manifest, changes)


def begin(places: Places, disk: Disk) -> Journal:
    """Make the folder of the next journal.

    Raises:
        WriteError: it cannot be made.
    """
    number = next_number(places)
    journal = Journal(number, places.undo / str(number))
    for directory in (places.own, places.undo, journal.folder):
        disk.make_directory(directory, places.root)
        disk.sync_directory(directory.parent)
    return journal


def check_undo_directory(places: Places, undo_directory: Path | None) -> None:
    """Refuse a directory in which saved files would be strays of the store.

    Raises:
        UsageError: it is one, or there is none.
    """
    if undo_directory is None:
        return
    if not undo_directory.is_dir():
        raise UsageError(f"{undo_directory}: no such directory for the undo journal")
    for inside in (places.root, *places.outer_logs):
        if undo_directory.resolve().is_relative_to(inside.resolve()):
            raise UsageError(f"{undo_directory}: lies in the store; without --undo-dir the journal is kept there")


def _with_ranges(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Give each overwritten range its place in the folder's file of ranges, one behind the other."""
    ends: Counter[str] = Counter()
    made: list[Change] = []
    for change in changes:
        ranges: list[SavedRange] = []
        metadata = change.saved.metadata
        for step in change.steps:
            if isinstance(step, WriteRange) and metadata is not None:
                length = max(0, min(step.end, metadata.size) - step.file_position)
                at = ends[change.saved.folder]
                ranges.append(SavedRange(step.file_position, length, at, step.before))
                ends[change.saved.folder] += length
        made.append(replace(change, saved=replace(change.saved, ranges=tuple(ranges))))
    return tuple(made)


def _save(change: Change, disk: Disk) -> None:
    saved = change.saved
    if saved.action == "write":
        if not saved.saved_ranges.exists():
            disk.create(saved.saved_ranges, 0)
        for part in saved.ranges:
            content = FilePart(change.place, part.file_position, part.length)
            disk.write(saved.saved_ranges, part.saved_position, content, salvaging=True)
    elif saved.metadata is not None and not saved.is_moved:
        disk.create(saved.saved, saved.metadata.size)
        disk.write(saved.saved, 0, FilePart(change.place, 0, saved.metadata.size), salvaging=True)
        disk.sync(saved.saved)


def _make_folders(places: Places, journal: Journal, manifest: Manifest, changes: Sequence[Change], disk: Disk) -> None:
    for folder in map(Path, manifest.folders):
        outer = folder.parent.parent.parent
        for directory in (folder.parent.parent, folder.parent, folder):
            disk.make_directory(directory, outer)
            disk.sync_directory(directory.parent)
    for folder in {journal.folder, *(Path(change.saved.folder) for change in changes)}:
        for name in ("files", "new"):
            disk.make_directory(folder / name, places.root)


def _missing_directories(places: Places, changes: Iterable[Change]) -> tuple[str, ...]:
    missing: dict[str, None] = {}
    for change in changes:
        names = change.saved.path.split("/")[:-1]
        if change.saved.action == "create" and not change.saved.path.startswith("/"):
            for depth in range(1, len(names) + 1):
                directory = "/".join(names[:depth])
                if not (places.root / directory).is_dir():
                    missing[directory] = None
    return tuple(missing)


def _directory_times(places: Places, changes: Iterable[Change]) -> dict[str, tuple[int, int]]:
    """Of every directory in which a name comes or goes, as far as it is there."""
    directories = {"", *places.log_directories}
    for change in changes:
        directory = change.saved.path.rpartition("/")[0]
        while directory and not (places.root / directory).is_dir():
            directory = directory.rpartition("/")[0]
        directories.add(directory)
    times: dict[str, tuple[int, int]] = {}
    for directory in sorted(directories):
        found = Metadata.of(places.root / directory)
        times[directory] = (found.atime_ns, found.mtime_ns)
    return times


def _demand_room(changes: Iterable[Change], journal: Journal) -> None:
    """Fail before anything is changed where the disk cannot hold it; holes take no room."""
    needed: Counter[int] = Counter()
    shown: dict[int, Path] = {}
    for change in changes:
        saved, device = change.saved, device_of(change.place.parent)
        kept_on = device_of(Path(saved.folder))
        shown.setdefault(device, change.place.parent)
        shown.setdefault(kept_on, Path(saved.folder))
        if not change.adopts:
            needed[device] += sum(_data_bytes(step.content) for step in change.steps if not isinstance(step, Remove))
        needed[kept_on] += sum(part.length for part in saved.ranges)
        if saved.metadata is not None and saved.action != "write" and not saved.is_moved:
            needed[kept_on] += _data_bytes(FilePart(change.place, 0, saved.metadata.size))
    for device, count in needed.items():
        free = _free_bytes(shown[device], journal.folder)
        if count > free:
            raise WriteError(f"{shown[device]}: the repair needs {count} bytes here, of which {free} are free")


def _free_bytes(place: Path, otherwise: Path) -> int:
    while not place.exists():
        place = place.parent if place != place.parent else otherwise
    try:
        found = os.statvfs(place)
    except OSError as error:
        raise WriteError(f"{place}: {reason(error)}") from error
    return found.f_bavail * found.f_frsize


def _data_bytes(content: Content) -> int:
    source = content.open()
    try:
        return sum(end - start for start, end in source.extents(0, content.length))
    finally:
        source.close()


def _part_of_file(step: Step) -> FilePart | None:
    """What a step puts in the place of a whole file, if that is taken from a file."""
    return step.content if isinstance(step, Replace | Create) and isinstance(step.content, FilePart) else None


def _adopted(step: Step, place: Path, places: Places, staged: Counter[Path]) -> Path | None:
    """The planner's file where it is wanted whole, by one step, on the file system it lies on."""
    part = _part_of_file(step)
    if part is None or part.position or staged[part.place] > 1 or not part.place.is_relative_to(places.staging):
        return None
    if device_of(part.place) != device_of(place.parent):
        return None
    with FileSource.open(part.place) as source:
        return part.place if source.size == part.length else None

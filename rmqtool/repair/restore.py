"""Makes a store what a journal says it was, however far the repair came, and as often as it is tried.

Each file is restored for itself and finding it restored already is no error, so this may be killed and begun anew.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.repair.digest import digest_of
from rmqtool.repair.disk import Disk, Metadata
from rmqtool.repair.fence import lower_fences, raise_fences
from rmqtool.repair.journal import Journal, JournalState, Manifest, SavedFile
from rmqtool.repair.places import STAGING, Places
from rmqtool.repair.plan import OWN_DIRECTORY
from rmqtool.store.content import FilePart
from rmqtool.store.source import FileSource

STAGED_OLD = ".rmqtool-restored"
"""Name, beside a file, under which a copy is completed before it takes its place; the store is fenced meanwhile."""


def take_back(journal: Journal, places: Places, disk: Disk) -> None:
    """Restore every file, lower the fences and remove the journal.

    Raises:
        RefusedError: a part of the journal belongs to a store in another place.
        WriteError: something cannot be written; the fences stay and the journal is whole.
        UnreadableError: the journal, or what it saved, cannot be read or is not what was saved; likewise.
    """
    manifest = journal.manifest()
    _demand_own_folders(manifest, places)
    if journal.state is JournalState.UNFINISHED:
        if manifest is None:
            raise UnreadableError(f"{journal.manifest_place}: missing, so the store cannot be made what it was")
        _restore(manifest, places, disk)
    discard(journal, places, disk, lower=True)
    if manifest is not None:
        _restore_times(manifest, places, disk)  # once more, for the tool's own directory has gone from the store's


def reopen(journal: Journal, places: Places, disk: Disk) -> None:
    """Put the fences up and say that a repair which is done is going to be taken back.

    Raises:
        WriteError: something cannot be written; the repair is as good as it was.
    """
    raise_fences(places, disk)
    disk.publish(journal.undoing_place, b"{}", places.root)


def discard(journal: Journal, places: Places, disk: Disk, *, lower: bool) -> None:
    """Remove a journal that nobody needs any more, and what it has elsewhere.

    Args:
        lower: take the fences away once the journal no longer asks for anything to be done.
    """
    manifest = journal.manifest()
    _demand_own_folders(manifest, places)
    if journal.folder != journal.undone_folder:
        disk.rename(journal.folder, journal.undone_folder)
        disk.sync_directory(journal.folder.parent)
    undone = Journal(journal.number, journal.undone_folder)
    if lower:
        lower_fences(places, disk)
        if manifest is not None:
            _restore_times(manifest, places, disk)
    for folder in manifest.folders if manifest is not None else ():
        disk.remove_tree(Path(folder))
        _remove_if_empty(disk, Path(folder).parent, Path(folder).parent.parent)
    # The manifest goes last, for it alone knows the other folders.
    for entry in sorted(undone.folder.iterdir(), key=lambda entry: entry == undone.manifest_place):
        if entry.is_dir() and not entry.is_symlink():
            disk.remove_tree(entry)
        else:
            disk.remove(entry)
    disk.remove_directory(undone.folder)
    remove_empty(places, disk)


def _demand_own_folders(manifest: Manifest | None, places: Places) -> None:
    """Refuse to empty a folder outside of the store for a copy of the store: it is the original's."""
    for folder in manifest.folders if manifest is not None else ():
        if not Path(folder).name.startswith(f"{places.identity}-"):
            raise RefusedError(
                f"{places.root}: part of the journal lies in {folder} and belongs to a store of another place, of "
                f"which this is a copy, or which was moved here; take it back there"
            )


def remove_empty(places: Places, disk: Disk) -> None:
    """Remove the tool's own directories where nothing is left in them."""
    _remove_if_empty(disk, places.staging)
    _remove_if_empty(disk, places.undo)
    _remove_if_empty(disk, places.own)


def _restore(manifest: Manifest, places: Places, disk: Disk) -> None:
    for saved in manifest.files:
        place = places.file(saved.path)
        if saved.staged is not None and Path(saved.staged).exists():
            disk.remove(Path(saved.staged))
        match saved.action:
            case "create":
                if place.exists():
                    disk.remove(place)
            case "write":
                _restore_ranges(saved, place, disk)
            case _:
                _restore_whole(saved, place, disk)
    for directory in reversed(manifest.made_directories):
        if (places.root / directory).is_dir():
            disk.remove_directory(places.root / directory)
    for directory in manifest.directory_times:
        disk.sync_directory(places.root / directory)


def _restore_ranges(saved: SavedFile, place: Path, disk: Disk) -> None:
    metadata = _known(saved)
    for part in saved.ranges:
        disk.write(place, part.file_position, FilePart(saved.saved_ranges, part.saved_position, part.length))
    disk.truncate(place, metadata.size)
    disk.give_metadata(place, metadata)
    disk.sync(place)
    with FileSource.open(place) as source:
        for part in saved.ranges:
            end = part.file_position + part.length
            if digest_of(source, part.file_position, end, salvaging=True) != part.digest:
                raise UnreadableError(f"{saved.path}: restored bytes are not what they were; the journal is damaged")


def _restore_whole(saved: SavedFile, place: Path, disk: Disk) -> None:
    metadata = _known(saved)
    if saved.is_moved:
        if saved.saved.exists():
            disk.rename(saved.saved, place)
            disk.sync_directory(place.parent)
    elif not _is_as_before(saved, place, metadata):
        beside = place.with_name(STAGED_OLD)
        if beside.exists():
            disk.remove(beside)
        disk.create(beside, metadata.size)
        disk.write(beside, 0, FilePart(saved.saved, 0, metadata.size))
        disk.give_metadata(beside, metadata)
        disk.sync(beside)
        disk.rename(beside, place)
        disk.sync_directory(place.parent)
    if not _is_as_before(saved, place, metadata):
        raise UnreadableError(f"{saved.path}: the journal no longer holds what this file was")
    disk.give_metadata(place, metadata)


def _is_as_before(saved: SavedFile, place: Path, metadata: Metadata) -> bool:
    if not place.exists():
        return False
    with FileSource.open(place) as source:
        is_whole = source.size == metadata.size
        return is_whole and digest_of(source, 0, source.size, salvaging=True) == saved.digest


def _known(saved: SavedFile) -> Metadata:
    if saved.metadata is None:
        raise UnreadableError(f"{saved.path}: the journal does not say what this file was like")
    return saved.metadata


def _restore_times(manifest: Manifest, places: Places, disk: Disk) -> None:
    """Of directories; last, for every name that comes or goes changes them. Failing here leaves nothing undone."""
    for directory, (atime_ns, mtime_ns) in manifest.directory_times.items():
        with suppress(WriteError):
            disk.set_times(places.root / directory, atime_ns, mtime_ns)


def _remove_if_empty(disk: Disk, *directories: Path) -> None:
    """From the inner one out; what somebody else put there stays, and its directory."""
    for directory in directories:
        if directory.name not in (OWN_DIRECTORY, "undo", STAGING) or not directory.is_dir() or any(directory.iterdir()):
            return
        disk.remove_directory(directory)

"""Makes a store what a journal says it was, however far the repair came, and as often as it is tried.

Each file is restored for itself and finding it restored already is no error, so this may be killed and run again.
"""

from __future__ import annotations

from contextlib import suppress

from rmqtool.errors import RmqtoolError, UnreadableError, WriteError
from rmqtool.repair.machine.disk import Disk, Metadata
from rmqtool.repair.machine.journal import UNDONE_SUFFIX, Journal, JournalState
from rmqtool.repair.machine.journal_check import (
    CheckedJournal,
    KeptFile,
    checked,
    demand_restorable,
    holds_ranges,
    is_as_before,
)
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.root import RootPart, RootPath
from rmqtool.repair.machine.session import remove_empty
from rmqtool.repair.machine.store_paths import (
    STAGING,
    UNDO,
    StorePaths,
    is_fenced,
    lower_fences,
    own_file_like,
    raise_fences,
)

STAGED_OLD = ".rmqtool-restored"
"""Name, beside a file, under which a copy is completed before it takes its place; the store is fenced meanwhile."""


def roll_back(journal: Journal, places: StorePaths, disk: Disk, known: CheckedJournal | None = None) -> None:
    """Restore every file, lower the fences and remove the journal.

    Args:
        known: what `demand_undoable` has just looked at.

    Raises:
        RefusedError: the journal names something that this call does not; nothing was changed.
        WriteError: something cannot be written; the fences stay and the journal is whole.
        UnreadableError: the journal, or what it saved, cannot be read or is not what was saved; likewise.
    """
    known = known or demand_undoable(journal, places)
    if journal.state is JournalState.UNFINISHED:
        _restore(known, places, disk)
    discard(journal, places, disk, lower=True)


def demand_undoable(journal: Journal, places: StorePaths) -> CheckedJournal:
    """Make sure that `roll_back` can go through, before anything is changed.

    Raises:
        RefusedError, WriteError, UnreadableError: it cannot.
    """
    known = checked(journal, places)
    if journal.state in (JournalState.UNFINISHED, JournalState.DONE):
        demand_restorable(known, places)
    return known


def reopen(journal: Journal, places: StorePaths, disk: Disk) -> None:
    """Put the fences up and say that a repair which is done is going to be rolled back.

    Raises:
        WriteError: something cannot be written; the repair is as good as it was.
    """
    raise_fences(places, disk)
    disk.publish(journal.folder / "undoing", b"{}", own_file_like(places.top))


def discard(journal: Journal, places: StorePaths, disk: Disk, *, lower: bool) -> None:
    """Remove a journal that nobody needs any more, and what it has elsewhere.

    Args:
        lower: take the fences away once the journal no longer asks for anything to be done.
    """
    known = checked(journal, places)
    undone = Journal(journal.number, journal.folder.with_name(f"{journal.number}{UNDONE_SUFFIX}"))
    if journal.folder != undone.folder:
        disk.rename(journal.folder, undone.folder)
        disk.sync_directory(undone.folder.parent)
    if lower:
        lower_fences(places, disk)
        _restore_times(known, places, disk)
    for folder in known.folders:
        disk.remove_tree(folder)
        for directory in (folder.parent, folder.parent.parent):  # what somebody else put there stays
            if directory.name not in (OWN_DIRECTORY, UNDO) or not directory.is_directory() or directory.names():
                break
            disk.remove_directory(directory)
    # The manifest goes last, for it alone knows the other folders.
    for name in sorted(undone.folder.names(), key=lambda name: name == "manifest"):
        if (undone.folder / name).is_directory():
            disk.remove_tree(undone.folder / name)
        else:
            disk.remove(undone.folder / name)
    disk.remove_directory(undone.folder)
    remove_empty(places, disk)
    if lower:
        _restore_times(known, places, disk)  # the tool's own directory may have gone from the store's


def how_left(journal: Journal, places: StorePaths) -> str:
    """How a store is left, looked at now, and what to run."""
    run = f"rmqtool undo {places.root}"
    try:
        if is_fenced(places):
            return f"no broker loads the store until you run {run}"
        if journal.state in (JournalState.PREPARING, JournalState.UNDONE) or not journal.folder.exists():
            return f"the store is unchanged; {run} removes the rest of the journal"
        if journal.state is JournalState.DONE:
            return f"the repair is complete and brokers load the store; {run} rolls it back"
    except RmqtoolError as error:
        return f"whether a broker would load the store cannot be determined ({error}); do not start it, and run {run}"
    return f"nothing keeps brokers from loading the store: do not start one, and run {run}"


def _restore(known: CheckedJournal, places: StorePaths, disk: Disk) -> None:
    manifest = known.manifest
    assert manifest is not None, "a journal without a manifest is not restored"
    for kept in known.files:
        # What was built and not used; the staging is another's to clear, who may not look into it either.
        is_in_staging = kept.staged is not None and kept.staged.path.startswith(f"{OWN_DIRECTORY}/{STAGING}/")
        if kept.staged is not None and not is_in_staging and kept.staged.exists():
            disk.remove(kept.staged)
        match kept.saved.action:
            case "create":
                if kept.file.exists():
                    disk.remove(kept.file)
            case "write":
                _restore_ranges(kept, disk)
            case _:
                _restore_whole(kept, disk)
    for path in reversed(manifest.made_directories):
        directory = places.directory(path)
        if directory.is_directory() and not directory.names():
            disk.sync_directory(directory)  # a file system may keep a directory of which it still knows a name
            disk.remove_directory(directory)
    for path in manifest.directory_times:
        disk.sync_directory(places.directory(path))


def _restore_ranges(kept: KeptFile, disk: Disk) -> None:
    saved, file, metadata = kept.saved, kept.file, _known(kept)
    _make_own(file, disk)
    for part in saved.ranges:
        disk.write(file, part.file_position, RootPart(kept.ranges, part.saved_position, part.length))
    disk.truncate(file, metadata.size)
    disk.set_times(file, metadata.atime_ns, metadata.mtime_ns)
    disk.sync(file)
    with file.source() as source:
        if not holds_ranges(kept, source, saved=False):
            raise UnreadableError(f"{saved.path}: restored bytes differ from the old content; the journal is damaged")


def _restore_whole(kept: KeptFile, disk: Disk) -> None:
    saved, file, metadata = kept.saved, kept.file, _known(kept)
    if saved.is_moved:
        if kept.kept.exists():
            disk.rename(kept.kept, file)
            disk.sync_directory(file.parent)
    elif not is_as_before(kept, file):
        beside = file.with_name(STAGED_OLD)
        if beside.exists():
            disk.remove(beside)
        disk.create(beside, metadata.size)
        disk.write(beside, 0, RootPart(kept.kept, 0, metadata.size))
        # The copy has the owner and the mode that the file had; what the journal says of them proves nothing.
        like = Metadata.of(kept.kept)
        disk.give_owner(beside, like.user_id, like.group_id, like.mode)
        disk.set_times(beside, metadata.atime_ns, metadata.mtime_ns)
        disk.sync(beside)
        disk.rename(beside, file)
        disk.sync_directory(file.parent)
        if not is_as_before(kept, file):
            raise UnreadableError(f"{saved.path}: the journal no longer has the old content of this file")


def _make_own(file: RootPath, disk: Disk) -> None:
    """Give a file that has other names a copy of its own, so that what is written does not show under those."""
    state = file.lstat()
    if state is None or state.st_nlink == 1:
        return
    beside = file.with_name(STAGED_OLD)
    if beside.exists():
        disk.remove(beside)
    with file.source() as source:
        disk.copy(source, beside)
    disk.give_metadata(beside, Metadata.from_stat(state))
    disk.sync(beside)
    disk.rename(beside, file)
    disk.sync_directory(file.parent)


def _known(kept: KeptFile) -> Metadata:
    if kept.saved.metadata is None:
        raise UnreadableError(f"{kept.saved.path}: the journal has no description of this file")
    return kept.saved.metadata


def _restore_times(known: CheckedJournal, places: StorePaths, disk: Disk) -> None:
    """Of directories; last, for every name that comes or goes changes them. Failing here leaves nothing undone."""
    times = known.manifest.directory_times if known.manifest is not None else {}
    for path, (atime_ns, mtime_ns) in times.items():
        directory = places.directory(path)
        if known.may_change(directory, places):
            with suppress(WriteError):
                disk.set_times(directory, atime_ns, mtime_ns)

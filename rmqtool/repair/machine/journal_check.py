"""Compares all of a journal with the store and this call, before any of its steps is done.

A journal names files of the store only. What lies outside of the store this call has to name, or the store's own layout
leads there by a link; and then something outside of the store has to vouch for the journal, which whoever wrote the
store could not put there: a folder of the journal beside the linked directory, or the fence in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.repair.machine.digest import digest_of
from rmqtool.repair.machine.journal import Journal, Manifest, SavedFile
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.root import Root, RootPath
from rmqtool.repair.machine.store_paths import STAGING, UNDO, StorePaths, demand_own
from rmqtool.store.file_kinds import FENCE_NAME, FileKind, kind_of, stray_kind_of
from rmqtool.store.source import FileSource, read_range

FENCE_SIZE_MAX: Final = 1 << 16
"""Bytes of a fence that are read: its text, and the path of the store in it."""
BESIDE: Final = ".rmqtool-new-"
"""Start of a new file's name beside the old one, where its folder lies on another file system."""


@dataclass(frozen=True)
class JournalEntry:
    """A file that a repair changes, and where all that belongs to it lies on this machine."""

    saved: SavedFile
    file: RootPath
    """In the store."""
    folder: RootPath
    """The journal's own folder, or the one on the file's own file system."""
    staged: RootPath | None
    """Where the new file is built."""

    @property
    def old(self) -> RootPath:
        """The old file, or a copy of it."""
        return self.folder / "files" / str(self.saved.number)

    @property
    def ranges(self) -> RootPath:
        """The old bytes of overwritten ranges, of all files."""
        return self.folder / "ranges"


@dataclass(frozen=True)
class CheckedJournal:
    """A journal that may be carried out; `manifest` is None where the repair stopped before it wrote it."""

    journal: Journal
    manifest: Manifest | None
    files: tuple[JournalEntry, ...] = ()
    folders: tuple[RootPath, ...] = ()
    """Outside of the store."""
    vouched: frozenset[tuple[int, int]] = frozenset()
    """Directories to which a link of the store leads, and in or beside which something tells of this repair."""


def outer_folder(base: Path, places: StorePaths, number: int) -> str:
    """The folder of a journal in a directory outside of the store, which several stores may share."""
    return str(base / OWN_DIRECTORY / UNDO / f"{places.identity}-{number}")


def base_beside(directory: Root) -> Path:
    """Where the folder for a directory outside of the store lies: beside it, for brokers load nothing from there."""
    return directory.real_path.parent


def staged_file(saved: SavedFile, file: RootPath, folder: RootPath, places: StorePaths) -> RootPath | None:
    """Where a new file is built.

    Raises:
        WriteError: the journal says another path.
    """
    if saved.staged is None:
        return None
    if saved.staged == "new":
        return folder / "new" / str(saved.number)
    if saved.staged == "beside":
        return file.with_name(f"{BESIDE}{saved.number}")
    if saved.staged.startswith(f"{OWN_DIRECTORY}/{STAGING}/"):
        return places.top / saved.staged
    raise WriteError(f"{saved.path}: no repair builds a file there")


def checked(journal: Journal, places: StorePaths) -> CheckedJournal:
    """Find every file that a journal names.

    Raises:
        RefusedError: it names something outside of the store that this call does not.
        UnreadableError: the journal is damaged, or something may not be looked at.
    """
    manifest = journal.manifest()
    if manifest is None:
        return CheckedJournal(journal, None)
    for directory in manifest.log_directories:
        if directory.startswith("/") and directory not in places.log_directories:
            raise RefusedError(
                f"{journal.folder}: the repair was of a log in {directory}, which the command line does not name; "
                f"if that is the commit log of the store, pass --commitlog {directory}"
            )
    try:
        files = [places.file(saved.path) for saved in manifest.files]
        for directory in (*manifest.made_directories, *manifest.directory_times):
            places.directory(directory)
        folders = _folders(journal, manifest, places, files)
        entries = tuple(
            JournalEntry(saved, file, folder, staged_file(saved, file, folder, places))
            for saved, file in zip(manifest.files, files, strict=True)
            for folder in (folders.get(saved.folder, journal.folder),)
        )
    except WriteError as error:
        raise RefusedError(f"{journal.folder}: not written by a repair ({error}); nothing was changed") from error
    directories = [places.directory(path) for path in manifest.log_directories]
    outer = next((file for file in (*files, *directories) if file.root is not places.top.root), None)
    if outer is not None and manifest.store not in ("", places.identity):
        raise RefusedError(
            f"{journal.folder}: the repair was made in a store at another path, and changed its files in "
            f"{outer.root.real_path}; undo it there, for here it would change the files of that store. If the store "
            f"was moved, move it back first"
        )
    linked = {file.root for file in (*files, *directories) if places.is_linked(file)}
    vouched = frozenset(root.identity for root in linked if _is_vouched(root, journal, folders, places))
    return CheckedJournal(journal, manifest, entries, tuple(folders.values()), vouched)


def demand_restorable(known: CheckedJournal, places: StorePaths) -> None:
    """Make sure that all of a journal can be carried out: each saved byte read and compared, each target writable.

    Raises:
        UnreadableError: something that was saved is gone, may not be read, or is not what was saved.
        WriteError: something may not be written.
        RefusedError: the store is not as any repair leaves it.
    """
    if known.manifest is None:
        raise UnreadableError(f"{known.journal.folder / 'manifest'}: missing, so the store cannot be restored")
    _demand_vouched(known, places)
    written = {places.top, known.journal.folder, known.journal.folder.parent}
    for folder in (known.journal.folder, *known.folders):
        for name in ("files", "new"):
            demand_own(folder / name, places.top.root)
    for file in known.files:
        _demand_file(file)
        written |= {file.file.parent, file.folder}
        if file.saved.is_moved and file.old.exists():
            written.add(file.old.parent)
    written |= {fence.parent for fence in places.fences}
    for directory in written:
        at = directory
        while at.path and not at.exists():
            at = at.parent
        with at.entry() as (above, own_name):
            if not os.access(own_name, os.W_OK | os.X_OK, dir_fd=above, effective_ids=True):
                raise WriteError(f"{at}: not writable for user {os.geteuid()}, so the repair cannot be rolled back")


def is_as_before(entry: JournalEntry, file: RootPath) -> bool:
    """True if a file holds the content from before the change."""
    metadata = entry.saved.metadata
    state = file.lstat()
    if metadata is None or state is None or not stat.S_ISREG(state.st_mode) or state.st_size != metadata.size:
        return False
    with file.source() as source:
        return digest_of(source, 0, source.size, salvaging=True) == entry.saved.digest


def holds_ranges(entry: JournalEntry, source: FileSource, *, saved: bool) -> bool:
    """True if the old bytes of all ranges are there: in the journal, or in the file itself."""
    starts = ((part.saved_position if saved else part.file_position, part) for part in entry.saved.ranges)
    return all(
        start + part.length <= source.size
        and digest_of(source, start, start + part.length, salvaging=True) == part.digest
        for start, part in starts
    )


def _folders(
    journal: Journal, manifest: Manifest, places: StorePaths, files: Iterable[RootPath]
) -> dict[str, RootPath]:
    """Folders outside the store, by their names in the journal; each is one that this call reaches itself."""
    roots = {file.root for file in files if file.root is not places.top.root} | set(places.outer_roots.values())
    bases = {base_beside(root) for root in roots}
    if places.undo_directory is not None:
        bases.add(places.undo_directory.resolve())
    known = {outer_folder(base, places, journal.number): base for base in bases}
    folders: dict[str, RootPath] = {}
    for name in manifest.folders:
        base = known.get(name)
        if base is None and not name.endswith(outer_folder(Path("/"), places, journal.number)):
            raise RefusedError(
                f"{places.root}: part of the journal is in {name} and belongs to another store, of which this "
                f"is a copy, or which was moved here; roll it back there"
            )
        if base is None:
            directory = str(Path(name).parents[2])
            raise RefusedError(
                f"{places.root}: part of the journal is in {name}, which the command line does not name; if the "
                f"repair kept it there, pass --undo-dir {directory}"
            )
        top = Root.open(base)
        folder = top / str(Path(name).relative_to(base))
        for directory_of_tool in (folder.parent.parent, folder.parent, folder):
            demand_own(directory_of_tool, places.top.root)
        folders[name] = folder
    return folders


def _is_vouched(root: Root, journal: Journal, folders: dict[str, RootPath], places: StorePaths) -> bool:
    """True if a directory outside the store, at the target of a link, has a record of this store's repair."""
    folder = folders.get(outer_folder(base_beside(root), places, journal.number))
    if folder is not None and folder.is_directory():
        return True
    fence = root / FENCE_NAME
    if not fence.exists():
        return False
    with fence.source() as source:
        return os.fsencode(places.root.resolve()) in read_range(source, 0, FENCE_SIZE_MAX)


def _demand_vouched(known: CheckedJournal, places: StorePaths) -> None:
    """Refuse to change files that only a link of the store leads to, unless a record of the repair is there too."""
    manifest = known.manifest
    assert manifest is not None, "a journal without a manifest changes nothing"
    changed = [(file.saved.path, file.file) for file in known.files]
    directories = [(path, places.directory(path)) for path in (*manifest.log_directories, *manifest.made_directories)]
    for path, file in (*changed, *directories):
        if not places.is_linked(file):
            continue
        outside = file.root.real_path
        if (path, file) in changed and kind_of(path) in (FileKind.UNKNOWN, stray_kind_of(path)):
            raise RefusedError(
                f"{path}: not a broker file, and a symbolic link of the store points to {outside}; not undone"
            )
        if file.root.identity not in known.vouched:
            raise RefusedError(
                f"{path}: a link of the store leads to {outside}, and only the store says that a repair "
                f"changed files there; if that is the commit log of the store, pass --commitlog {outside}"
            )


def _demand_file(entry: JournalEntry) -> None:
    saved, file = entry.saved, entry.file
    state = file.lstat()
    match saved.action:
        case "create":
            return
        case "write":
            if saved.metadata is None or state is None:
                raise UnreadableError(f"{saved.path}: missing, or the journal has no description of it")
            if any(part.length and part.file_position + part.length > saved.metadata.size for part in saved.ranges):
                raise UnreadableError(f"{saved.path}: the journal is damaged (a range past the end of the file)")
            if saved.ranges:
                _demand_trusted(entry.ranges)
                with entry.ranges.source() as source:
                    if not holds_ranges(entry, source, saved=True):
                        raise UnreadableError(f"{saved.path}: saved bytes have changed; the journal is damaged")
            if os.geteuid() not in (0, state.st_uid):  # no others may set a file's modification time
                raise WriteError(
                    f"{saved.path}: belongs to user {state.st_uid}, who can roll the repair back; "
                    f"user {os.geteuid()} cannot"
                )
            with file.entry() as (directory, name):
                if not os.access(name, os.R_OK | os.W_OK, dir_fd=directory, effective_ids=True):
                    raise WriteError(f"{saved.path}: not writable, so the repair cannot be rolled back")
        case _:
            if saved.metadata is None or saved.digest is None:
                raise UnreadableError(f"{saved.path}: the journal has no description of this file")
            if saved.is_moved and saved.action == "remove" and state is not None and entry.old.exists():
                raise RefusedError(f"{saved.path}: removed by the repair, but it exists again; nothing was changed")
            if entry.old.exists():
                _demand_trusted(entry.old)
            if not is_as_before(entry, entry.old if entry.old.exists() else file):
                raise UnreadableError(
                    f"{saved.path}: the journal no longer has the old content of this file (it is damaged)"
                )


def _demand_trusted(file: RootPath) -> None:
    """Refuse another user's file to which only a further name was made in the journal."""
    state = file.lstat()
    directory = file.parent.lstat()
    if state is None or directory is None:
        return
    if state.st_nlink > 1 and state.st_uid not in (directory.st_uid, os.geteuid() or directory.st_uid):
        raise RefusedError(f"{file}: a file of user {state.st_uid} that has other names; no repair keeps such a file")

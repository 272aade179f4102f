"""The journal of a repair: the old state of each file, complete and on the disk before the first file is changed.

    .rmqtool/undo/7/manifest   which files the repair changes, and what they are like
    .rmqtool/undo/7/ranges     the bytes that are overwritten
    .rmqtool/undo/7/files/     files that are replaced or removed, moved here (or copied, from another file system)
    .rmqtool/undo/7/saved      everything above is there: the store may be changed from now on
    .rmqtool/undo/7/done       all steps are done and checked; what the store looked like then
    .rmqtool/undo/7/undoing    somebody rolls it back
    .rmqtool/undo/7.undone     it is rolled back; only this folder is left to be removed

Killed at any point, the records that are there say what to do; each of them is there whole or not at all.

A journal lies in a store, so it may be anybody's work: its types and bounds are checked here, `journal_check` holds all
else that it says against the store before any of it is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from rmqtool.errors import RefusedError, UnreadableError, UnsupportedError, WriteError
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.repair.machine.disk import Metadata
from rmqtool.repair.machine.plan import OWN_DIRECTORY, check_step_path
from rmqtool.repair.machine.root import RootPath
from rmqtool.repair.machine.store_paths import DEFAULT_LOG, UNDO, StorePaths, demand_own
from rmqtool.store.sink import check_path
from rmqtool.store.source import read_range

FORMAT: Final = 2
UNDONE_SUFFIX: Final = ".undone"
RECORD_SIZE_MAX: Final = 256 << 20
"""Bytes of a record that are read: some 500,000 files of one repair."""
NUMBER_MAX: Final = 10**9
Size = Annotated[int, msgspec.Meta(ge=0, le=JAVA_LONG_MAX)]
Moment = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800_000)]
"""Milliseconds of the epoch, up to the year 9999, the last that can be shown."""
Time = Annotated[int, msgspec.Meta(ge=-JAVA_LONG_MAX, le=JAVA_LONG_MAX)]
Digest = Annotated[str, msgspec.Meta(pattern="^sparse-sha256:[0-9a-f]{64}\\Z")]
_Record = TypeVar("_Record", "Manifest", "Done")


class JournalState(Enum):
    """Progress of a repair."""

    PREPARING = "preparing"
    """Nothing in the store has been changed."""
    UNFINISHED = "unfinished"
    """Some steps may be done, or some may be rolled back."""
    DONE = "done"
    UNDONE = "undone"
    """The store is as it was; the journal only has to go."""


class SavedRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of a file that were overwritten, and where `ranges` of its folder holds them."""

    file_position: Size
    length: Size
    saved_position: Size
    digest: Digest


class SavedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is needed to restore one file."""

    path: str
    action: Literal["write", "replace", "create", "remove"]
    """Of the step; `replace` too where a file with several names gets a copy instead of the bytes."""
    metadata: Metadata | None
    """Before; None of a file that was not there."""
    folder: str
    """Where its bytes are kept: empty for the journal's own folder, else one of `Manifest.folders`."""
    number: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
    """Its name in `files/` of that folder."""
    is_moved: bool
    """True if the file itself is in the journal, rather than a copy of it."""
    staged: str | None = None
    """Where the new file is built before it is renamed into the store: `new`, `beside`, or a path in the staging."""
    digest: Digest | None = None
    """Of the whole file before, where it is replaced or removed."""
    ranges: tuple[SavedRange, ...] = ()


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Planned changes of a repair."""

    command: str
    began_ms: Moment
    step_count: Size
    log_directories: tuple[str, ...]
    """Directories with a fence until the end."""
    folders: tuple[str, ...]
    """Every folder that holds something of this journal outside of the store, absolute."""
    files: tuple[SavedFile, ...]
    made_directories: tuple[str, ...]
    """Directories that were not there, relative to the store, the outer one first."""
    directory_times: dict[str, tuple[Time, Time]]
    """(atime_ns, mtime_ns) of the directories in which names come and go, by path."""
    made_lock: bool = False
    """True if the store had no `lock`, so that the one left by a killed repair is removed."""
    store: str = ""
    """`StorePaths.identity` of the store that was repaired: a copy of it has this journal too, and not its log."""
    format: int = FORMAT

    def check(self) -> None:
        """Refuse paths that lead out of the store, or say two things of one file, with WriteError."""
        outer = [directory for directory in self.log_directories if directory.startswith("/")]
        logs_and_times = {*self.log_directories, *self.directory_times} - {"", *outer}
        for directory in (*self.made_directories, *logs_and_times):
            names = check_path(directory)
            if names[0] == OWN_DIRECTORY:
                raise WriteError(f"{directory}: not a directory of the store")
        for file in self.files:
            check_step_path(file.path, outer)
            if file.folder and file.folder not in self.folders:
                raise WriteError(f"{file.path}: kept in a directory that the journal does not name")
        paths = {file.path for file in self.files}
        kept = {(file.folder, file.number) for file in self.files}
        if not len(paths) == len(kept) == len(self.files):
            raise WriteError("two files with one name")


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State of the store when the repair was done."""

    ended_ms: Moment
    files: dict[str, tuple[Size, Time, Size]]
    """(size, mtime_ns, inode) of every file, by path."""
    written: dict[str, tuple[tuple[Size, Size, Digest], ...]]
    """(position, length, digest) of each written range, by path."""
    format: int = FORMAT


@dataclass(frozen=True)
class Journal:
    """One numbered folder of `.rmqtool/undo`."""

    number: int
    folder: RootPath

    @property
    def state(self) -> JournalState:
        """Progress of the repair."""
        if self.folder.name.endswith(UNDONE_SUFFIX):
            return JournalState.UNDONE
        if not (self.folder / "saved").exists():
            return JournalState.PREPARING
        if (self.folder / "done").exists() and not (self.folder / "undoing").exists():
            return JournalState.DONE
        return JournalState.UNFINISHED

    def manifest(self) -> Manifest | None:
        """Planned changes of the repair; None if it stopped before it wrote them.

        Raises:
            UnreadableError: the record may not be read, or is damaged.
            UnsupportedError: another version of rmqtool wrote it.
            RefusedError: a path in it leads out of the store.
        """
        file = self.folder / "manifest"
        if not file.exists():
            return None
        manifest = _read_record(file, Manifest)
        try:
            manifest.check()
        except WriteError as error:
            raise RefusedError(f"{file}: not written by a repair ({error}); nothing was changed") from error
        return manifest

    def when_done(self) -> Done:
        """The store as the repair left it.

        Raises:
            UnreadableError: the record is missing, may not be read, or is damaged.
        """
        return _read_record(self.folder / "done", Done)


def record(value: Manifest | Done) -> bytes:
    """The bytes of a record; each byte of a file name is one letter, for a name may be no text."""
    plain = _translated(msgspec.to_builtins(value), lambda name: os.fsencode(name).decode("latin-1"))
    return msgspec.json.encode(plain)


def journals(places: StorePaths) -> list[Journal]:
    """All journals of a store, the oldest first.

    Raises:
        RefusedError: one of the tool's own directories is a link, or somebody else's.
    """
    undo = places.own_top / UNDO
    for directory in (places.own_top, undo):
        demand_own(directory, places.top.root)
        if not directory.exists():
            return []
    listed: list[Journal] = []
    for name in undo.names():
        number = name.removesuffix(UNDONE_SUFFIX)
        if number.isascii() and number.isdigit() and number == str(int(number[:10])):
            demand_own(undo / name, places.top.root)
            listed.append(Journal(int(number), undo / name))
    return sorted(listed, key=lambda journal: (journal.number, journal.folder.name))


def recorded_places(places: StorePaths) -> StorePaths:
    """Where a store's files lie as its journals say: the log's directories in the store.

    One outside of it counts only if this call names it.

    Raises:
        RefusedError, UnreadableError: see `Journal.manifest`.
    """
    manifests = [journal.manifest() for journal in journals(places)]
    recorded = [directory for manifest in manifests if manifest is not None for directory in manifest.log_directories]
    inner = [directory for directory in recorded if not directory.startswith("/")]
    return StorePaths(
        places.root, tuple(dict.fromkeys((*places.log_directories, *inner))) or DEFAULT_LOG, places.undo_directory
    )


def _read_record(file: RootPath, kind: type[_Record]) -> _Record:
    with file.source() as source:
        if source.size > RECORD_SIZE_MAX:
            raise UnreadableError(f"{file}: damaged (longer than any record)")
        text = read_range(source, 0, source.size)
    try:
        plain = msgspec.json.decode(text, type=kind)
        names = _translated(msgspec.to_builtins(plain), lambda letters: os.fsdecode(letters.encode("latin-1")))
        value = msgspec.convert(names, kind)
    except msgspec.ValidationError as error:
        if _format_of(text) not in (None, FORMAT):
            raise UnsupportedError(f"{file}: written by another version of rmqtool") from error
        raise UnreadableError(f"{file}: damaged ({error})") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{file}: damaged") from error
    if value.format != FORMAT:
        raise UnsupportedError(f"{file}: written by another version of rmqtool")
    return value


class _Format(msgspec.Struct):
    format: int | None = None


def _format_of(text: bytes) -> int | None:
    try:
        return msgspec.json.decode(text, type=_Format).format
    except (ValueError, RecursionError):
        return None


def _translated(value: Any, translate: Callable[[str], str]) -> Any:
    """The value with each text in it, and each key, translated."""
    if isinstance(value, str):
        return translate(value)
    if isinstance(value, dict):
        return {_translated(key, translate): _translated(item, translate) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_translated(item, translate) for item in value]
    return value

"""The journal of a repair: what each file was like before, complete and on the disk before the first file is changed.

    .rmqtool/undo/7/manifest   which files the repair changes, and what they are like
    .rmqtool/undo/7/ranges     the bytes that are overwritten
    .rmqtool/undo/7/files/     files that are replaced or removed, moved here (or copied, from another file system)
    .rmqtool/undo/7/saved      everything above is there: the store may be changed from now on
    .rmqtool/undo/7/done       all steps are done and checked; what the store looked like then
    .rmqtool/undo/7/undoing    somebody takes it back
    .rmqtool/undo/7.undone     it is taken back; only this folder is left to be removed

Killed at any point, the records that are there say what to do; each of them is there whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.repair.disk import Metadata
from rmqtool.repair.fingerprint import FileState
from rmqtool.repair.places import DEFAULT_LOG, Places
from rmqtool.store.source import reason

FORMAT: Final = 1
UNDONE_SUFFIX: Final = ".undone"


class JournalState(Enum):
    """How far a repair came."""

    PREPARING = "preparing"
    """Nothing in the store has been changed."""
    UNFINISHED = "unfinished"
    """Some steps may be done, or some may be taken back."""
    DONE = "done"
    UNDONE = "undone"
    """The store is as it was; the journal only has to go."""


@dataclass(frozen=True)
class SavedRange:
    """Bytes of a file that were overwritten, and where `ranges` of its folder holds them."""

    file_position: int
    length: int
    saved_position: int
    digest: str


@dataclass(frozen=True)
class SavedFile:
    """All that is needed to make one file what it was."""

    path: str
    action: str
    """Of the step: write, replace, create or remove."""
    metadata: Metadata | None
    """Before; None of a file that was not there."""
    folder: str
    """Where its bytes are kept: the journal's own folder or one on the file's own file system."""
    name: str
    """In `files/` of that folder."""
    is_moved: bool
    """Whether the file itself lies there, rather than a copy of it."""
    staged: str | None = None
    """Where the new file is built before it is renamed into place."""
    digest: str | None = None
    """Of the whole file before, where it is replaced or removed."""
    ranges: tuple[SavedRange, ...] = ()

    @property
    def saved(self) -> Path:
        """The old file, where it was replaced or removed."""
        return Path(self.folder) / "files" / self.name

    @property
    def saved_ranges(self) -> Path:
        """The old bytes of overwritten ranges."""
        return Path(self.folder) / "ranges"


@dataclass(frozen=True)
class Manifest:
    """What a repair is going to change."""

    command: str
    began_ms: int
    step_count: int
    log_directories: tuple[str, ...]
    """In each of which a fence stands until the end."""
    folders: tuple[str, ...]
    """Every folder that holds something of this journal, absolute; the journal's own one is not among them."""
    files: tuple[SavedFile, ...]
    made_directories: tuple[str, ...]
    """Directories that were not there, relative to the store, the outer one first."""
    directory_times: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(atime_ns, mtime_ns) of the directories in which names come and go, by path."""

    def to_json(self, journal: Journal) -> bytes:
        """The record; what lies in the store is told from there, so that a store can be moved or copied with it."""
        said = {"format": FORMAT, **asdict(self)}
        for found in said["files"]:
            found["folder"] = _told_from(journal.folder, found["folder"])
            found["staged"] = found["staged"] and _told_from(journal.root, found["staged"])
        return json.dumps(said).encode("ascii")

    @classmethod
    def from_json(cls, found: dict[str, Any], journal: Journal) -> Manifest:
        """Raises KeyError, TypeError or IndexError where it is none."""
        for each in found["files"]:
            each["folder"] = str(journal.folder / each["folder"])
            each["staged"] = each["staged"] and str(journal.root / each["staged"])
        return cls(
            found["command"],
            found["began_ms"],
            found["step_count"],
            tuple(found["log_directories"]),
            tuple(found["folders"]),
            tuple(_saved_file(each) for each in found["files"]),
            tuple(found["made_directories"]),
            {path: (times[0], times[1]) for path, times in found["directory_times"].items()},
        )


@dataclass(frozen=True)
class Journal:
    """One numbered folder of `.rmqtool/undo`."""

    number: int
    folder: Path

    @property
    def root(self) -> Path:
        """The store directory."""
        return self.folder.parent.parent.parent

    @property
    def manifest_place(self) -> Path:
        return self.folder / "manifest"

    @property
    def saved_place(self) -> Path:
        return self.folder / "saved"

    @property
    def done_place(self) -> Path:
        return self.folder / "done"

    @property
    def undoing_place(self) -> Path:
        return self.folder / "undoing"

    @property
    def undone_folder(self) -> Path:
        return self.folder.with_name(f"{self.number}{UNDONE_SUFFIX}")

    @property
    def state(self) -> JournalState:
        """How far the repair came."""
        if self.folder.name.endswith(UNDONE_SUFFIX):
            return JournalState.UNDONE
        if not _is_there(self.saved_place):
            return JournalState.PREPARING
        if _is_there(self.done_place) and not _is_there(self.undoing_place):
            return JournalState.DONE
        return JournalState.UNFINISHED

    def manifest(self) -> Manifest | None:
        """What the repair was going to change; None if it did not come to saying so.

        Raises:
            UnreadableError: the record may not be read, or is damaged.
            UnsupportedError: another version of rmqtool wrote it.
        """
        found = _read_record(self.manifest_place)
        if found is None:
            return None
        if found.get("format") != FORMAT:
            raise UnsupportedError(f"{self.manifest_place}: written by another version of rmqtool")
        try:
            return Manifest.from_json(found, self)
        except (KeyError, TypeError, IndexError) as error:
            raise UnreadableError(f"{self.manifest_place}: damaged") from error

    def states_when_done(self) -> dict[str, FileState]:
        """Every file of the store as the repair left it.

        Raises:
            UnreadableError: the record is missing, may not be read, or is damaged.
        """
        found = _read_record(self.done_place)
        try:
            return {path: FileState(*state) for path, state in (found or {})["files"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise UnreadableError(f"{self.done_place}: damaged") from error

    def digests_when_done(self) -> dict[str, list[tuple[int, int, str]]]:
        """By path: (position, length, digest) of what the repair wrote.

        Raises:
            UnreadableError: the record is missing, may not be read, or is damaged.
        """
        found = _read_record(self.done_place)
        try:
            written = (found or {})["written"]
            return {path: [(part[0], part[1], part[2]) for part in parts] for path, parts in written.items()}
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise UnreadableError(f"{self.done_place}: damaged") from error


def done_record(states: dict[str, FileState], written: dict[str, list[tuple[int, int, str]]], ended_ms: int) -> bytes:
    """The record that a repair is done."""
    files = {path: (state.size, state.mtime_ns, state.inode) for path, state in states.items()}
    return json.dumps({"format": FORMAT, "ended_ms": ended_ms, "files": files, "written": written}).encode("ascii")


def journals(places: Places) -> list[Journal]:
    """All journals of a store, the oldest first.

    Raises:
        UnreadableError: the folder may not be read.
    """
    return sorted(_found(places), key=lambda journal: journal.number)


def recorded_places(root: Path, log_directories: tuple[str, ...] = ()) -> Places:
    """Where a store's files lie as its journals say, so that nobody has to say once more where its log is.

    Args:
        root: the store directory.
        log_directories: those that somebody said all the same.

    Raises:
        UnreadableError: a journal may not be read, or is damaged.
    """
    manifests = [journal.manifest() for journal in journals(Places(root))]
    recorded = [directory for found in manifests if found is not None for directory in found.log_directories]
    return Places(root, tuple(dict.fromkeys((*log_directories, *recorded))) or DEFAULT_LOG)


def next_number(places: Places) -> int:
    """The number of the next repair."""
    return max((journal.number for journal in journals(places)), default=0) + 1


def _found(places: Places) -> Iterator[Journal]:
    try:
        folders = list(places.undo.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UnreadableError(f"{places.undo}: {reason(error)}") from error
    for folder in folders:
        number = folder.name.removesuffix(UNDONE_SUFFIX)
        if number.isascii() and number.isdigit():
            yield Journal(int(number), folder)


def _told_from(directory: Path, place: str) -> str:
    """A place as a path relative to a directory where it lies in it, absolute elsewhere."""
    return (
        str(Path(place).relative_to(directory))
        if Path(place).is_relative_to(directory)
        else str(Path(place).absolute())
    )


def _saved_file(found: dict[str, Any]) -> SavedFile:
    metadata = Metadata(**found["metadata"]) if found["metadata"] is not None else None
    ranges = tuple(SavedRange(**each) for each in found["ranges"])
    return SavedFile(**{**found, "metadata": metadata, "ranges": ranges})


def _is_there(place: Path) -> bool:
    try:
        place.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnreadableError(f"{place}: {reason(error)}") from error
    return True


def _read_record(place: Path) -> dict[str, Any] | None:
    try:
        text = place.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"{place}: {reason(error)}") from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{place}: damaged") from error
    if not isinstance(found, dict):
        raise UnreadableError(f"{place}: damaged")
    return found

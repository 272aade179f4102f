"""Walks a store's directories: every entry once, whatever links, odd names and forbidden places there are.

Real directories are entered wherever they are; a link to one only where a broker has a directory (another disk mounted
by a link), and below a link nothing but a broker's directories. So a link to `/` or to its own parent ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.file_kinds import is_followed
from rmqtool.store.view import Entry, EntryKind, StoreView

DEPTH_MAX: Final = 8
"""Real directories nested deeper than a broker's (or an undo journal's) are not entered."""
FOREIGN_DEPTH_MAX: Final = 2
"""A directory at the top that no broker makes may be anything, a home directory or a whole disk: a look, no tour."""


@dataclass
class ListedFile:
    """What a walk found: entries that are no directories, paths of directories, and what could not be looked at."""

    entries: list[Entry] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def list_files(
    view: StoreView, log_directories: frozenset[str] = frozenset(), known: Iterable[Entry] = ()
) -> ListedFile:
    """Every entry of a store.

    Args:
        log_directories: where a person says that the log lies; no directory below is the broker's.
        known: entries of an earlier walk; one that is as it was is that object again.

    Raises:
        UnreadableError: the store directory itself may not be read.
    """
    listing = ListedFile()
    earlier = {entry.path: entry for entry in known}
    pending: list[tuple[Entry, int, int, bool]] = []
    _sort_in(view.list(""), 1, 0, listing, pending, behind_link=False)
    while pending:
        directory, depth, depth_max, behind_link = pending.pop()
        is_broker = is_followed(directory.path)
        if is_broker is None:
            continue
        if depth == 1:
            depth_max = DEPTH_MAX if is_broker or directory.path == ".rmqtool" else FOREIGN_DEPTH_MAX
        if (directory.is_link or behind_link) and not is_broker:
            listing.problems.append(f"{directory.path}: a symbolic link where no broker has a directory; not followed")
            continue
        if depth > depth_max:
            if any(directory.path.startswith(f"{above}/") for above in log_directories):
                continue
            listing.problems.append(f"{directory.path}: nested deeper than a broker's directories; not read")
            continue
        try:
            listed = view.list(directory.path)
        except UnreadableError as error:
            listing.problems.append(str(error))
            continue
        if earlier:
            listed = [before if (before := earlier.get(entry.path)) == entry else entry for entry in listed]
        _sort_in(listed, depth + 1, depth_max, listing, pending, behind_link=behind_link or directory.is_link)
    listing.entries.sort(key=attrgetter("path"))
    listing.directories.sort()
    return listing


def _sort_in(
    listed: list[Entry],
    depth: int,
    depth_max: int,
    listing: ListedFile,
    pending: list[tuple[Entry, int, int, bool]],
    *,
    behind_link: bool,
) -> None:
    for entry in listed:
        if entry.kind is EntryKind.DIRECTORY:
            listing.directories.append(entry.path)
            pending.append((entry, depth, depth_max, behind_link))
        else:
            listing.entries.append(entry)

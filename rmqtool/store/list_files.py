"""Walks the directories that a broker has in its store: every entry once, whatever links and odd places there are.

Other directories (a file system's snapshots, somebody's backup) are named and not entered, and neither are links to
them. Where a broker has a directory, a link is followed (another disk); these places end, so a circle of links does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.file_kinds import (
    is_broker_directory,
    is_file_of_tool,
    is_single_file,
    is_tiered_directory,
    is_topic_directory,
    is_topic_name,
)
from rmqtool.store.view import Entry, EntryKind, StoreView, UnreadPlace

OWN_DEPTH_MAX: Final = 8
"""Directories of the tool's own that are nested deeper than those of an undo journal are not entered."""


@dataclass
class ListedFile:
    """Result of a walk: entries that are not directories, paths of directories, and what could not be read."""

    entries: list[Entry] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    unknown_directories: list[str] = field(default_factory=list)
    """Those of `directories` that are not entered, because no broker has a directory there."""
    nodes: list[Entry] = field(default_factory=list)
    """FIFOs, directories and the like where a broker opens a file; they are among the others, too."""
    problems: list[UnreadPlace] = field(default_factory=list)


def list_files(view: StoreView, known: Iterable[Entry] = ()) -> ListedFile:
    """Every entry of a store.

    Args:
        known: entries of an earlier walk; one that is as it was is that object again.

    Raises:
        UnreadableError: the store directory itself may not be read.
    """
    listing = ListedFile()
    earlier = {entry.path: entry for entry in known}
    pending: list[Entry] = []
    _sort_in(view.list(""), listing, pending)
    while pending:
        directory = pending.pop()
        is_own = is_file_of_tool(directory.path) and directory.path.count("/") < OWN_DEPTH_MAX and not directory.is_link
        if not (is_broker_directory(directory.path) or is_own):
            if not is_tiered_directory(directory.name):  # its metadata tells what belongs to it
                listing.unknown_directories.append(directory.path)
            continue
        try:
            listed = view.list(directory.path)
        except UnreadableError as error:
            if is_topic_directory(directory.path) and not is_topic_name(directory.name):
                listing.unknown_directories.append(directory.path)
            else:
                listing.problems.append(UnreadPlace.of_error(directory.path, error))
            continue
        if earlier:
            listed = [before if (before := earlier.get(entry.path)) == entry else entry for entry in listed]
        _sort_in(listed, listing, pending)
    for entries in (listing.entries, listing.nodes):
        entries.sort(key=attrgetter("path"))
    listing.problems += [place for entry in listing.nodes if (place := entry.not_a_file) is not None]
    for paths in (listing.directories, listing.unknown_directories):
        paths.sort()
    return listing


def _sort_in(listed: list[Entry], listing: ListedFile, pending: list[Entry]) -> None:
    for entry in listed:
        if not entry.is_file and is_single_file(entry.path):
            listing.nodes.append(entry)
        if entry.kind is EntryKind.DIRECTORY:
            listing.directories.append(entry.path)
            pending.append(entry)
        else:
            listing.entries.append(entry)

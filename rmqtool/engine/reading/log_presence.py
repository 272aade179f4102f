"""Tell from names, before a record is read, if the files of the commit log are where they should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.checkpoint_file import readable_checkpoint
from rmqtool.store.config.tiered import read_tiered
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import data_directories, dledger_logs
from rmqtool.store.file_kinds import FileKind, is_segment_name
from rmqtool.store.location import log_directories
from rmqtool.store.view import Entry

_LOOKED_AT_MAX: Final = 64
"""Directories of a directory in which a misplaced log is looked for."""


def is_log_missing(store: Store) -> bool:
    """True if a store that had messages has no file of the log."""
    logs = dledger_logs(store)
    if any(segment.size for segment in (*store.loadable_log, *(file for log in logs for file in log.data))):
        return False
    if not store.is_log_listed:
        return False
    checkpoint = readable_checkpoint(store)
    if checkpoint is not None and checkpoint.commitlog_timestamp_ms > 0:
        return True
    if FileKind.TIERED in store.files and read_tiered(store.view).is_used:
        return True
    was_written = any(log.committed_index is not None for log in logs)
    return was_written or bool(store.queues or store.batch_queues or store.index_files)


def may_hold_messages(store: Store) -> bool:
    """True if a message may be in the store: there is a log, there was one, or neither can be ruled out."""
    has_log = any((*store.loadable_log, *store.files.get(FileKind.DLEDGER, ())))
    return has_log or is_log_missing(store) or not store.is_log_listed


def places_of_log(store: Store) -> tuple[str, ...]:
    """The directories in which a log without any file is looked for."""
    of_dledger = data_directories(store)
    plain = log_directories(store) if "commitlog" in store.directories or not of_dledger else ()
    return (*plain, *of_dledger)


def absent_directories(store: Store) -> tuple[str, ...]:
    """Named directories of the log that are not there, or that are empty where files of the log are missing.

    A directory without a file is that of a disk that is not mounted, or one that no broker has used yet.
    """
    log = store.loadable_log
    has_gap = any(before.end < after.start for before, after in pairwise(log))
    holding = {segment.path.rpartition("/")[0] for segment in log} | {*store.settings.dledger_directories}
    absent = []
    for directory in store.settings.commitlog_directories:
        is_absent = False
        with suppress(UnreadableError):
            is_absent = store.view.stat(directory) is None
        if is_absent or (has_gap and directory.rstrip("/") not in holding):
            absent.append(directory)
    return tuple(absent)


def log_holders(store: Store) -> tuple[str, ...]:
    """Directories beside or below the ones where the log is looked for, that hold files with names of log files."""
    named = store.settings.commitlog_directories or ("commitlog",)
    unknown = tuple(path for path in store.unknown_directories if "/" not in path)
    holders: dict[str, None] = {}
    for directory in (*named, *unknown):
        below = [entry.path for entry in _listed(store, directory) if entry.is_directory][:_LOOKED_AT_MAX]
        for path in below if directory in named else (directory, *below):
            if any(entry.is_file and is_segment_name(entry.name) for entry in _listed(store, path)):
                holders[path] = None
    return tuple(holders)


def _listed(store: Store, directory: str) -> Iterator[Entry]:
    with suppress(UnreadableError):
        yield from store.view.list(directory)

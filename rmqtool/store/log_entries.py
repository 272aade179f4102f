"""Sorts what a store's directories hold where a path alone does not tell: a log elsewhere, and files of one offset."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rmqtool.errors import UnreadableError
from rmqtool.formats import dledger
from rmqtool.formats.commitlog import MAGIC_BYTES
from rmqtool.store.file_kinds import FileKind, is_segment_name, kind_of, segment_name
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry, StoreView, UnreadPlace


def named_logs(
    view: StoreView, directories: Sequence[str], of_dledger: Sequence[str], *, uses_dledger: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The directories that were named for the log, and those of them that hold the data of DLedger.

    A broker with DLedger needs no directory of a plain log.

    Args:
        of_dledger: those of which the settings say so.
    """
    named = tuple(directory.rstrip("/") or "/" for directory in directories)
    by_name_or_content = (
        directory
        for directory in named
        if kind_of(f"{directory}/{segment_name(0)}") is FileKind.DLEDGER or _begins_with_entry(view, directory)
    )
    of_dledger = tuple(dict.fromkeys((*of_dledger, *by_name_or_content)))
    if uses_dledger:
        named = tuple(path for path in named if path in of_dledger or view.stat(path) is not None)
    return named, of_dledger


def _begins_with_entry(view: StoreView, directory: str) -> bool:
    """The second number tells, as it does to brokers (`DLedgerCommitLog#checkMessageAndReturnSize`)."""
    try:
        first = next((entry for entry in view.list(directory) if entry.is_file and is_segment_name(entry.name)), None)
        if first is None:
            return False
        with closing(view.open(first.path)) as source:
            head = read_range(source, 0, dledger.END_SIZE_MIN)
    except UnreadableError:
        return False
    kind = int.from_bytes(head[:4], "big", signed=True)
    return kind in (*dledger.KINDS, dledger.END_OF_FILE) and head[4:] not in MAGIC_BYTES.values()


def move_log(
    view: StoreView,
    log_directories: frozenset[str],
    entries_by_kind: dict[FileKind, list[Entry]],
    problems: list[UnreadPlace],
    of_dledger: frozenset[str] = frozenset(),
) -> list[str]:
    """Take the commitlog from the directories that were named; files of another `commitlog` become unknown ones.

    The directories that lie among its files.

    Args:
        of_dledger: those of the directories that hold the data of DLedger.
    """
    directories: list[str] = []
    log_kinds = (FileKind.COMMITLOG, FileKind.STRAY_COMMITLOG)
    for kind in log_kinds:
        entries_by_kind[FileKind.UNKNOWN] += entries_by_kind.pop(kind, [])
    for directory in sorted(log_directories):
        try:
            if view.stat(directory) is None:
                problems.append(UnreadPlace(directory, "no such directory"))
            listed = view.list(directory)
        except UnreadableError as error:
            problems.append(UnreadPlace.of_error(directory, error))
            continue
        directories += [entry.path for entry in listed if entry.is_directory]
        for entry in listed:
            if entry.is_directory:
                continue
            is_segment = entry.is_file and is_segment_name(entry.name)
            is_own = kind_of(f"commitlog/{entry.name}") is FileKind.RMQTOOL
            kind = FileKind.DLEDGER if directory in of_dledger else log_kinds[0 if is_segment else 1]
            entries_by_kind[FileKind.RMQTOOL if is_own else kind].append(entry)
    for kind, entries in entries_by_kind.items():
        if kind not in log_kinds:
            others = log_directories - of_dledger if kind is FileKind.DLEDGER else log_directories
            entries_by_kind[kind] = [
                entry
                for entry in dict.fromkeys(entries)
                if kind is FileKind.RMQTOOL or entry.path.rpartition("/")[0] not in others
            ]
    return directories


def set_twins_aside(entries_by_kind: dict[FileKind, list[Entry]]) -> None:
    """Of several files of one queue whose names mean one offset, keep the one that has the name a broker gives.

    The others (`Long#parseLong` skips zeros in front) count as files that are none of the queue.
    """
    for kind in (FileKind.CONSUMEQUEUE, FileKind.CONSUMEQUEUE_EXT, FileKind.BATCH_CONSUMEQUEUE):
        best: dict[tuple[str, int], Entry] = {}
        for entry in sorted(entries_by_kind.get(kind, ()), key=lambda entry: (len(entry.name), entry.path)):
            known = best.setdefault((entry.path.rpartition("/")[0], int(entry.name)), entry)
            if known is not entry:
                entries_by_kind[FileKind.STRAY_QUEUE].append(entry)
        if len(best) < len(entries_by_kind.get(kind, ())):
            kept = {entry.path for entry in best.values()}
            entries_by_kind[kind] = [entry for entry in entries_by_kind[kind] if entry.path in kept]

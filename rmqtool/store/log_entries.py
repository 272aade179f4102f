"""Sorts what a store's directories hold where a path alone does not tell: a log elsewhere, and files of one offset."""

from __future__ import annotations

from rmqtool.errors import UnreadableError
from rmqtool.store.file_kinds import FileKind, is_segment_name, kind_of
from rmqtool.store.view import Entry, StoreView


def move_log(
    view: StoreView, log_directories: frozenset[str], entries_by_kind: dict[FileKind, list[Entry]], problems: list[str]
) -> list[str]:
    """Take the commitlog from the directories that were named; files of another `commitlog` become unknown ones.

    The directories that lie among its files.
    """
    directories: list[str] = []
    log_kinds = (FileKind.COMMITLOG, FileKind.STRAY_COMMITLOG)
    for kind in log_kinds:
        entries_by_kind[FileKind.UNKNOWN] += entries_by_kind.pop(kind, [])
    for directory in sorted(log_directories):
        try:
            if view.stat(directory) is None:
                problems.append(f"{directory}: no such directory")
            listed = view.list(directory)
        except UnreadableError as error:
            problems.append(str(error))
            continue
        directories += [entry.path for entry in listed if entry.is_directory]
        for entry in listed:
            if entry.is_directory:
                continue
            is_segment = entry.is_file and is_segment_name(entry.name)
            is_own = kind_of(f"commitlog/{entry.name}") is FileKind.RMQTOOL
            entries_by_kind[FileKind.RMQTOOL if is_own else log_kinds[0 if is_segment else 1]].append(entry)
    for kind, entries in entries_by_kind.items():
        if kind not in log_kinds:
            entries_by_kind[kind] = [
                entry
                for entry in dict.fromkeys(entries)
                if kind is FileKind.RMQTOOL or entry.path.rpartition("/")[0] not in log_directories
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

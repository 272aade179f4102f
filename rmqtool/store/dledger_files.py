"""The files of a log of DLedger: which there are, and which of them a broker reads together with a plain log.

Broker: `DLedgerConfig#getDataStorePath`, `MultiPathMmapFileList#load`, `DLedgerCommitLog`, which reads the plain log
up to where that of DLedger begins (`dividedCommitlogOffset`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from struct import unpack
from typing import Final

from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.dledger import INDEX_FILE_SIZE, INDEX_UNIT, INDEX_UNIT_SIZE
from rmqtool.store.directory import Segment, Settings, Store
from rmqtool.store.file_kinds import FileKind, is_java_long, is_segment_name
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry

_TEXT_MAX: Final = 4096
_DEFAULT_DIRECTORY: Final = "dledger-n0"


@dataclass(frozen=True)
class DLedgerLog:
    """The files of one member of a group (`dledger-ID/`), in order; its data may lie in other directories."""

    store: Store
    directory: str
    data_directories: tuple[str, ...]

    @cached_property
    def data(self) -> tuple[Segment, ...]:
        return self._segments(*self.data_directories)

    @cached_property
    def index(self) -> tuple[Segment, ...]:
        return self._segments(f"{self.directory}/index")

    @cached_property
    def committed_index(self) -> int | None:
        """Of the last entry that the group had committed when the file was written; None where that is not known."""
        try:
            entry = self.store.view.stat(f"{self.directory}/checkpoint")
            if entry is None or not entry.is_file:
                return None
            with closing(self.store.view.open(entry.path)) as source:
                text = read_range(source, 0, _TEXT_MAX).decode("utf-8", "replace")
        except UnreadableError:
            return None
        values = dict(line.partition("=")[::2] for line in text.splitlines())
        number = values.get("committedIndex", "").strip()
        return int(number) if number.isascii() and number.isdigit() and len(number) < 20 else None

    def committed_end(self) -> int:
        """Where the last committed entry ends, as the index of the group has it; 0 where that is not known.

        Raises:
            UnreadableError: a file of the index cannot be read.
        """
        at = -1 if self.committed_index is None else self.committed_index * INDEX_UNIT_SIZE
        segment = next((segment for segment in self.index if segment.start <= at < segment.end), None)
        if segment is None:
            return 0
        with closing(self.store.view.open(segment.path)) as source:
            raw = read_range(source, at - segment.start, INDEX_UNIT_SIZE)
        if len(raw) < INDEX_UNIT_SIZE:
            return 0
        _, position, size, *_ = unpack(INDEX_UNIT.struct_code, raw)
        return int(position + size)

    def unloadable_files(self, data_file_size: int) -> Iterator[tuple[Entry, int]]:
        """Files at which a start ends, for their length or for a name that is no number, with the length of a full one.

        Broker: `MmapFileList#doLoad`.
        """
        sizes = dict.fromkeys(self.data_directories, data_file_size)
        sizes[f"{self.directory}/index"] = INDEX_FILE_SIZE
        for entry in self.store.files.get(FileKind.DLEDGER, ()):
            size = sizes.get(entry.path.rpartition("/")[0])
            if size is not None and (entry.size != size or not is_java_long(entry.name)):
                yield entry, size

    def _segments(self, *directories: str) -> tuple[Segment, ...]:
        entries = (
            entry
            for entry in self.store.files.get(FileKind.DLEDGER, ())
            if entry.path.rpartition("/")[0] in directories and is_segment_name(entry.name)
        )
        segments = (Segment(entry, int(entry.name), has_entries=True) for entry in entries)
        return tuple(sorted(segments, key=lambda segment: segment.start))


def dledger_logs(store: Store) -> tuple[DLedgerLog, ...]:
    """The logs of DLedger in a store; a broker uses one."""
    settings = store.settings
    paths = (entry.path for entry in store.files.get(FileKind.DLEDGER, ()))
    directories = {path.partition("/")[0] for path in paths if path.startswith("dledger-")}
    named, own = settings.dledger_directories, None
    if settings.dledger_id is not None:
        own = f"dledger-{settings.dledger_id}"
    elif len(directories) < 2:
        own = min(directories, default=_DEFAULT_DIRECTORY)
    if named and own is not None:
        directories.add(own)
    return tuple(
        DLedgerLog(store, directory, named if named and directory == own else (f"{directory}/data",))
        for directory in sorted(directories)
    )


def dledger_log(store: Store) -> DLedgerLog | None:
    """The log of DLedger that the broker reads: that of its member, or the only one with data; None without one."""
    logs = [log for log in dledger_logs(store) if log.data]
    if store.settings.dledger_id is not None:
        logs = [log for log in logs if log.directory == f"dledger-{store.settings.dledger_id}"]
    return logs[0] if len(logs) == 1 else None


def is_dledger_off(settings: Settings) -> bool:
    """True if the broker's settings turn DLedger off, which is the default."""
    return settings.uses_dledger is False or (settings.defaults_hold and settings.uses_dledger is None)


def reads_dledger(store: Store) -> bool:
    """True if the log or its end is one of DLedger, as far as files and settings tell.

    One that continues the plain log has messages that queues point to, though the settings may turn DLedger off. One
    beside it with the same offsets is what a plain broker has left behind.
    """
    starts = [segment.start for log in dledger_logs(store) for segment in log.data]
    if not starts or not store.commitlog or store.settings.uses_dledger:
        return bool(starts)
    return min(starts) > store.commitlog[-1].start


def data_directories(store: Store) -> tuple[str, ...]:
    """Where the data of DLedger lies, or would lie."""
    return tuple(dict.fromkeys(directory for log in dledger_logs(store) for directory in log.data_directories))


def with_dledger_log(store: Store) -> Store:
    """A store whose commit log is that of DLedger, after the part of a plain one below it.

    The store itself where it has no log of DLedger, or several of which nothing tells the broker's.
    """
    log = dledger_log(store)
    if log is None or not reads_dledger(store):
        return store
    start = log.data[0].start
    older = (segment.entry for segment in store.commitlog if segment.start < start)
    return replace(store, files={**store.files, FileKind.COMMITLOG: (*older, *(file.entry for file in log.data))})


def demand_dledger_data(store: Store) -> None:
    """Refuse a store whose log of DLedger has no file beside a plain log, unless the settings turn DLedger off.

    Raises:
        UnsupportedError: it has none, though there is an index of it, or the group knows entries.
    """
    logs = dledger_logs(store)
    had_entries = any(log.index or log.committed_index is not None for log in logs)
    is_missing = had_entries and not any(log.data for log in logs)
    if store.commitlog and is_missing and not is_dledger_off(store.settings):
        raise UnsupportedError(
            f"{store.view.label}: the log of DLedger has no file in {', '.join(data_directories(store))}: check that "
            "its disk is mounted, and name its place with --broker-conf FILE (storePathDLedgerCommitLog)"
        )


def demand_plain_log(store: Store, *, repairs: bool = False) -> None:
    """Refuse a store of which a command that knows no DLedger would read a part of the log, or none.

    Args:
        repairs: whether the command repairs a store, so that another one may do what is wanted.

    Raises:
        UnsupportedError: its log or the end of it is one of DLedger, and not joined by `with_dledger_log`.
    """
    if reads_dledger(store) and not store.has_dledger_log:
        what = "continues in that of DLedger" if store.commitlog else "belongs to DLedger"
        other = "rmqtool rebuild repairs its consume queues and index, and " if repairs else ""
        raise UnsupportedError(
            f"{store.view.label}: the commit log {what}, which this command does not read; {other}rmqtool convert "
            "--from-dledger writes a store with a plain commit log of it"
        )

"""Files that a broker uses and that nothing here decodes: what they hold is not looked at, and every result says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rmqtool.engine.reading.log_presence import absent_directories, is_log_missing, places_of_log
from rmqtool.errors import UnreadableError
from rmqtool.scan.log import may_hold_data
from rmqtool.store.databases.queue_database import QueueDatabase
from rmqtool.store.databases.rocksdb import HOW_TO_INSTALL, RocksFailure, is_installed
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind, is_file_of_tool
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry, StoreView


class ReadBy(StrEnum):
    """What would look at files that are not looked at."""

    VERIFY = "verify"
    DRIVER = "driver"
    """This command, once the library for RocksDB is installed."""
    SIZES = "sizes"
    """This command, once it is told the sizes that nothing in the store shows."""
    BROKER = "broker"
    """Nothing of rmqtool."""


_NOT_LOOKED_AT: Final = {
    FileKind.CONSUMEQUEUE_ROCKSDB: ("these consume queues in RocksDB are not read", ReadBy.BROKER),
    FileKind.ROCKSDB: ("only verify looks into index, timers and transactions in RocksDB", ReadBy.VERIFY),
    FileKind.POP_ROCKSDB: ("only verify and dump --pop look into what pop consumers have in RocksDB", ReadBy.VERIFY),
    FileKind.CONFIG_ROCKSDB: ("this configuration in RocksDB is not read", ReadBy.BROKER),
    FileKind.TIMER_WHEEL: ("only verify and forecast look into the timer wheel", ReadBy.VERIFY),
    FileKind.TIMER_LOG: ("only verify and forecast look into the timer log", ReadBy.VERIFY),
    FileKind.COMPACTION_LOG: ("only verify and forecast look into the log of compacted topics", ReadBy.VERIFY),
    FileKind.COMPACTION_QUEUE: ("only verify and forecast look into the queues of compacted topics", ReadBy.VERIFY),
    FileKind.DLEDGER: ("only verify looks into the log of DLedger", ReadBy.VERIFY),
    FileKind.CONTROLLER: ("only verify and forecast look into the files of controller mode", ReadBy.VERIFY),
    FileKind.TIERED: ("only verify looks into the tiered store", ReadBy.VERIFY),
    FileKind.TRANSACTION: ("the transaction table is not decoded", ReadBy.BROKER),
}
_NO_FILE: Final = "no file of the commit log is there"
HOLDS_MESSAGES: Final = frozenset(
    kind.value
    for kind in (
        FileKind.COMMITLOG, FileKind.CONSUMEQUEUE_ROCKSDB, FileKind.ROCKSDB, FileKind.COMPACTION_LOG,
        FileKind.COMPACTION_QUEUE, FileKind.DLEDGER, FileKind.TIERED,
    )
)  # fmt: skip
"""Kinds, as a person reads them, without which nobody can say that a message is not there."""
_ROOTS: Final = {
    "consumequeue": FileKind.CONSUMEQUEUE,
    "batchconsumequeue": FileKind.BATCH_CONSUMEQUEUE,
    "index": FileKind.INDEX,
    "config": FileKind.CONFIG,
}
_CURRENT_MAX: Final = 64
"""Bytes of a CURRENT, which is a name and a line break."""
_OF_TIMER: Final = frozenset({FileKind.TIMER_WHEEL, FileKind.TIMER_LOG})
_IN_ROCKSDB: Final = frozenset(kind for kind in _NOT_LOOKED_AT if "RocksDB" in kind.value)


@dataclass(frozen=True)
class UnreadFiles:
    """Files of one kind in one directory of the store.

    Attributes:
        path: the directory, or the file where it lies in the store's root.
        kind: as a person reads it.
        read_by: what would look at them.
    """

    path: str
    kind: str
    reason: str
    read_by: ReadBy = ReadBy.BROKER

    @property
    def text(self) -> str:
        """As a part of a sentence."""
        return f"{self.path} ({self.reason})"

    def as_json(self) -> dict[str, str]:
        return {"path": self.path, "kind": self.kind, "reason": self.reason}


def unread_files(store: Store, looked_at: Collection[FileKind] = ()) -> Iterator[UnreadFiles]:
    """What a broker uses and nothing looks at: what is not where it is looked for, or may not be, and kind by kind.

    Files without content are not used.

    Args:
        looked_at: kinds of these that the caller reads.
    """
    yield from _unlisted(store)
    for kind, (reason, read_by) in _NOT_LOOKED_AT.items():
        if kind in looked_at or (kind in _OF_TIMER and not store.settings.runs_timer):
            continue
        if kind is FileKind.CONFIG_ROCKSDB:
            yield from unread_configs(store)
            continue
        directories: dict[str, list[Entry]] = {}
        for entry in store.files.get(kind, ()):
            top = entry.path.partition("/")[0] or entry.path.rpartition("/")[0]  # DLedger's data may lie elsewhere
            directories.setdefault(top, []).append(entry)
        for path, entries in sorted(directories.items()):
            if kind is FileKind.CONSUMEQUEUE_ROCKSDB and store.queue_database is not None:
                yield from _unread_queues(store.queue_database, path)
            elif _is_used(store, kind, entries):
                yield UnreadFiles(path, kind.value, *(_second(store, kind) or (reason, read_by)))


def _unlisted(store: Store) -> Iterator[UnreadFiles]:
    """A log that is not where it is looked for, and directories that cannot be listed."""
    absent = dict.fromkeys(absent_directories(store), _NO_FILE)
    if is_log_missing(store):
        absent |= dict.fromkeys(places_of_log(store), _NO_FILE)
    for place in store.unread_places:
        if not is_file_of_tool(place.path):
            absent[place.path] = place.cause
    for path, reason in absent.items():
        root = path.partition("/")[0]
        is_log = path in store.settings.commitlog_directories or root == "commitlog"
        kind = FileKind.COMMITLOG if is_log else _ROOTS.get(root, FileKind.UNKNOWN)
        yield UnreadFiles(path, kind.value, reason)


def _second(store: Store, kind: FileKind) -> tuple[str, ReadBy] | None:
    """Why a second log, or queues beside those that are read, are not looked at, and what would."""
    if kind is FileKind.DLEDGER and store.commitlog:
        return "only verify looks into the log of DLedger beside the plain one", ReadBy.VERIFY
    if kind is not FileKind.CONSUMEQUEUE_ROCKSDB or store.queue_kind != "mixed":
        return None
    if not is_installed():
        return f"consume queues in RocksDB: {HOW_TO_INSTALL}", ReadBy.DRIVER
    return "only verify compares these consume queues in RocksDB with those in files", ReadBy.VERIFY


def _unread_queues(database: QueueDatabase, directory: str) -> Iterator[UnreadFiles]:
    """A database of queues that was not read to its end, though a broker would open it."""
    if directory == database.directory and not database.is_read:
        text = f"queues in RocksDB: {database.reason}"
        yield UnreadFiles(directory, FileKind.CONSUMEQUEUE_ROCKSDB.value, text, read_by_after(database.failure))


def unread_configs(store: Store) -> Iterator[UnreadFiles]:
    """The databases of configuration that were not read to their end."""
    if FileKind.CONFIG_ROCKSDB not in store.files:
        return
    from rmqtool.store.config.config_database import read_config_databases

    for database in read_config_databases(store.view):
        if database.failure is not None:
            text = f"configuration in RocksDB: {database.reason}"
            read_by = read_by_after(database.failure)
            yield UnreadFiles(database.directory, FileKind.CONFIG_ROCKSDB.value, text, read_by)


def read_by_after(failure: RocksFailure | None) -> ReadBy:
    """What would read a database in RocksDB that was not read to its end."""
    return ReadBy.DRIVER if failure is RocksFailure.NO_LIBRARY else ReadBy.BROKER


def _is_used(store: Store, kind: FileKind, entries: list[Entry]) -> bool:
    return (
        has_to_open(store.view, entries)
        if kind in _IN_ROCKSDB
        else any(may_hold_data(store.view.open, entry.path) for entry in entries)
    )


def has_to_open(view: StoreView, entries: Sequence[Entry]) -> bool:
    """Whether a RocksDB is in use, or is one without rows that a broker may fail to open.

    Without CURRENT a broker makes a new database; a CURRENT that names no manifest is an error to it.
    """
    return is_rocksdb_used(entries) or any(
        not _names_manifest(view, entry, entries) for entry in entries if entry.name == "CURRENT"
    )


def _names_manifest(view: StoreView, current: Entry, entries: Iterable[Entry]) -> bool:
    try:
        with closing(view.open(current.path)) as source:
            text = read_range(source, 0, _CURRENT_MAX)
    except UnreadableError:
        return False
    return any(entry.size > 0 and text == f"{entry.name}\n".encode(errors="replace") for entry in entries)


def is_rocksdb_used(entries: Iterable[Entry]) -> bool:
    """Whether a RocksDB has tables, or a write-ahead log that is not empty."""
    return any(
        entry.name.endswith(".sst") or (entry.size and entry.name.endswith(".log") and entry.name[:-4].isdigit())
        for entry in entries
    )

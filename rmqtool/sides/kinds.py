"""Every kind of side state in one table, and the files that a command checks or leaves out.

A further kind is one file in this room, and one row in `SIDES`; its check has a name in `side_findings`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from rmqtool.engine.reading.log_presence import absent_directories, is_log_missing, places_of_log
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.findings.account import Account
from rmqtool.findings.finding import Finding
from rmqtool.scan.log import may_hold_data
from rmqtool.sides.timer.files import is_timer_checked
from rmqtool.sides.unread import ReadBy, UnreadFiles, read_by_after
from rmqtool.store.databases.rocksdb import HOW_TO_INSTALL, is_installed
from rmqtool.store.databases.rocksdb_files import has_to_open
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind, is_file_of_tool
from rmqtool.store.view import Entry

VERIFY: Final = "verify"
FORECAST: Final = "forecast"
PLANS: Final = "plans of repairs"
"""The check of a store as a plan leaves it; nobody calls it as a command."""


class SideKind(NamedTuple):
    """State that a broker keeps beside log, queues in files, index and configuration in files.

    Attributes:
        files: what its files hold, as a part of a sentence, by their kind.
        readers: who looks into them.
        is_checked: whether these find something that a broker of a version reads, and can check it.
        check: name of the check that needs no more than the store, in `side_findings`.
        holds_messages: whether nobody can say without it that a message is not there.
    """

    files: Mapping[FileKind, str]
    readers: tuple[str, ...] = ()
    is_checked: Callable[[Store, BrokerRules], bool] = lambda _store, _rules: True
    check: str | None = None
    holds_messages: bool = False


SIDES: Final = (
    SideKind(
        {FileKind.CONSUMEQUEUE_ROCKSDB: "queues in RocksDB"},
        (VERIFY, PLANS),
        lambda store, _rules: store.second_database is not None and store.second_database.is_read,
        holds_messages=True,
    ),
    SideKind(
        {FileKind.ROCKSDB: "index, timers and transactions in RocksDB"},
        (VERIFY,),
        lambda _store, rules: rules.rocksdb_side_store,
        holds_messages=True,
    ),
    SideKind({FileKind.POP_ROCKSDB: "what pop consumers have in RocksDB"}, (VERIFY, "dump --pop")),
    SideKind({FileKind.CONFIG_ROCKSDB: "configuration in RocksDB"}),  # each command reads what it needs of it
    SideKind(
        {FileKind.TIMER_WHEEL: "the timer wheel", FileKind.TIMER_LOG: "the timer log"},
        (VERIFY, FORECAST, PLANS),
        is_timer_checked,
        "timer",
    ),
    SideKind(
        {
            FileKind.COMPACTION_LOG: "the log of compacted topics",
            FileKind.COMPACTION_QUEUE: "the queues of compacted topics",
        },
        (VERIFY, FORECAST, PLANS),
        lambda _store, rules: rules.compaction,
        "compaction",
        holds_messages=True,
    ),
    SideKind(
        {FileKind.DLEDGER: "the log of DLedger"},
        (VERIFY, PLANS),
        lambda _store, rules: rules.dledger,
        "dledger",
        holds_messages=True,
    ),
    SideKind({FileKind.CONTROLLER: "the files of controller mode"}, (VERIFY, FORECAST, PLANS), check="controller"),
    SideKind({FileKind.TIERED: "the tiered store"}, (VERIFY, PLANS), check="tiered", holds_messages=True),
    SideKind({FileKind.TRANSACTION: "the transaction table"}),
)
HOLDS_MESSAGES: Final = frozenset(
    {FileKind.COMMITLOG.value, *(kind.value for side in SIDES if side.holds_messages for kind in side.files)}
)
"""Kinds, as a person reads them, without which nobody can say that a message is not there."""
_ROOTS: Final = {
    "consumequeue": FileKind.CONSUMEQUEUE,
    "batchconsumequeue": FileKind.BATCH_CONSUMEQUEUE,
    "index": FileKind.INDEX,
    "config": FileKind.CONFIG,
}


def side_kinds(store: Store, rules: BrokerRules, reader: str, *, timer: bool = True) -> frozenset[FileKind]:
    """Kinds of files that `VERIFY`, `FORECAST` or `PLANS` looks at; a running broker changes them."""
    return frozenset(
        kind
        for side in SIDES
        if reader in side.readers and (timer or FileKind.TIMER_LOG not in side.files) and side.is_checked(store, rules)
        for kind in side.files
    )


def side_findings(store: Store, rules: BrokerRules, account: Account, kinds: frozenset[FileKind]) -> Iterator[Finding]:
    """Findings about files of these kinds, side by side."""
    # Imported here, for the quick commands ask this table too.
    from rmqtool.sides.compaction import compaction_findings
    from rmqtool.sides.controller import controller_findings
    from rmqtool.sides.dledger import dledger_findings
    from rmqtool.sides.tiered import tiered_findings
    from rmqtool.sides.timer.check import timer_findings

    checks: dict[str, Callable[[Store, BrokerRules, Account], Iterator[Finding]]] = {
        "compaction": compaction_findings,
        "controller": controller_findings,
        "dledger": dledger_findings,
        "tiered": tiered_findings,
        "timer": timer_findings,
    }
    for side in SIDES:
        if side.check is not None and kinds.issuperset(side.files):
            yield from checks[side.check](store, rules, account)


def unread_files(store: Store, looked_at: Collection[FileKind] = ()) -> Iterator[UnreadFiles]:
    """Files that a broker uses and nothing checks: missing or unreadable ones, and others kind by kind.

    Files without content are not used.

    Args:
        looked_at: kinds of side state that the caller reads.
    """
    absent = dict.fromkeys(absent_directories(store), "no file of the commit log is there")
    if is_log_missing(store):
        absent |= dict.fromkeys(places_of_log(store), "no file of the commit log is there")
    absent |= {place.path: place.cause for place in store.unread_places if not is_file_of_tool(place.path)}
    for path, reason in absent.items():
        root = path.partition("/")[0]
        is_log = path in store.settings.commitlog_directories or root == "commitlog"
        kind = FileKind.COMMITLOG if is_log else _ROOTS.get(root, FileKind.UNKNOWN)
        yield UnreadFiles(path, kind.value, reason)
    for side in SIDES:
        for kind, content in side.files.items():
            is_off = kind in (FileKind.TIMER_WHEEL, FileKind.TIMER_LOG) and not store.settings.runs_timer
            if kind not in store.files or kind in looked_at or is_off:
                continue
            if kind is not FileKind.CONFIG_ROCKSDB:
                yield from _unread_directories(store, side, kind, content)
                continue
            from rmqtool.store.config.config_database import read_config_databases

            for database in read_config_databases(store.view):
                if database.failure is not None:
                    reason, read_by = f"{content}: {database.reason}", read_by_after(database.failure)
                    yield UnreadFiles(database.directory, kind.value, reason, read_by)


def _unread_directories(store: Store, side: SideKind, kind: FileKind, content: str) -> Iterator[UnreadFiles]:
    """Directories with files of a kind that a broker uses."""
    directories: dict[str, list[Entry]] = {}
    for entry in store.files[kind]:
        top = entry.path.partition("/")[0] or entry.path.rpartition("/")[0]  # DLedger's data may lie elsewhere
        directories.setdefault(top, []).append(entry)
    for path, entries in sorted(directories.items()):
        database = store.queue_database if kind is FileKind.CONSUMEQUEUE_ROCKSDB else None
        if database is not None:
            if path == database.directory and not database.is_read:
                yield UnreadFiles(path, kind.value, f"{content}: {database.reason}", read_by_after(database.failure))
        elif (
            has_to_open(store.view, entries)
            if "RocksDB" in kind.value
            else any(may_hold_data(store.view.open, entry.path) for entry in entries)
        ):
            yield UnreadFiles(path, kind.value, *_reason(store, side, kind, content))


def _reason(store: Store, side: SideKind, kind: FileKind, content: str) -> tuple[str, ReadBy]:
    """Reason why used files are not checked, and the reader that would check them."""
    if kind is FileKind.CONSUMEQUEUE_ROCKSDB:
        if store.queue_kind != "mixed":
            return f"these consume {content} are not read", ReadBy.BROKER
        if not is_installed():
            return f"consume {content}: {HOW_TO_INSTALL}", ReadBy.DRIVER
        return f"only verify compares these consume {content} with those in files", ReadBy.VERIFY
    if kind is FileKind.DLEDGER and store.commitlog:
        return f"only verify looks into {content} beside the plain one", ReadBy.VERIFY
    commands = [reader for reader in side.readers if reader != PLANS]
    if not commands:
        return f"{content} is not decoded", ReadBy.BROKER
    return f"only {' and '.join(commands)} {'look' if commands[1:] else 'looks'} into {content}", ReadBy.VERIFY


def left_out_files(store: Store, kinds: frozenset[FileKind]) -> Iterator[UnreadFiles]:
    """Files that a check of these kinds does not read."""
    yield from unread_files(store, kinds)
    if FileKind.TIERED in kinds:
        from rmqtool.sides.tiered import undecoded_tiered

        yield from undecoded_tiered(store)

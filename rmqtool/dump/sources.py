"""Choose the reader that makes the rows of files."""

from __future__ import annotations

from rmqtool.dump.request import QUEUES, Request, RowSource
from rmqtool.dump.target import LISTINGS, DumpKind, Target
from rmqtool.errors import UsageError
from rmqtool.store.file_kinds import FileKind, kind_of


def make_source(ask: Request, target: Target) -> RowSource:
    """Reader of a target's files, imported only now; UsageError where a listing has no whole store."""
    if target.kind is DumpKind.COMMITLOG and ask.follow:
        from rmqtool.dump.follow import LogFollower

        return LogFollower(target, ask)
    if target.kind is DumpKind.COMMITLOG:
        from rmqtool.dump.log import LogDump

        return LogDump(target, ask)
    file_kinds = (kind_of(entry.path) for entry in target.entries)
    if target.kind is DumpKind.CONSUMEQUEUE and FileKind.CONSUMEQUEUE_ROCKSDB in file_kinds:
        from rmqtool.dump.queues import QueueDatabaseDump

        return QueueDatabaseDump(target, ask)
    if target.kind in QUEUES:
        from rmqtool.dump.queues import QueueDump

        return QueueDump(target, ask)
    if target.kind in LISTINGS:
        if target.store is None:
            raise UsageError(f"{target.label}: --{target.kind} lists a whole store, not a part of one")
        from rmqtool.dump.listings import ListingDump

        return ListingDump(target, ask)
    if target.kind is DumpKind.DLEDGER:
        from rmqtool.dump.dledger import DLedgerDump

        return DLedgerDump(target, ask)
    if target.kind is DumpKind.TIERED:
        from rmqtool.dump.other_files import TieredDump

        return TieredDump(target, ask)
    if target.kind is DumpKind.ROCKSDB:
        from rmqtool.dump.other_files import SideDatabaseDump

        return SideDatabaseDump(target, ask)
    from rmqtool.dump.other_files import FileDump

    return FileDump(target, ask)

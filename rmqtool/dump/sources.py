"""Choose the reader that makes the rows of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from rmqtool.dump.request import QUEUES, Request, RowSource
from rmqtool.dump.target import LISTINGS, DumpKind, Target
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import UnreadableError, UsageError
from rmqtool.report.file_rows import bad_file_row
from rmqtool.report.rows import DumpRow
from rmqtool.sides.dledger import BadRange, read_entries, read_units
from rmqtool.store.file_kinds import is_segment_name
from rmqtool.store.source import ByteSource
from rmqtool.store.view import Entry

_INDEX: Final = "index"
_BAD: Final = "dledger.bad-entry"
_OF_RECORD: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp_ms", "unique_key")


class DLedgerDump(RowSource):
    """The rows of data or index files."""

    def rows(self) -> Iterator[DumpRow]:
        """All rows, file after file."""
        for entry in self.target.entries:
            if not is_segment_name(entry.name):
                continue  # `currterm` and `checkpoint`, which are texts
            try:
                with closing(self.target.view.open(entry.path)) as source:
                    if entry.path.split("/")[-2:-1] == [_INDEX]:
                        for _, values in read_units(source):
                            yield {"type": "dledger-unit", "file": entry.path, **values}
                    else:
                        yield from self._data(entry, source)
            except UnreadableError as error:
                self.problems.append(str(error))

    def _data(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        for one in read_entries(source, int(entry.name), rules_for(self.ask.broker_version)):
            if isinstance(one, BadRange):
                self.bad_ranges += 1
                yield bad_file_row(entry.path, one.file_position, one.length, _BAD)
                return
            self.bad_ranges += not one.is_right
            row = {name: getattr(one.record, name) if one.record is not None else None for name in _OF_RECORD}
            row["body_crc_ok"] = one.record.body_crc_ok if one.record is not None else None
            yield {
                "type": "dledger-entry", "file": entry.path, **one.values, **row,
                "finding": None if one.is_right else _BAD,
            }  # fmt: skip


def make_source(ask: Request, target: Target) -> RowSource:
    """Reader of a target's files; imported when it is needed, so that a log's first row comes soon.

    Raises:
        UsageError: a listing needs a whole store.
    """
    if target.kind is DumpKind.COMMITLOG and ask.follow:
        from rmqtool.dump.follow import LogFollower

        return LogFollower(target, ask)
    if target.kind is DumpKind.COMMITLOG:
        from rmqtool.dump.log import LogDump

        return LogDump(target, ask)
    if target.has_queue_database:
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
        from rmqtool.dump.sources import DLedgerDump

        return DLedgerDump(target, ask)
    if target.kind is DumpKind.TIERED:
        from rmqtool.dump.other_files import TieredDump

        return TieredDump(target, ask)
    if target.kind is DumpKind.ROCKSDB:
        from rmqtool.dump.other_files import SideDatabaseDump

        return SideDatabaseDump(target, ask)
    from rmqtool.dump.other_files import FileDump

    return FileDump(target, ask)

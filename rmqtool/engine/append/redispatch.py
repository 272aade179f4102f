"""The end of a log that no queue leads to yet: whether something there waits for dispatch, and its dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from rmqtool.engine.append.log_dispatcher import LogDispatcher
from rmqtool.formats import system_flag
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.scan.columns import Row
from rmqtool.scan.log import reader_for
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split
from rmqtool.scan.walk import Walk
from rmqtool.store.directory import Segment, Store
from rmqtool.store.source import read_range


def waits_for_dispatch(store: Store, begin: int, end: int) -> bool:
    """Whether a record between two physical offsets belongs into a queue and may have no unit there.

    Prepared and rolled back ones belong into none. A tombstone has its unit since the repair that made it, but none
    that points to it.
    """
    return any(
        system_flag.takes_queue_entry(row.sys_flag) and row.prepared_transaction_offset != TOMBSTONE
        for _, rows in _records(store, begin, end)
        for row in rows
    )


def dispatch_from(store: Store, dispatcher: LogDispatcher, begin: int, end: int) -> None:
    """Dispatch the records between two physical offsets, block by block.

    Raises:
        UnreadableError: a file cannot be read.
        WriteError: the queues or the index do not take it.
    """
    for segment, rows in _records(store, begin, end):
        start, behind = rows[0].physical_offset, rows[-1].physical_offset + rows[-1].size
        with closing(store.view.open(segment.path)) as source:
            block = read_range(source, start - segment.start, behind - start)
        dispatcher.dispatch(start, bytearray(block))


def _records(store: Store, begin: int, end: int) -> Iterator[tuple[Segment, list[Row]]]:
    """Runs of records side by side, up to the first range that is none."""
    for segment in store.commitlog:
        first, last = max(begin, segment.start), min(end, segment.end)
        if first >= last:
            continue
        with closing(store.view.open(segment.path)) as source:
            split = Split(source, first - segment.start, last - segment.start, segment.start)
            for batch in Walk(split, reader_for(0, compiled=False)()).batches():
                rows = batch.as_rows()
                good = [row for row in rows if row.verdict == Verdict.GOOD and row.magic != MAGIC_BLANK]
                if good:
                    yield segment, good
                if any(row.verdict != Verdict.GOOD for row in rows):
                    return

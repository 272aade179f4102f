"""Finds the records with wrong headers that would move other messages of a queue when it is built again.

`verify` judges records by their units, or by the log's order where they have none and the queue's units can be
believed. Where a queue is built again because its units are wrong, only the log's own order is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from rmqtool.engine.dispatch.queue_entries import DispatchSettings, batch_bytes, queue_entries
from rmqtool.engine.segments.log import Log
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.scan.log import LogFile, ScanOptions, carries_record_crc, plan_log, scan_log
from rmqtool.scan.row_columns import message_rows
from rmqtool.store.directory import Store
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.match.queue_order import QueueOrder
from rmqtool.verify.match.undispatched_headers import Doubts, misplaced_finding, record_off_by_one

MISSING: Final = "commitlog.missing-message"


def misplaced_records(
    store: Store, settings: DispatchSettings, findings: Iterable[Finding], log_end: int, delays_ms: tuple[int, ...]
) -> Iterator[Finding]:
    """Findings about records that stand where the log lacks exactly one other message; reads all of the log.

    Args:
        findings: what a check has about the log; where it has anything, nothing is sure.
        log_end: physical offset of what counts no more.

    Raises:
        UnreadableError: a file may not be opened.
    """
    doubts = Doubts()
    for known in findings:
        if known.id != MISSING:  # told by the order itself
            doubts.add(known)
    records, _ = _order(store, settings, log_end, delays_ms).misplaced(doubts.counter().between)
    with OpenFiles(store.view) as files:
        log = Log(store, settings.rules, files)
        for misplaced in records:
            record = record_off_by_one(log, misplaced)
            if record is not None:
                yield misplaced_finding(store, misplaced, record)


def _order(store: Store, settings: DispatchSettings, log_end: int, delays_ms: tuple[int, ...]) -> QueueOrder:
    order = QueueOrder(begins_at_zero=bool(store.commitlog) and store.commitlog[0].start == 0)
    plan = plan_log([LogFile(partial(store.view.open, segment.path), segment.start) for segment in store.commitlog])
    try:
        for batch in scan_log(plan, ScanOptions(delays_ms, carries_record_crc(plan.splits))):
            rows = batch.as_array()
            rows = message_rows(rows[rows["physical_offset"] < log_end])
            if not rows.size:
                continue
            for entries in queue_entries(rows, batch.topics, batch_bytes(batch), settings, by_bytes=True):
                order.take(entries)
    finally:
        plan.close()
    return order

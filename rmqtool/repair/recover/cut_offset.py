"""Checks the physical offset at which a person wants the log to end: only where a record begins can it be cut."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing

from rmqtool.errors import UsageError
from rmqtool.scan.log import ScanOptions, carries_record_crc, plan_segments, scan_log
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Store


def cut_offset(store: Store, physical_offset: int, delays_ms: tuple[int, ...]) -> int | None:
    """Where to cut the log; None where no record comes after that offset, so that it ends there already.

    Raises:
        UsageError: no record begins there.
        UnreadableError: a file may not be opened.
    """
    offsets = _record_offsets(store, physical_offset, delays_ms)
    if not offsets:
        begin, end = store.commitlog[0].start, store.commitlog[-1].end
        raise UsageError(
            f"--cut-at {physical_offset}: no record starts there; the commit log files go from {begin} to {end}"
        )
    at = bisect_left(offsets, physical_offset)
    if at == len(offsets) or offsets[at] != physical_offset:
        near = " and ".join(str(offset) for offset in offsets[max(0, at - 1) : at + 1])
        raise UsageError(f"--cut-at {physical_offset}: no record starts there; the nearest ones start at {near}")
    is_end = at == len(offsets) - 1 and not any(segment.start >= physical_offset for segment in store.commitlog[1:])
    return None if is_end else physical_offset


def _record_offsets(store: Store, physical_offset: int, delays_ms: tuple[int, ...]) -> list[int]:
    """Where records begin in the files around a physical offset, and where the last one ends, in order."""
    around = [segment for segment in store.commitlog if segment.start <= physical_offset <= segment.end]
    offsets: set[int] = set()
    with closing(plan_segments(store.view.open, around)) as plan:
        for batch in scan_log(plan, ScanOptions(delays_ms, carries_record_crc(plan.splits))):
            rows = batch.as_array()
            rows = rows[rows["verdict"] == Verdict.GOOD]
            offsets.update(rows["physical_offset"].tolist())
            offsets.update((rows["physical_offset"] + rows["size"]).tolist())
    return sorted(offsets)

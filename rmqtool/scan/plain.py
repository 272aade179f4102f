"""The plain reader: one record after the other in Python.

It needs no numpy, and serves small logs, first rows, doubtful cases, and machines without a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rmqtool.scan.columns import Row
from rmqtool.scan.judge import FRAME, MESSAGE_MAGICS, judge_frame, judge_record
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Walk

ROWS_MAX: Final = 512
"""Rows in one batch: few, so that the first ones come at once."""


class PlainReader:
    """See `walk.Reader`."""

    def run(self, walk: Walk, position: int, limit: int) -> tuple[int, Sequence[Row]]:
        rows: list[Row] = []
        window, size = walk.window, walk.split.source.size
        buffer, base = window.buffer, window.start
        end = window.readable_end(position)
        last = min(limit, end - FRAME.size + 1)
        while position < last and len(rows) < ROWS_MAX:
            at = position - base
            verdict, length, magic = judge_frame(buffer[at : at + FRAME.size], size - position)
            if verdict != Verdict.GOOD or magic not in MESSAGE_MAGICS or position + length > end:
                break
            row = judge_record(
                buffer[at : at + length],
                walk.split.physical_offset + position,
                walk.topics,
                walk.delays_ms,
                walk.record_crc,
            )
            if row.verdict != Verdict.GOOD:
                break
            rows.append(row)
            position += length
        return position, rows

    def mark_stale(self, rows: Sequence[Row]) -> Sequence[Row]:
        return [row._replace(verdict=Verdict.STALE) for row in rows]

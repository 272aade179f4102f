"""The plain reader: one record after the other in Python.

It needs no numpy, and serves small logs, first rows, doubtful cases, and machines without a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.scan.columns import Row
from rmqtool.scan.judge import FRAME, judge_messages
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Walk


class PlainReader:
    """See `walk.Reader`."""

    def run(self, walk: Walk, position: int, limit: int) -> tuple[int, Sequence[Row]]:
        split, window = walk.split, walk.window
        base = window.start
        end = window.readable_end(position)
        at, rows = judge_messages(
            window.buffer[: end - base],
            split.source.size - base,
            split.physical_offset + base,
            range(position - base, min(limit, end - FRAME.size + 1) - base),
            walk.topics,
            walk.delays_ms,
            walk.record_crc,
        )
        return base + at, rows

    def mark_stale(self, rows: Sequence[Row]) -> Sequence[Row]:
        return [row._replace(verdict=Verdict.STALE) for row in rows]

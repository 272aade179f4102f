"""Joins the rows of the parts of a piece: what the part before covers is dropped, and a seam that does not fit is seen.

A part that begins in the middle of a body may take a record inside that body for the log's own, if that record's own
offset is right by construction. The part before it knows better: it comes from the record around.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmqtool.scan.columns import Row
from rmqtool.scan.rules import Verdict


@dataclass(frozen=True)
class PartRows:
    """Rows of one part of a piece, and whether what follows them is stale (`walk.Outcome.stale`)."""

    rows: Sequence[Row]
    stale: bool = False


def join_rows(parts: Iterable[PartRows]) -> tuple[list[Row], int | None]:
    """Join the rows of a piece's parts, given in order.

    Returns:
        The rows, and the physical offset from which the piece must be scanned again since no row of a later part
        begins where the rows before end; None, as a rule.
    """
    joined: list[Row] = []
    stale = False
    for part in parts:
        end = joined[-1].physical_offset + joined[-1].size if joined else None
        rows = [row for row in part.rows if end is None or row.physical_offset >= end]
        if rows and end is not None and rows[0].physical_offset != end:
            return joined, end
        joined += (row._replace(verdict=Verdict.STALE) if stale and _may_be_stale(row) else row for row in rows)
        stale = stale or part.stale
    return joined, None


def _may_be_stale(row: Row) -> bool:
    return row.verdict != Verdict.UNREADABLE_RANGE

"""A piece of the log: what one worker scans, and how the results of a piece's parts are joined.

A part that begins in the middle of a body may take a record inside that body for the log's own, if that record's own
offset is right by construction. The part before it knows better, for it comes from the record around.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rmqtool.scan.columns import Row
from rmqtool.scan.rules import Verdict
from rmqtool.store.source import ByteSource


@dataclass(frozen=True)
class Piece:
    """Records that begin in [start, end) of one file.

    Attributes:
        start: file position at which a record begins; with `anchor` any, and the first record from there on is found.
        physical_offset: of the file's first byte.
        more_follows: whether the log goes on in a later file, so that zeros at the end are damage and not the
            untouched rest of the last file.
    """

    source: ByteSource
    start: int
    end: int
    physical_offset: int
    more_follows: bool = False
    anchor: bool = False


@dataclass
class Outcome:
    """What is known when a piece is done.

    Attributes:
        data_end: the file position behind its last record or bad range.
        tail_bytes: zeros behind `data_end` that are the untouched rest of the file.
        stale: whether the log ended in this piece, so that whatever follows was written before it was cut.
        ended: whether a blank, or the last range before the untouched rest, was met: all of the file is accounted for.
    """

    data_end: int = 0
    first_record: int | None = None
    tail_bytes: int = 0
    stale: bool = False
    ended: bool = False


def whole_file(source: ByteSource, physical_offset: int, *, more_follows: bool) -> Piece:
    """The piece that is a whole file."""
    return Piece(source, 0, source.size, physical_offset, more_follows)


def split_piece(piece: Piece, count: int) -> list[Piece]:
    """Cut a piece into parts of about equal length, which find their own first record; `join_rows` joins them."""
    length = piece.end - piece.start
    cuts = sorted({piece.start + length * number // count for number in range(count)} | {piece.start})
    return [
        replace(piece, start=start, end=end, anchor=piece.anchor or start > piece.start)
        for start, end in zip(cuts, [*cuts[1:], piece.end], strict=True)
    ]


@dataclass(frozen=True)
class Part:
    """What came out of one part of a piece."""

    piece: Piece
    rows: Sequence[Row]
    outcome: Outcome


def join_rows(parts: Iterable[Part]) -> tuple[list[Row], int | None]:
    """Join the rows of a piece's parts, given in order.

    Returns:
        The rows, and the physical offset from which the piece must be scanned again: a part finds its own first good
        record, so one that begins with a damaged record does not begin where the rows before it end. None, as a rule.
    """
    joined: list[Row] = []
    stale = ended = False
    end: int | None = None
    for part in parts:
        if end is None and not part.piece.anchor:
            end = part.piece.physical_offset + part.piece.start
        rows = [row for row in part.rows if end is None or row.physical_offset >= end]
        if rows and end is not None and rows[0].physical_offset != end:
            return joined, end
        joined += (_mark_stale(row) if stale else row for row in rows)
        if rows:
            end = rows[-1].physical_offset + rows[-1].size
        stale = stale or part.outcome.stale
        ended = ended or part.outcome.ended
        if not ended and end is not None and end < part.piece.physical_offset + part.piece.end:
            return joined, end
    return joined, None


def _mark_stale(row: Row) -> Row:
    return row if row.verdict == Verdict.UNREADABLE_RANGE else row._replace(verdict=Verdict.STALE)

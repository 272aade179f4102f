"""A piece of the log: what one worker scans. Pieces are cut so that their results can be merged in any grouping."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def whole_file(source: ByteSource, physical_offset: int, *, more_follows: bool) -> Piece:
    """The piece that is a whole file."""
    return Piece(source, 0, source.size, physical_offset, more_follows)


def split_piece(piece: Piece, count: int) -> list[Piece]:
    """Cut a piece into parts of about equal length, which find their own first record; `seams.join_rows` joins them."""
    length = piece.end - piece.start
    cuts = sorted({piece.start + length * number // count for number in range(count)} | {piece.start})
    return [
        replace(piece, start=start, end=end, anchor=piece.anchor or start > piece.start)
        for start, end in zip(cuts, [*cuts[1:], piece.end], strict=True)
    ]

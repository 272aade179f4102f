"""A piece of the log: what one worker scans. Pieces are cut so that their results can be merged in any grouping."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.store.source import ByteSource


@dataclass(frozen=True)
class Piece:
    """Records that begin in [start, end) of one file.

    Attributes:
        start: file position at which a record begins; with `anchor` any position, and the first record behind it is looked for.
        physical_offset: of the file's first byte.
        more_follows: whether the log goes on in a later file; zeros at the end are then damage and not the untouched rest of the last file.
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

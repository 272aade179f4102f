"""A split of the log: what one worker scans, and what is known when it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rmqtool.store.source import ByteSource


@dataclass(frozen=True)
class Split:
    """Records that begin in [start, end) of one file.

    Attributes:
        start: file position at which a record begins; with `anchor` any, and the first record from there on is found.
        physical_offset: of the file's first byte.
        more_follows: whether the log continues in a later file, so that zeros at the end are damage and not the
            untouched rest of the last file.
        has_entries: whether it is a file of DLedger, whose records are in entries; it is never cut.
    """

    source: ByteSource
    start: int
    end: int
    physical_offset: int
    more_follows: bool = False
    anchor: bool = False
    has_entries: bool = False


@dataclass
class SplitOutcome:
    """What is known when a split is done.

    Attributes:
        data_end: the file position after its last record or bad range.
        tail_bytes: zeros after `data_end` that are the untouched rest of the file.
        stale: whether the log ended in this split, so that whatever follows was written before it was cut.
        ended: whether a blank, or the last range before the untouched rest, was met: all of the file is accounted for.
    """

    data_end: int = 0
    first_record: int | None = None
    tail_bytes: int = 0
    stale: bool = False
    ended: bool = False


def whole_file(source: ByteSource, physical_offset: int, *, more_follows: bool, has_entries: bool = False) -> Split:
    """The split that is a whole file."""
    return Split(source, 0, source.size, physical_offset, more_follows, has_entries=has_entries)


def sub_splits(split: Split, cuts: Iterable[int]) -> list[Split]:
    """Cut a split at file positions into parts, which find their own first record; see `parts`."""
    starts = sorted({*cuts, split.start})
    return [
        replace(split, start=start, end=end, anchor=split.anchor or start > split.start)
        for start, end in zip(starts, [*starts[1:], split.end], strict=True)
    ]

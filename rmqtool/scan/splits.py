"""One file of the log in several parts, for several threads: where to cut it, and whether what came out fits together.

A part finds its own first record; in the middle of a body it may take a record inside that body for the log's own, if
that record's own offset is right by construction. Where all parts hold nothing but good records, and each begins where
the one before it ends, they are what one walk over the file gives. Else that walk has to be made: it alone knows what
lies around damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.lazy_source import LazySource
from rmqtool.scan.split import Split, SplitOutcome, sub_splits
from rmqtool.store.source import ByteSource

PART_BYTES: Final = 64 << 20
"""Bytes of a part that are worth a thread's start and a first record's search."""


def splits_of(split: Split, part_bytes: int = PART_BYTES, count: int | None = None) -> list[Split]:
    """Cut a whole file into parts of about equal data; the untouched rest of a last file belongs to the last one.

    Holes count for nothing: a sparse file may be as long as any number says.

    Args:
        count: how many; None makes parts of about `part_bytes`.
    """
    if split.has_entries:
        return [split]
    data_end = split.end if split.more_follows else last_data_end(split.source, split.start, split.end)
    extents = list(split.source.extents(split.start, data_end))
    data_bytes = sum(end - start for start, end in extents)
    if count is None:
        count = data_bytes // part_bytes
    if count < 2 or data_bytes < count:
        return [split]
    parts = sub_splits(replace(split, end=data_end), _cuts(extents, data_bytes, count))
    parts[-1] = replace(parts[-1], end=split.end)
    # Each with a source of its own: threads that share one would close it under each other.
    return [replace(part, source=_own(part)) for part in parts]


def has_parts(split: Split, part_bytes: int = PART_BYTES) -> bool:
    """Whether a file has the data of two parts at least; a sparse one is long and has few bytes."""
    if split.end - split.start < 2 * part_bytes:
        return False
    try:
        return sum(end - start for start, end in split.source.extents(split.start, split.end)) >= 2 * part_bytes
    finally:
        split.source.close()


def _cuts(extents: Sequence[tuple[int, int]], data_bytes: int, count: int) -> Iterator[int]:
    """The file positions before which a file holds the first, second ... of so many equal shares of its data."""
    before, numbers = 0, iter(range(count))
    number = next(numbers)
    for start, end in extents:
        while (share := data_bytes * number // count) < before + end - start:
            yield start + share - before
            if (number := next(numbers, -1)) < 0:
                return
        before += end - start


def merged_outcome(split: Split, parts: Iterable[SplitOutcome]) -> SplitOutcome | None:
    """What one walk over a file comes to whose parts, in order, hold good records only; None if they do not fit."""
    position, ended = split.start, False
    size = split.source.size
    for outcome in parts:
        if outcome.first_record is None:
            continue  # the record of an earlier part reaches over it, or it is untouched
        if ended or outcome.first_record != position:
            return None
        position, ended = outcome.data_end, outcome.ended
        if outcome.tail_bytes:
            return replace(outcome, first_record=split.start)
    if position < size and (split.more_follows or last_data_end(split.source, position, size) > position):
        return None
    return SplitOutcome(position, split.start, size - position, ended=ended)


def _own(split: Split) -> ByteSource:
    source = split.source
    return LazySource(source.name, source.size, source.open) if isinstance(source, LazySource) else source

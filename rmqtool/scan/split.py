"""A split of the log for one worker, its outcome, and the division of files into parts.

A part of a file finds its own first record; in the middle of a body it may take a record inside that body for the log's
own, if that record's own offset is right by construction. Where all parts hold nothing but good records, and each
begins where the one before it ends, they are what one walk over the file gives. Else that walk has to be made: it alone
knows what lies around damage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.source import ByteSource


@dataclass
class LazySource:
    """A source that is opened by the first read, and again by the first one after `close`.

    Name and size are those of the first look, so that a walk over a file that changes meanwhile still ends.
    """

    name: str
    size: int
    open: Callable[[], ByteSource]
    _opened: ByteSource | None = field(default=None, repr=False)

    @classmethod
    def look(cls, opener: Callable[[], ByteSource]) -> LazySource:
        """Open a file for the first time.

        Raises:
            UnreadableError: it may not be opened.
        """
        source = opener()
        return cls(source.name, source.size, opener, source)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._source().read_into(position, buffer)

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        try:
            source = self._source()
        except OSError:
            return iter([(start, end)] if start < end else [])
        return source.extents(start, end)

    @property
    def identity(self) -> Hashable | None:
        try:
            return self._source().identity
        except OSError:
            return None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _source(self) -> ByteSource:
        if self._opened is None:
            try:
                self._opened = self.open()
            except UnreadableError as error:  # gone or forbidden since the first look: no bytes come from it any more
                raise OSError(str(error)) from error
        return self._opened


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
    """Result of a split.

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
    source = split.source
    if not isinstance(source, LazySource):
        return parts
    # Each with a source of its own: threads that share one would close it under each other.
    return [replace(part, source=LazySource(source.name, source.size, source.open)) for part in parts]


def has_parts(split: Split, part_bytes: int = PART_BYTES) -> bool:
    """True if a file has the data of at least two parts; a sparse one is long and has few bytes."""
    if split.end - split.start < 2 * part_bytes:
        return False
    try:
        return sum(end - start for start, end in split.source.extents(split.start, split.end)) >= 2 * part_bytes
    finally:
        split.source.close()


def _cuts(extents: Sequence[tuple[int, int]], data_bytes: int, count: int) -> Iterator[int]:
    """File positions that divide a file into `count` equal shares of its data."""
    before, numbers = 0, iter(range(count))
    number = next(numbers)
    for start, end in extents:
        while (share := data_bytes * number // count) < before + end - start:
            yield start + share - before
            if (number := next(numbers, -1)) < 0:
                return
        before += end - start


def merged_outcome(split: Split, parts: Iterable[SplitOutcome]) -> SplitOutcome | None:
    """Outcome of one walk over a file, from its parts in order, all of good records; None if they do not fit."""
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

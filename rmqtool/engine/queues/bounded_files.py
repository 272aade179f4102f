"""The files of a queue with the end found by a handful of reads, so that thousands of large queues take a second.

A load reads up to three whole files of each queue. Here a file that takes little room on the disk is read as a load
reads it, and in a larger one the end is found by halving, which is the same place unless a unit in the middle is
damaged.
"""

from __future__ import annotations

from typing import Final

from rmqtool.engine.queues.loaded_files import LoadedFiles, recovered_end, with_content
from rmqtool.engine.queues.unit import UnitKind
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.store.directory import QueueFiles, Segment

READ_WHOLE_BYTES: Final = 1 << 18
"""A file that takes up to this much on the disk is read from its start to its end."""
BLOCK_UNITS: Final = 3072


def bounded_files(queue: QueueFiles, file_size: int, kind: UnitKind, files: OpenFiles) -> LoadedFiles:
    """A queue's files with their likely end.

    Raises:
        UnreadableError: a file cannot be read.
    """
    segments = with_content(queue.segments) if file_size > 0 else ()

    def length_of(segment: Segment) -> int:
        return _valid_units(segment, file_size, kind, files) * kind.size

    end = recovered_end(segments, file_size, length_of).end
    return LoadedFiles([segment for segment in segments if segment.start <= end], file_size, kind, files, end)


def _valid_units(segment: Segment, file_size: int, kind: UnitKind, files: OpenFiles) -> int:
    """How many valid units a file begins with."""
    count = min(file_size, segment.size) // kind.size
    if segment.entry.allocated_bytes <= READ_WHOLE_BYTES:
        return _counted(segment, 0, count, kind, files)
    low, high = 0, count  # all units below `low` are taken as valid; `high` is the first one taken as invalid
    while high - low > BLOCK_UNITS:
        middle = (low + high) // 2
        if kind.valid_count(files.read(segment.path, middle * kind.size, kind.size)) == 1:
            low = middle + 1
        else:
            high = middle
    return _counted(segment, low, high, kind, files)


def _counted(segment: Segment, first: int, end: int, kind: UnitKind, files: OpenFiles) -> int:
    """Number of the first invalid unit of [first, end)."""
    while first < end:
        count = min(BLOCK_UNITS, end - first)
        valid = kind.valid_count(files.read(segment.path, first * kind.size, count * kind.size))
        first += valid
        if valid < count:
            break
    return first

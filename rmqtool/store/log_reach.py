"""Tells whether a log file was cut: a queue unit, or a record of its own, reaches over the file's end.

A broker never writes a record across the end of a log file, so the file was longer when that record was written. A unit
is not believed where the log has a record at its place that ends inside the file, or where the next unit of its queue
leads into what it names: then the unit's size is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.formats.commitlog import MESSAGE_MAGICS
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import Entry, StoreView

_UNIT: Final = struct.Struct(">qiq")
_FRAME: Final = struct.Struct(">ii")
_WALKED_MAX: Final = 64 << 10
_BLOCK: Final = _UNIT.size << 15


def record_end_across(view: StoreView, queue_files: Iterable[Entry], last: Entry, begin: int) -> int | None:
    """The highest physical offset to which units or the file's records reach, if one of them crosses the log's end.

    Args:
        queue_files: files of plain queues, each of whose units stand in the order of the log.
        last: the last file of the log, which begins at the physical offset `begin`.
    """
    end = begin + last.size
    highest = begin + _end_of_records(view, last)
    crosses = highest > end

    def ends_inside(physical_offset: int) -> bool:
        """Whether a record stands there in the file, and ends inside it by what it says itself."""
        if physical_offset < begin:
            return False
        with closing(view.open(last.path)) as source:
            frame = read_range(source, physical_offset - begin, _FRAME.size)
        if len(frame) < _FRAME.size:
            return False
        size, magic = _FRAME.unpack(frame)
        return magic in MESSAGE_MAGICS and _FRAME.size < size <= end - physical_offset

    for entry in queue_files:
        with suppress(UnreadableError), closing(view.open(entry.path)) as source:
            crosses_here, reach = _look(source, end, ends_inside)
            crosses, highest = crosses or crosses_here, max(highest, reach)
    return highest if crosses else None


def _end_of_records(view: StoreView, last: Entry) -> int:
    """Where the last of a file's records ends by what it says itself; 0 of a file that takes long to walk through."""
    position = 0
    if last.size >= _WALKED_MAX:
        return position
    with suppress(UnreadableError), closing(view.open(last.path)) as source:
        raw = read_range(source, 0, last.size)
        while position + _FRAME.size <= len(raw):
            size, magic = _FRAME.unpack_from(raw, position)
            if magic not in MESSAGE_MAGICS or size <= _FRAME.size:
                break
            position += size
    return position


def _look(source: ByteSource, end: int, ends_inside: Callable[[int], bool]) -> tuple[bool, int]:
    """Whether a unit crosses the end, and how far the units reach; read backwards, down to the first one below it."""
    crosses, highest, following = False, 0, JAVA_LONG_MAX
    for low, high in reversed(list(source.extents(0, source.size))):
        stop = -(-high // _UNIT.size) * _UNIT.size
        while stop > low:
            start = max(low // _UNIT.size * _UNIT.size, stop - _BLOCK)
            raw = read_range(source, start, stop - start)
            below = False
            units = list(_UNIT.iter_unpack(raw[: len(raw) // _UNIT.size * _UNIT.size]))
            for physical_offset, size, _ in reversed(units):
                if physical_offset >= 0 and 0 < size < (1 << 31) - 1:
                    crosses_here = physical_offset < end < physical_offset + size
                    is_overlapped = physical_offset < following < physical_offset + size
                    following = physical_offset
                    if crosses_here and (is_overlapped or ends_inside(physical_offset)):
                        continue
                    highest = max(highest, physical_offset + size)
                    crosses |= crosses_here
                    below |= physical_offset + size <= end
            if below:
                return crosses, highest
            stop = start
    return crosses, highest

"""Tells whether queue units show that a log file was cut: one of them names a record that reaches over the file's end.

A broker never writes a record across the end of a log file, so the file was longer when that record was written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.store.source import ByteSource, read_range
from rmqtool.store.view import Entry, StoreView

_UNIT: Final = struct.Struct(">qiq")
_BLOCK: Final = _UNIT.size << 15


def record_end_across(view: StoreView, queue_files: Iterable[Entry], end: int) -> int | None:
    """The highest physical offset to which units reach, if one of them names a record that crosses `end`, else None.

    Args:
        queue_files: files of plain queues, each of whose units stand in the order of the log.
    """
    crosses, highest = False, 0
    for entry in queue_files:
        try:
            source = view.open(entry.path)
        except UnreadableError:
            continue
        try:
            crosses_here, reach = _look(source, end)
        except UnreadableError:
            continue
        finally:
            source.close()
        crosses, highest = crosses or crosses_here, max(highest, reach)
    return highest if crosses else None


def _look(source: ByteSource, end: int) -> tuple[bool, int]:
    """Whether a unit crosses the end, and how far the units reach; read backwards, down to the first one below it."""
    crosses, highest = False, 0
    for low, high in reversed(list(source.extents(0, source.size))):
        stop = -(-high // _UNIT.size) * _UNIT.size
        while stop > low:
            start = max(low // _UNIT.size * _UNIT.size, stop - _BLOCK)
            raw = read_range(source, start, stop - start)
            below = False
            for physical_offset, size, _ in _UNIT.iter_unpack(raw[: len(raw) // _UNIT.size * _UNIT.size]):
                if physical_offset >= 0 and 0 < size < (1 << 31) - 1:
                    highest = max(highest, physical_offset + size)
                    crosses |= physical_offset < end < physical_offset + size
                    below |= physical_offset + size <= end
            if below:
                return crosses, highest
            stop = start
    return crosses, highest

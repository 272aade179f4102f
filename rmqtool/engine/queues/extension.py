"""The extension of a consume queue: the real tags code and store time behind an address in a unit.

Broker: `ConsumeQueueExt#get`, `ConsumeQueueExt#recover`, `ConsumeQueueExt.CqExtUnit#read`, `#readBySkip`.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import TYPE_CHECKING, Final

from rmqtool.engine.queues.unit import Extension
from rmqtool.engine.segments.open_files import OpenFiles
from rmqtool.formats.consumequeue import EXTENSION_ADDRESS_BASE, EXTENSION_HEAD_SIZE, EXTENSION_UNIT, extension_position
from rmqtool.store.directory import QueueFiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEAD: Final = Struct(EXTENSION_UNIT.struct_code)
assert _HEAD.size == EXTENSION_HEAD_SIZE
_SIZE_BYTES: Final = 2
"""The length of a unit, a signed number, stands first in it."""
_BITMAP_LENGTH_AT: Final = 18
_BLOCK: Final = 1 << 20


def broken_chain(path: str, file_size: int, files: OpenFiles) -> int | None:
    """The unit of an extension file whose length leads out of it, which ends a broker's load; None where none does.

    Args:
        file_size: bytes of the file.

    Returns:
        The unit's file position.

    Raises:
        UnreadableError: the file cannot be read.
    """
    position = block_start = 0
    block = b""
    while position + _SIZE_BYTES <= file_size:
        if not block_start <= position <= block_start + len(block) - _SIZE_BYTES:
            block_start, block = position, files.read(path, position, _BLOCK)
        at = position - block_start
        length = int.from_bytes(block[at : at + _SIZE_BYTES], "big", signed=True)
        if length <= 0:
            return None
        if position + length > file_size:
            return position
        position += length
    return position


class QueueExtension:
    """Looks up addresses in the extension files of one queue."""

    def __init__(self, queue_files: QueueFiles, file_size: int, files: OpenFiles) -> None:
        self._segments = queue_files.segments
        self._starts = [segment.start for segment in queue_files.segments]
        self._file_size = file_size
        self._files = files

    def unit(self, address: int) -> Extension | None:
        """The unit at an address; None where there is none.

        Raises:
            UnreadableError: the file cannot be read.
        """
        position = extension_position(address)
        index = bisect_right(self._starts, position) - 1
        if index < 0 or not self._file_size or position >= self._starts[index] + self._file_size:
            return None
        raw = self._files.read(self._segments[index].path, position % self._file_size, EXTENSION_HEAD_SIZE)
        if len(raw) < EXTENSION_HEAD_SIZE:
            return None
        unit = Extension(*_HEAD.unpack(raw))
        return unit if unit.size >= 1 else None

    def ends_pulls(self, addresses: NDArray[np.int64]) -> NDArray[np.bool_]:
        """At which addresses a broker throws: by its length, the bitmap of the unit reaches past the end of the file.

        Raises:
            UnreadableError: a file cannot be read.
        """
        import numpy as np

        throws = np.zeros(addresses.size, np.bool_)
        if not self._file_size:
            return throws
        positions = addresses - EXTENSION_ADDRESS_BASE
        numbers = np.searchsorted(np.array(self._starts, np.int64), positions, "right") - 1
        for number in np.unique(numbers[numbers >= 0]).tolist():
            is_there = (numbers == number) & (positions < self._starts[number] + self._file_size)
            at = positions % self._file_size
            for block in np.unique(at[is_there] // _BLOCK).tolist():
                chosen = np.flatnonzero(is_there & (at // _BLOCK == block))
                throws[chosen] = self._throws(self._segments[number].path, block * _BLOCK, at[chosen])
        return throws

    def _throws(self, path: str, block_start: int, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The same of units of one file that begin in one block (`CqExtUnit#read`)."""
        import numpy as np

        content = self._files.read(path, block_start, min(_BLOCK + EXTENSION_HEAD_SIZE, self._file_size - block_start))
        raw = np.frombuffer(content.ljust(_BLOCK + EXTENSION_HEAD_SIZE, b"\0"), np.uint8)
        heads = raw[(at - block_start)[:, np.newaxis] + np.arange(EXTENSION_HEAD_SIZE)]
        lengths = heads[:, :_SIZE_BYTES].copy().view(">i2")[:, 0]
        bitmap_lengths = heads[:, _BITMAP_LENGTH_AT:].copy().view(">i2")[:, 0].astype(np.int64)
        ends = at + EXTENSION_HEAD_SIZE + bitmap_lengths.clip(min=0)
        throws: NDArray[np.bool_] = (lengths >= 1) & (at + _SIZE_BYTES <= self._file_size) & (ends > self._file_size)
        return throws

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


def chain_end(path: str, file_size: int, files: OpenFiles) -> tuple[int, bool]:
    """Where the units end that a load walks over, and whether it fails there, for a length leads out of the file.

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
        if length <= 0 or position + length > file_size:
            return position, length > 0
        position += length
    return position, True


class QueueExtension:
    """Looks up addresses in the extension files of one queue.

    Every method raises UnreadableError where the disk does not give what it reads.

    Attributes:
        written: units that dispatch has added since the extension was cut.
    """

    def __init__(self, queue_files: QueueFiles, file_size: int, files: OpenFiles) -> None:
        self.written = 0
        self._segments = queue_files.segments
        self._starts = [segment.start for segment in queue_files.segments]
        self._file_size = file_size
        self._files = files
        self._end = file_size
        """Bytes of the last file that a broker reads."""

    def load(self) -> str | None:
        """Find the end of the units in the last file; why a broker fails at that, if it does."""
        for segment in self._segments:
            self._end, fails = chain_end(segment.path, segment.size, self._files)
            if fails:
                return f"{segment.path}: the unit at {self._end} points outside the file"
        return None

    def cut(self, address: int) -> str | None:
        """End after the unit of a queue's last address, if there is one; why a broker fails at that, if it does."""
        import numpy as np

        self.written = 0
        if self.ends_pulls(np.array([address], np.int64))[0]:
            return f"the bitmap of the unit at {extension_position(address)} reaches past the end of its file's units"
        unit = self.unit(address)
        at = extension_position(address) - self._starts[-1] if unit is not None else -1
        if unit is not None and 0 <= at < self._end:
            self._end = at + unit.size
        return None

    def unit(self, address: int) -> Extension | None:
        """The unit at an address; None where there is none."""
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
        """At which addresses a broker throws: by its length, the bitmap of the unit reaches past the units of the file.

        After its end, the last file has nothing, or what dispatch has written there since.
        """
        import numpy as np

        throws = np.zeros(addresses.size, np.bool_)
        if not self._file_size:
            return throws
        positions = addresses - EXTENSION_ADDRESS_BASE
        numbers = np.searchsorted(np.array(self._starts, np.int64), positions, "right") - 1
        for number in np.unique(numbers[numbers >= 0]).tolist():
            is_last = number == len(self._starts) - 1
            begun = self._end if is_last else self._file_size
            end = min(self._file_size, begun + self.written * EXTENSION_HEAD_SIZE)
            is_there = (numbers == number) & (positions < self._starts[number] + begun)
            at = positions % self._file_size
            for block in np.unique(at[is_there] // _BLOCK).tolist():
                chosen = np.flatnonzero(is_there & (at // _BLOCK == block))
                throws[chosen] = self._throws(self._segments[number].path, block * _BLOCK, at[chosen], end)
        return throws

    def _throws(self, path: str, block_start: int, at: NDArray[np.int64], end: int) -> NDArray[np.bool_]:
        """Mask of the units of one file and one block at which the broker throws (`CqExtUnit#read`)."""
        import numpy as np

        content = self._files.read(path, block_start, min(_BLOCK + EXTENSION_HEAD_SIZE, self._file_size - block_start))
        raw = np.frombuffer(content.ljust(_BLOCK + EXTENSION_HEAD_SIZE, b"\0"), np.uint8)
        heads = raw[(at - block_start)[:, np.newaxis] + np.arange(EXTENSION_HEAD_SIZE)]
        lengths = heads[:, :_SIZE_BYTES].copy().view(">i2")[:, 0]
        bitmap_lengths = heads[:, _BITMAP_LENGTH_AT:].copy().view(">i2")[:, 0].astype(np.int64)
        ends = at + EXTENSION_HEAD_SIZE + bitmap_lengths.clip(min=0)
        throws: NDArray[np.bool_] = (lengths >= 1) & (at + _SIZE_BYTES <= end) & (ends > end)
        return throws

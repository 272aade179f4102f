"""Writes one consume queue's extension: one unit per record, without bitmap, as a broker that knows no filters does.

Broker: `ConsumeQueueExt#put`, `#fullFillToEnd`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rmqtool.engine.dispatch.queue_entries import Int64s
from rmqtool.engine.dispatch.queue_writer import StreamWriter
from rmqtool.formats.consumequeue import (
    EXTENSION_ADDRESS_BASE,
    EXTENSION_END_OF_FILE,
    EXTENSION_END_SIZE,
    EXTENSION_HEAD_SIZE,
    EXTENSION_UNIT,
)
from rmqtool.store.sink import FileSink

_UNIT: Final = EXTENSION_UNIT.dtype
assert _UNIT.itemsize == EXTENSION_HEAD_SIZE


@dataclass(frozen=True)
class ExtensionEnd:
    """Where writing continues: start of the last file (None without files), and stream position after its last unit.

    Attributes:
        last_path: the last file's path; None where its name is the usual one.
    """

    last_start: int | None = None
    end: int = 0
    last_path: str | None = None


class ExtensionWriter(StreamWriter):
    """The extension of one queue."""

    def __init__(self, sink: FileSink, directory: str, file_size: int, end: ExtensionEnd | None = None) -> None:
        """Continue at an end, or begin; no file is made before the first unit.

        Args:
            directory: path of the extension in the store.
            file_size: bytes of a full file, which must hold one unit and the end mark.
        """
        assert file_size >= EXTENSION_HEAD_SIZE + EXTENSION_END_SIZE, file_size
        end = end or ExtensionEnd()
        super().__init__(sink, directory, file_size, (end.last_start, end.last_path), end.end)

    @property
    def end(self) -> ExtensionEnd:
        """Where writing continues."""
        return ExtensionEnd(self._last_start, self._end)

    def put(self, tags_codes: Int64s, store_timestamps_ms: Int64s) -> Int64s:
        """Store units; the addresses that stand for them in the queue."""
        units = np.zeros(tags_codes.size, _UNIT)
        units["size"] = EXTENSION_HEAD_SIZE
        units["tags_code"] = tags_codes
        units["store_timestamp_ms"] = store_timestamps_ms
        addresses = np.empty(units.size, np.int64)
        at = 0
        while at < units.size:
            start = self._file_with_room()
            room = (start + self._file_size - self._end - EXTENSION_END_SIZE) // EXTENSION_HEAD_SIZE
            stored = min(room, units.size - at)
            self._sink.write_at(self._path(start), self._end - start, units[at : at + stored].tobytes())
            places = self._end + EXTENSION_HEAD_SIZE * np.arange(stored)
            addresses[at : at + stored] = places + EXTENSION_ADDRESS_BASE
            self._end += EXTENSION_HEAD_SIZE * stored
            at += stored
        return addresses

    def _file_with_room(self) -> int:
        """Start of a file with room for a unit; a file without room gets its end mark."""
        start = self._last_start
        if start is not None:
            left = start + self._file_size - self._end
            if left >= EXTENSION_HEAD_SIZE + EXTENSION_END_SIZE:
                return start
            if left > 0:
                mark = EXTENSION_END_OF_FILE.to_bytes(2, "big", signed=True)
                self._sink.write_at(self._path(start), self._end - start, mark[:left])
        self._last_start = self._end = 0 if start is None else start + self._file_size
        self._sink.create(self._path(self._end), self._file_size)
        return self._end

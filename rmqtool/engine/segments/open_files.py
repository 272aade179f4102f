"""The files of a store that an answer reads from: opened when first needed, kept open, never too many of them."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rmqtool.store.source import ByteSource, Closable, read_range
from rmqtool.store.view import StoreView

OPEN_MAX: Final = 64


class OpenFiles(Closable):
    """Positioned reads by path; the file that was not read for the longest time is closed first."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._open: OrderedDict[str, ByteSource] = OrderedDict()

    def read(self, path: str, position: int, length: int) -> bytes:
        """Bytes of a range, fewer where the file ends.

        Raises:
            UnreadableError: the file or the range cannot be read.
        """
        return read_range(self._source(path), position, length)

    def _source(self, path: str) -> ByteSource:
        cached = self._open.get(path)
        if cached is not None:
            self._open.move_to_end(path)
            return cached
        source = self._view.open(path)
        self._open[path] = source
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)[1].close()
        return source

    def close(self) -> None:
        """Close all; a later read opens its file again."""
        while self._open:
            self._open.popitem()[1].close()

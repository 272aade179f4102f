"""The compiled reader: good records by the million, in numba; the walk and all judging of what is not plainly good stay in Python.

Nothing here may fail where numba cannot work (no compiler, no writable folder): `is_available` says so and the plain reader takes over.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.scan.columns import Row, row_dtype
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Walk

if TYPE_CHECKING:
    import numpy

ROWS_MAX: Final = 8192
"""Rows in one batch: about a megabyte, so that they stay in the cache for whoever looks at them next."""
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()


@functools.cache
def is_available() -> bool:
    """Whether the kernel can be loaded or compiled here."""
    try:
        load_kernel()
    except Exception:  # noqa: BLE001  whatever keeps a compiler from working, the plain reader does the job
        return False
    return True


@functools.cache
def load_kernel() -> ModuleType:
    """The kernel module, its symbol registered and its cache folder chosen."""
    import numba

    from rmqtool.scan import crc_symbol

    numba.config.CACHE_DIR = str(cache_folder())
    crc_symbol.register()
    from rmqtool.scan import kernel

    return kernel


def cache_folder() -> Path:
    """Where compiled code is kept: beside the package, in the user's cache, or in a folder that lives as long as this process."""
    beside = Path(__file__).parent / "__pycache__"
    candidates = [beside]
    try:
        candidates.append(Path.home() / ".cache" / "rmqtool")
    except RuntimeError:
        pass  # no home
    for folder in candidates:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return Path(_private_folder().name)


@functools.cache
def _private_folder() -> tempfile.TemporaryDirectory[str]:
    # Private to the user: code loaded from a folder that others may write to would be theirs.
    return tempfile.TemporaryDirectory(prefix=f"rmqtool-{os.getuid()}-")


class CompiledReader:
    """See `walk.Reader`. One object serves one piece; its batches share one array of rows."""

    def __init__(self) -> None:
        import numpy as np

        self._kernel = load_kernel()
        self._rows = np.zeros(ROWS_MAX, row_dtype())
        self._topics = _KernelTopics(self._kernel)
        self._last_topic = -1

    def run(self, walk: Walk, position: int, limit: int) -> tuple[int, Sequence[Row]]:
        import numpy as np

        window = walk.window
        if window.unreadable or position >= window.end:
            return position, []
        self._topics.follow(walk.topics.names)
        buffer = np.frombuffer(window.storage, np.uint8)
        at, count, self._last_topic = self._kernel.walk_block(
            buffer, buffer.ctypes.data, position - window.start, window.end - window.start, limit - window.start,
            walk.piece.physical_offset + window.start, walk.record_crc, self._topics.schedule_number,
            self._topics.arena, self._topics.starts, self._topics.slots, self._last_topic, self._rows,
        )  # fmt: skip
        return window.start + int(at), cast(Sequence[Row], self._rows[:count])

    def mark_stale(self, rows: Sequence[Row]) -> Sequence[Row]:
        cast("numpy.ndarray[Any, Any]", rows)["verdict"] = Verdict.STALE
        return rows


class _KernelTopics:
    """The piece's topic table as arrays that the kernel can search."""

    def __init__(self, kernel: ModuleType) -> None:
        import numpy as np

        self._kernel = kernel
        self._known = 0
        self.schedule_number = -1
        self.arena = np.zeros(1 << 12, np.uint8)
        self.starts = np.zeros(1 << 8, np.int64)
        self.slots = np.full(1 << 9, -1, np.int32)

    def follow(self, names: Sequence[bytes]) -> None:
        """Enter the topics that the plain judge has met since."""
        import numpy as np

        while self._known < len(names):
            number, name = self._known, names[self._known]
            start = int(self.starts[number])
            while start + len(name) > self.arena.size:
                self.arena = np.concatenate([self.arena, np.zeros_like(self.arena)])
            if number + 2 > self.starts.size:
                self.starts = np.concatenate([self.starts, np.zeros_like(self.starts)])
            self.arena[start : start + len(name)] = np.frombuffer(name, np.uint8)
            self.starts[number + 1] = start + len(name)
            self._known += 1
            if self._known * 2 > self.slots.size:
                self.slots = np.full(self.slots.size * 2, -1, np.int32)
                for earlier in range(self._known):
                    self._kernel.insert_topic(earlier, self.arena, self.starts, self.slots)
            else:
                self._kernel.insert_topic(number, self.arena, self.starts, self.slots)
            if name == _SCHEDULE_TOPIC:
                self.schedule_number = number

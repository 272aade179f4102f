"""The compiled reader: good records by the million, in numba; what is not plainly good is judged in Python.

Nothing here may fail where numba cannot work: `is_available` says so, and the plain reader takes over.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.memory import memory_budget, take
from rmqtool.scan.checksum import checksum_function
from rmqtool.scan.columns import Row, row_dtype
from rmqtool.scan.judge import TopicTable
from rmqtool.scan.kernels.code_cache import is_kept
from rmqtool.scan.walk import Walk

if TYPE_CHECKING:
    pass

ROWS_MAX: Final = 8192
"""Rows in one batch: about a megabyte, so that they stay in the cache for whoever looks at them next."""
LOADING_BYTES: Final = 48 << 20
"""Memory that numba takes with code that is in its cache, measured."""
COMPILING_BYTES: Final = 104 << 20
"""Memory that numba takes where it compiles what a check of a log needs, measured."""
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_LOADING: Final = Lock()


@functools.cache
def is_available() -> bool:
    """True if kernels can be compiled here, or loaded; several threads may ask, and memory is taken once."""
    with _LOADING:
        numba_bytes = _numba_bytes()
        try:
            load_kernel().insert_topics.load()
            checksum_function()
        except Exception:  # noqa: BLE001  whatever keeps a compiler from working, the plain reader does the job
            return False
        take(numba_bytes)
    return True


def has_room() -> bool:
    """True if a limit of memory leaves room for kernels."""
    return memory_budget().has_room(_numba_bytes())


def _numba_bytes() -> int:
    if "numba" in sys.modules:
        return 0
    return LOADING_BYTES if is_kept("walk_block") else COMPILING_BYTES


@functools.cache
def load_kernel(name: str = "rmqtool.scan.kernels.kernel") -> Any:
    """A module of kernels by its full name; each is compiled, or loaded, when it is first called."""
    return importlib.import_module(name)


def is_worth(count: int, least: int) -> bool:
    """True if a kernel is worth its start for this number of items: one is loaded already, or `least` is reached."""
    return (count >= least or load_kernel.cache_info().currsize > 0) and has_room() and is_available()


class CompiledReader:
    """A `walk.Reader` with a compiled kernel. One object serves one walk at a time; its batches share their rows."""

    def __init__(self) -> None:
        import numpy

        self._kernel, self._checksum = load_kernel(), checksum_function()
        self._rows = numpy.zeros(ROWS_MAX, row_dtype())
        self._table: TopicTable | None = None

    def run(self, walk: Walk, position: int, limit: int) -> tuple[int, Sequence[Row]]:
        import numpy

        window = walk.window
        end = window.readable_end(position)
        if position >= end:
            return position, []
        if walk.topics is not self._table:
            self._table, self._topics, self._last_topic = walk.topics, _KernelTopics(self._kernel), -1
        self._topics.follow(walk.topics.names)
        buffer = numpy.frombuffer(window.storage, numpy.uint8)
        at, count, self._last_topic, known = self._kernel.walk_block(
            buffer, self._checksum, buffer.ctypes.data, position - window.start, end - window.start,
            limit - window.start, walk.split.physical_offset + window.start, walk.record_crc,
            numpy.array(walk.delays_ms, numpy.int64),
            self._topics.schedule_number, self._topics.arena, self._topics.starts, self._topics.slots,
            len(walk.topics.names), self._last_topic, self._rows,
        )  # fmt: skip
        self._topics.tell(walk.topics, int(known))
        return window.start + int(at), cast(Sequence[Row], self._rows[:count])


class _KernelTopics:
    """The split's topic table as arrays that the kernel can search."""

    def __init__(self, kernel: Any) -> None:
        import numpy

        self._kernel = kernel
        self._known = 0
        self.schedule_number = -1
        self.arena = numpy.zeros(1 << 12, numpy.uint8)
        self.starts = numpy.zeros(1 << 8, numpy.int64)
        self.slots = numpy.full(1 << 9, -1, numpy.int32)

    def tell(self, topics: TopicTable, known: int) -> None:
        edges = self.starts[self._known : known + 1].tolist()
        for start, end in pairwise(edges):
            topics.number(self.arena[start:end].tobytes())
        self._known = known

    def follow(self, names: Sequence[bytes]) -> None:
        """Enter the topics that the plain judge has met since."""
        import numpy

        while self._known < len(names):
            number, name = self._known, names[self._known]
            start = int(self.starts[number])
            while start + len(name) > self.arena.size:
                self.arena = numpy.concatenate([self.arena, numpy.zeros_like(self.arena)])
            if number + 2 > self.starts.size:
                self.starts = numpy.concatenate([self.starts, numpy.zeros_like(self.starts)])
            self.arena[start : start + len(name)] = numpy.frombuffer(name, numpy.uint8)
            self.starts[number + 1] = start + len(name)
            self._known += 1
            if self._known * 2 > self.slots.size:
                self.slots = numpy.full(self.slots.size * 2, -1, numpy.int32)
                self._kernel.insert_topics(0, self._known, self.arena, self.starts, self.slots)
            else:
                self._kernel.insert_topics(number, number + 1, self.arena, self.starts, self.slots)
            if name == _SCHEDULE_TOPIC:
                self.schedule_number = number

"""The compiled reader: good records by the million, in numba; what is not plainly good is judged in Python.

Nothing here may fail where numba cannot work (no compiler, no writable folder): `is_available` says so, and the plain
reader takes over.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from rmqtool.formats.properties import SCHEDULE_TOPIC
from rmqtool.scan.columns import Row, row_dtype
from rmqtool.scan.judge import TopicTable
from rmqtool.scan.kernels.compile_notice import ON_COMPILE
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
def load_kernel(name: str = "rmqtool.scan.kernels.kernel") -> ModuleType:
    """A kernel module by its full name, its symbol registered and its cache folder chosen."""
    import numba

    from rmqtool.scan.kernels import crc_symbol

    crc_symbol.register()
    config: Any = numba.config
    before, folder = config.CACHE_DIR, cache_folder()
    if ON_COMPILE and not _is_kept(folder, name):
        while ON_COMPILE:
            ON_COMPILE.pop()()
    config.CACHE_DIR = str(folder)
    try:
        kernel = importlib.import_module(name)
    finally:
        config.CACHE_DIR = before  # of the whole process, which may have kernels of its own
    for function in vars(kernel).values():
        _load_without_tables(function)
    return kernel


def _load_without_tables(function: Any) -> None:
    """Have numba load kept code of a function at once; it would fill its tables of types and functions first.

    Only compiling needs them, which fills them itself, and they take 0.1 s. A numba without these parts goes its way.
    """
    cache: Any = getattr(function, "_cache", None)
    parts = ("_load_overload", "_guard_against_spurious_io_errors")
    if not (hasattr(function, "targetctx") and all(hasattr(cache, part) for part in parts)):
        return
    with contextlib.suppress(ImportError, AttributeError):
        runtime: Any = importlib.import_module("numba.core.runtime")
        runtime.rtsys.initialize(function.targetctx)
        cache.load_overload = functools.partial(_load_kept, cache, cache.load_overload)


def _load_kept(cache: Any, load: Callable[[Any, Any], Any], signature: Any, context: Any) -> Any:
    """`numba.core.caching.Cache.load_overload`, but for the tables; itself where its parts have changed."""
    try:
        with cache._guard_against_spurious_io_errors():  # noqa: SLF001
            return cache._load_overload(signature, context)  # noqa: SLF001
    except (AttributeError, KeyError, TypeError):
        return load(signature, context)


def _is_kept(folder: Path, name: str) -> bool:
    """Whether compiled code of a module lies in the folder that is as new as the module."""
    spec = importlib.util.find_spec(name)
    kept = [path.stat().st_mtime for path in folder.glob(f"*/{name.rpartition('.')[2]}.*.nbi")]
    source = Path(spec.origin) if spec is not None and spec.origin is not None else None
    return bool(kept) and source is not None and source.is_file() and max(kept) >= source.stat().st_mtime


def is_worth(count: int, least: int) -> bool:
    """Whether a kernel is to do a job of so many items: one is loaded already, or they are enough to load it for."""
    return (count >= least or load_kernel.cache_info().currsize > 0) and is_available()


def cache_folder() -> Path:
    """Where compiled code is kept: beside the package, in the user's cache, else in a folder removed at exit."""
    candidates = [Path(__file__).parent / "__pycache__"]
    with contextlib.suppress(RuntimeError):  # no home
        candidates.append(Path.home() / ".cache" / "rmqtool")
    for folder in candidates:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_safe(folder):
                tempfile.TemporaryFile(dir=folder).close()
                return folder
    return Path(_private_folder().name)


def _is_safe(folder: Path) -> bool:
    # What lies in the folder is loaded and run: nobody else may write to it.
    status = folder.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def _private_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rmqtool-")


class CompiledReader:
    """See `walk.Reader`. One object serves one split; its batches share one array of rows."""

    def __init__(self) -> None:
        import numpy

        self._kernel = load_kernel()
        self._rows = numpy.zeros(ROWS_MAX, row_dtype())
        self._topics = _KernelTopics(self._kernel)
        self._last_topic = -1

    def run(self, walk: Walk, position: int, limit: int) -> tuple[int, Sequence[Row]]:
        import numpy

        window = walk.window
        end = window.readable_end(position)
        if position >= end:
            return position, []
        self._topics.follow(walk.topics.names)
        buffer = numpy.frombuffer(window.storage, numpy.uint8)
        at, count, self._last_topic, known = self._kernel.walk_block(
            buffer, buffer.ctypes.data, position - window.start, end - window.start, limit - window.start,
            walk.split.physical_offset + window.start, walk.record_crc, numpy.array(walk.delays_ms, numpy.int64),
            self._topics.schedule_number, self._topics.arena, self._topics.starts, self._topics.slots,
            len(walk.topics.names), self._last_topic, self._rows,
        )  # fmt: skip
        self._topics.tell(walk.topics, int(known))
        return window.start + int(at), cast(Sequence[Row], self._rows[:count])

    def mark_stale(self, rows: Sequence[Row]) -> Sequence[Row]:
        cast("numpy.ndarray[Any, Any]", rows)["verdict"] = Verdict.STALE
        return rows


class _KernelTopics:
    """The split's topic table as arrays that the kernel can search."""

    def __init__(self, kernel: ModuleType) -> None:
        import numpy

        self._kernel = kernel
        self._known = 0
        self.schedule_number = -1
        self.arena = numpy.zeros(1 << 12, numpy.uint8)
        self.starts = numpy.zeros(1 << 8, numpy.int64)
        self.slots = numpy.full(1 << 9, -1, numpy.int32)

    def tell(self, topics: TopicTable, known: int) -> None:
        """Number the topics that the kernel has entered."""
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
                self._kernel.insert_topic(number, self.arena, self.starts, self.slots)
            if name == _SCHEDULE_TOPIC:
                self.schedule_number = number

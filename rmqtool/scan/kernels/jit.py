"""How kernels are compiled, the types of what they take, and numbers whose high byte comes first.

A kernel is compiled for one list of types, when it is first called or all are asked for; numba keeps the code. Values
of other types would be compiled for once more.
"""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201, SIM110
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numba
from numba import types
from numba.core import event
from numba.experimental import function_type  # noqa: F401  which makes functions values
from numpy import int16, int32, int64, uint16, uint32, uint64

from rmqtool.scan.columns import row_dtype
from rmqtool.scan.kernels.code_cache import code_folder, forget
from rmqtool.scan.kernels.compile_notice import ON_COMPILE

LONG, FLAG = types.int64, types.boolean
ROWS: Final = types.Array(numba.from_dtype(row_dtype()), 1, "C")
TEXTS, KEY = (types.Array(kind, 1, "C", readonly=True) for kind in (types.uint8, types.uint64))
BYTES, INTS, LONGS, WORDS = types.uint8[::1], types.int32[::1], types.int64[::1], types.uint32[::1]
DIGESTS, FLAGS, INT_TABLE, LONG_TABLE = types.uint64[::1], types.boolean[::1], types.int32[:, ::1], types.int64[:, ::1]
CHECKSUM: Final = types.FunctionType(types.uint64(types.uint64, types.intp, types.uint64))
"""A CRC-32 in memory: of the bytes at an address, continued from those before them."""

compiled = numba.njit(nogil=True)
"""A function that kernels call."""


class Kernel:
    """A compiled function that Python calls.

    Attributes:
        function: numba's.
    """

    def __init__(self, source: Callable[..., Any], parameters: tuple[Any, ...]) -> None:
        self._source, self._parameters, self._lock, self._is_ready = source, parameters, Lock(), False
        self.function: Any = numba.njit(nogil=True)(source)
        if (folder := code_folder()) is not None:
            config: Any = numba.config
            before, config.CACHE_DIR = config.CACHE_DIR, str(folder)  # others stay where numba has them
            try:
                kept = numba.njit(nogil=True, cache=True)(source)
            finally:
                config.CACHE_DIR = before
            if Path(kept.stats.cache_path or "").is_relative_to(folder):  # and not where numba goes instead, unasked
                self.function = kept

    def load(self) -> None:
        """Have its code: from the folder, else by compiling it."""
        with self._lock, event.install_listener("numba:compile", _CompileNotice()):
            if self._is_ready:
                return
            try:
                self.function.compile(self._parameters)
            except Exception:  # noqa: BLE001  what is kept is broken, or a full disk keeps nothing
                forget(self._source.__name__)
                self.function = numba.njit(nogil=True)(self._source)
                self.function.compile(self._parameters)
            self._is_ready = True

    def __call__(self, *values: Any) -> Any:
        if not self._is_ready:
            self.load()
        return self.function(*values)


KERNELS: Final[list[Kernel]] = []
"""Those of all modules that are imported."""


def kernel(*parameters: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """A function of these types that Python calls."""

    def declare(source: Callable[..., Any]) -> Kernel:
        KERNELS.append(Kernel(source, parameters))
        return KERNELS[-1]

    return declare


class _CompileNotice(event.Listener):
    def on_start(self, event: Any) -> None:  # noqa: ARG002
        while ON_COMPILE:
            ON_COMPILE.pop()()

    def on_end(self, event: Any) -> None:
        """Nobody waits for it."""


@compiled
def short_at(buffer, at):
    """A short, high byte first."""
    return int16((uint16(buffer[at]) << uint16(8)) | uint16(buffer[at + uint64(1)]))


@compiled
def word_at(buffer, at):
    """Four bytes as a number without a sign, high byte first."""
    return (
        (uint32(buffer[at]) << uint32(24))
        | (uint32(buffer[at + uint64(1)]) << uint32(16))
        | (uint32(buffer[at + uint64(2)]) << uint32(8))
        | uint32(buffer[at + uint64(3)])
    )


@compiled
def int_at(buffer, at):
    """An int, high byte first."""
    return int32(word_at(buffer, at))


@compiled
def long_at(buffer, at):
    """A long, high byte first."""
    return int64((uint64(word_at(buffer, at)) << uint64(32)) | uint64(word_at(buffer, at + uint64(4))))


@compiled
def equal_ranges(source, start, other, length):
    """True if two ranges of one length hold the same bytes."""
    for k in range(length):
        if source[uint64(start + k)] != source[uint64(other + k)]:
            return False
    return True

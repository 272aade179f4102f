"""A view of a store through which a bounded number of bytes a second is read, all of them counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rmqtool.store.source import ByteSource, Closable
from rmqtool.store.view import Entry, StoreView

BURST_SECONDS: Final = 0.25
"""Burst that may be read at once, in seconds of the rate."""
NAP_SECONDS: Final = 0.25
"""The longest sleep after which it is asked whether to stop."""


@dataclass
class ReadLimit:
    """Limit of the read rate, over all files.

    Attributes:
        bytes_per_second: None without a limit.
        stop_if_asked: raises where somebody asked to stop.
        byte_count: what was read.
    """

    bytes_per_second: int | None = None
    stop_if_asked: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    byte_count: int = 0
    _free_at: float = field(default=0.0, init=False)

    def pieces(self, length: int) -> Iterator[int]:
        """The sizes in which so many bytes are to be read, each once its time has come."""
        rate = self.bytes_per_second
        while length > 0:
            self.stop_if_asked()
            size = length if rate is None else min(length, max(1, int(rate * BURST_SECONDS)))
            if rate is not None:
                while (left := self._free_at - self.clock()) > 0:
                    self.sleep(min(left, NAP_SECONDS))
                    self.stop_if_asked()
                self._free_at = max(self._free_at, self.clock()) + size / rate
            yield size
            length -= size


@dataclass
class LimitedSource(Closable):
    """A byte source that is read no faster than the limit allows."""

    base: ByteSource
    limit: ReadLimit
    identity: ClassVar[None] = None

    @property
    def name(self) -> str:
        return self.base.name

    @property
    def size(self) -> int:
        return self.base.size

    def read_into(self, position: int, buffer: memoryview) -> int:
        done = 0
        for size in self.limit.pieces(len(buffer)):
            count = self.base.read_into(position + done, buffer[done : done + size])
            self.limit.byte_count += count
            done += count
            if count < size:
                break
        return done

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self.base.extents(start, end)

    def close(self) -> None:
        self.base.close()


@dataclass(frozen=True)
class LimitedView:
    """A view of a store whose files are read no faster than the limit allows."""

    base: StoreView
    limit: ReadLimit

    @property
    def label(self) -> str:
        return self.base.label

    def list(self, path: str) -> list[Entry]:
        return self.base.list(path)

    def stat(self, path: str) -> Entry | None:
        return self.base.stat(path)

    def open(self, path: str) -> ByteSource:
        return LimitedSource(self.base.open(path), self.limit)

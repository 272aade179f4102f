"""A file that is read in ranges over a network: few requests for a scan, and no waiting for a server that is down.

What is read one range after the other, forwards or backwards, is fetched in ranges that double each time; anything
else in small ones. A range that is not given is not asked for again, nor a file that fails several times in a row, nor
a file system that only keeps one waiting: whoever looks for good sectors in a bad range must not wait for each of them.
"""

from __future__ import annotations

import errno
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

from rmqtool.store.source import READS, LostRangeError, reason

FETCH_MIN: Final = 128 << 10
FETCH_MAX: Final = 8 << 20
KEPT_MAX: Final = 2
"""Ranges that a file keeps in memory."""
FAILURES_MAX: Final = 3
"""Requests that may fail in a row before a file is given up."""
PATIENCE_S: Final = 60.0
"""Seconds that may be spent on requests that fail, without one that works between them, before all is given up."""
REASON_MAX: Final = 200
_USER: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/\s]*@|[^/\s@:]*:(?![0-9]*(?:/|$))[^\s@]*@)")
"""Credentials of a URL; a secret may have slashes in it, though it must not. A port is not one."""


class RangeFile(Protocol):
    """An open file of a library."""

    def size(self) -> int: ...
    def read_at(self, nbytes: int, file_position: int, /) -> bytes: ...
    def close(self) -> None: ...


@dataclass
class FileTrouble:
    """Read failures of one file: the ranges that it did not give, and the number of consecutive failed requests."""

    bad: list[tuple[int, int]] = field(default_factory=list)
    failures: int = 0


@dataclass
class Health:
    """Failures of a file system and its files, however often these are opened.

    Attributes:
        clock: seconds that only grow.
        wasted_s: seconds spent on requests that failed since the last one that worked.
    """

    clock: Callable[[], float] = time.monotonic
    wasted_s: float = 0.0
    files: defaultdict[str, FileTrouble] = field(default_factory=lambda: defaultdict(FileTrouble))


class RangedSource:
    """A source that is opened by the first read.

    Args:
        size: as the directory has it.
    """

    identity: ClassVar[None] = None

    def __init__(self, name: str, size: int, opener: Callable[[], RangeFile], health: Health) -> None:
        self.name = name
        self.size = size
        self._opener = opener
        self._health = health
        self._file: RangeFile | None = None
        self._kept: list[tuple[int, bytes]] = []
        self._trouble = health.files[name]
        self._last = (-1, -1)
        self._step = FETCH_MIN

    def read_into(self, position: int, buffer: memoryview) -> int:
        byte_count = min(len(buffer), self.size - position)
        done = 0
        while done < byte_count:
            start, content = self._range_with(position + done, byte_count - done)
            part = content[position + done - start :][: byte_count - done]
            if not part:
                break  # the file is shorter than its directory says
            buffer[done : done + len(part)] = part
            done += len(part)
        READS.byte_count += done
        return done

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        if start < min(end, self.size):
            yield start, min(end, self.size)

    def close(self) -> None:
        self._kept = []
        if self._file is not None:
            self._file.close()
            self._file = None

    def _range_with(self, position: int, byte_count: int) -> tuple[int, bytes]:
        for kept in reversed(self._kept):
            if kept[0] <= position < kept[0] + len(kept[1]):
                return kept
        fetched_range = self._fetch(position, byte_count)
        self._kept = [*self._kept[1 - KEPT_MAX :], fetched_range]
        self._last = fetched_range[0], fetched_range[0] + len(fetched_range[1])
        return fetched_range

    def _fetch(self, position: int, byte_count: int) -> tuple[int, bytes]:
        start, end = self._chosen(position, byte_count)
        # What is known to be bad is left out, so that its neighbors are still read.
        for bad_start, bad_end in self._trouble.bad:
            if bad_start <= position < bad_end:
                raise LostRangeError("a range that could not be read before", position, bad_end)
            if position < bad_start:
                end = min(end, bad_start)
            else:
                start = max(start, bad_end)
        try:
            return start, self._get(start, end)
        except OSError as error:
            if end - start <= FETCH_MIN or self._trouble.failures >= FAILURES_MAX:
                raise self._lost(start, end, error) from error
        self._step = FETCH_MIN
        start = max(start, position // FETCH_MIN * FETCH_MIN)
        end = min(end, start + FETCH_MIN)
        try:
            return start, self._get(start, end)
        except OSError as error:
            raise self._lost(start, end, error) from error

    def _lost(self, start: int, end: int, error: OSError) -> LostRangeError:
        """Note a range that could not be read, or all of a file if no more reads are tried."""
        bad = (0, self.size) if self._trouble.failures >= FAILURES_MAX else (start, end)
        self._trouble.bad.append(bad)
        return LostRangeError(reason(error), start, bad[1])

    def _chosen(self, position: int, byte_count: int) -> tuple[int, int]:
        forwards, backwards = position == self._last[1], position < self._last[0] <= position + byte_count
        self._step = min(FETCH_MAX, self._step * 2) if forwards or backwards else FETCH_MIN
        length = min(FETCH_MAX, max(self._step, byte_count))
        if backwards:
            return max(0, min(position, self._last[0] - length)), self._last[0]
        start = position if forwards else position // FETCH_MIN * FETCH_MIN
        return start, min(self.size, max(start + length, position + min(byte_count, FETCH_MAX)))

    def _get(self, start: int, end: int) -> bytes:
        if self._health.wasted_s >= PATIENCE_S:
            raise OSError(errno.EIO, "gave up, because the file system does not respond")
        begun = self._health.clock()
        try:
            if self._file is None:
                self._file = self._opener()
            content = _whole(self._file, start, end)
        except FileNotFoundError as error:
            self._trouble.failures = FAILURES_MAX
            raise OSError(errno.ENOENT, "no such file") from error
        except Exception as error:  # each library has errors of its own, and none is a reason to fall over
            self._trouble.failures += 1
            self._health.wasted_s += self._health.clock() - begun
            raise OSError(errno.EIO, one_line(error)) from error
        self._trouble.failures = 0
        self._health.wasted_s = 0.0
        return content


def _whole(file: RangeFile, start: int, end: int) -> bytes:
    """A range of a file, shorter only where the file ends."""
    content = bytes(file.read_at(end - start, start))
    if len(content) < end - start and start + len(content) < file.size():
        raise OSError(errno.EIO, "the connection was lost")
    return content


def one_line(error: BaseException) -> str:
    """A library's error message as one line of bounded length, without keys in a URL."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return without_user(" ".join(str(text).split()))[:REASON_MAX]


def without_user(text: str) -> str:
    """A text in which no URL has a user part, which may be a key and its secret."""
    return _USER.sub(r"\1", text)

"""Sorts places of messages by time, some at a time in memory and the rest in a temporary file."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from operator import attrgetter
from typing import IO, Any, Final, NamedTuple

import numpy as np

from rmqtool.errors import WriteError
from rmqtool.store.source import reason

CHUNK_MAX: Final = 1 << 17
"""Messages that are sorted in memory."""
_READ_MAX: Final = 1024
_DTYPE: Final = np.dtype(
    [("due_ms", "i8"), ("physical_offset", "i8"), ("size", "i4"), ("level", "i4"), ("rolls", "?"), ("deletes", "?")]
)


class Pending(NamedTuple):
    """A message that waits.

    Attributes:
        size: what leads to its record names this size; 0 where it names none.
        level: delay level, or `IN_TIMER`, or `IN_QUEUE`.
    """

    due_ms: int
    physical_offset: int
    size: int
    level: int
    rolls: bool = False
    deletes: bool = False


IN_TIMER: Final = 0
IN_QUEUE: Final = -1


def by_time(messages: Iterable[Pending], chunk_max: int = CHUNK_MAX) -> Iterator[Pending]:
    """The messages by their times; those of one time in the order in which they come.

    Raises:
        WriteError: the disk does not take the temporary file.
    """
    rest = iter(messages)
    chunk = sorted(islice(rest, chunk_max), key=attrgetter("due_ms"))
    if len(chunk) < chunk_max:
        yield from chunk
        return
    with tempfile.TemporaryFile() as file:
        ends = [0]
        try:
            while chunk:
                file.write(np.array(chunk, _DTYPE).tobytes())
                ends.append(ends[-1] + len(chunk))
                chunk = sorted(islice(rest, chunk_max), key=attrgetter("due_ms"))
            file.flush()
        except OSError as error:
            raise WriteError(f"{tempfile.gettempdir()}: {reason(error)}") from error
        chunks = [_read(file, start, end) for start, end in pairwise(ends)]
        yield from heapq.merge(*chunks, key=attrgetter("due_ms"))


def _read(file: IO[bytes], start: int, end: int) -> Iterator[Pending]:
    for at in range(start, end, _READ_MAX):
        file.seek(at * _DTYPE.itemsize)
        raw = file.read(min(_READ_MAX, end - at) * _DTYPE.itemsize)
        row: Any
        for row in np.frombuffer(raw, _DTYPE).tolist():
            yield Pending(*row)

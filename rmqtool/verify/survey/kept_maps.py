"""The maps of a store's queues: in memory while there is room, and in a temporary file from there on.

A store may have a million queues, whose maps take some 2 KB each. Of those in the file the process keeps a name, a
place and the range of the log that their units point into, some 300 bytes; a map is read when it is asked for.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Final

import msgspec
import numpy as np

from rmqtool.errors import WriteError
from rmqtool.formats.queue_name import QueueKey, topic_bytes, topic_text
from rmqtool.memory import memory_budget
from rmqtool.store.source import reason
from rmqtool.verify.survey.queue_map import RUN, Array, OffsetRuns, QueueMap, UnitFile

MEMORY_MAX: Final = 1 << 60
"""Bytes of maps that stay in memory without a limit."""
MAP_BYTES: Final = 1536
FILE_BYTES: Final = 256
"""What a map takes in memory without its arrays, and each of its files."""


class QueueMaps(Mapping[QueueKey, QueueMap]):
    """Maps by topic and queue id, in the order in which they were added."""

    def __init__(self) -> None:
        self._memory_left = memory_budget().share(MEMORY_MAX, 8)
        self._places: dict[QueueKey, QueueMap | int] = {}
        """A map, or the number of one that lies in the file."""
        self._bounds = array("q", [0])
        """Where each map in the file ends."""
        self._firsts, self._lasts = array("q"), array("q")
        """The oldest and the newest record that a unit of it points to."""
        self._file: IO[bytes] | None = None

    def add(self, key: QueueKey, queue: QueueMap) -> None:
        """Keep the map of a queue.

        Raises:
            WriteError: the temporary file does not take it.
        """
        units = queue.units
        size = units.runs.nbytes + units.sample_places.nbytes + units.sample_offsets.nbytes
        self._memory_left -= MAP_BYTES + FILE_BYTES * len(queue.files) + size
        if self._memory_left >= 0:
            self._places[key] = queue
            return
        content = _encoded(queue)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the last reference
                weakref.finalize(self, self._file.close)
            if os.pwrite(self._file.fileno(), content, self._bounds[-1]) < len(content):
                raise WriteError(f"{tempfile.gettempdir()}: no space left for what --max-memory keeps out of memory")
        except OSError as error:
            raise WriteError(f"{tempfile.gettempdir()}: {reason(error)}") from error
        self._places[key] = len(self._firsts)
        self._bounds.append(self._bounds[-1] + len(content))
        self._firsts.append(int(units.runs["first"].min(initial=0)))
        self._lasts.append(int(units.runs["last"].max(initial=-1)))

    def into(self, begin: int, end: int) -> Iterator[tuple[QueueKey, QueueMap]]:
        """The queues, in order, of which some may have units that point into [begin, end) of the log."""
        for key, place in self._places.items():
            if not isinstance(place, int):
                yield key, place
            elif self._firsts[place] < end and self._lasts[place] >= begin:
                yield key, self._read(key, place)

    def __getitem__(self, key: QueueKey) -> QueueMap:
        place = self._places[key]
        return self._read(key, place) if isinstance(place, int) else place

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A process elsewhere gets them all."""
        return dict, (dict(self),)

    def _read(self, key: QueueKey, number: int) -> QueueMap:
        assert self._file is not None, "a map lies in a file that was never made"
        start, end = self._bounds[number], self._bounds[number + 1]
        try:
            content = os.pread(self._file.fileno(), end - start, start)
        except OSError as error:
            raise WriteError(f"{tempfile.gettempdir()}: {reason(error)}") from error
        return _decoded(key, content)


_Spans = tuple[tuple[int, int], ...]


class _Content(msgspec.Struct, array_like=True, frozen=True):
    """A map as it lies in the file; the names of topics are no text, so paths are bytes."""

    is_batch: bool
    directory: bytes
    files: tuple[tuple[bytes, int, int], ...]
    units_per_file: int
    end: int
    spans: tuple[_Spans, _Spans, _Spans, _Spans, _Spans]
    unit_count: int
    dropped: int
    runs: bytes
    sample_places: bytes
    sample_offsets: bytes


def _encoded(queue: QueueMap) -> bytes:
    units = queue.units
    return msgspec.msgpack.encode(
        _Content(
            queue.is_batch,
            topic_bytes(queue.directory),
            tuple((topic_bytes(file.path), file.first, file.unit_count) for file in queue.files),
            queue.units_per_file,
            queue.end,
            (queue.gaps, queue.dead, queue.zero_files, queue.bad_files, queue.absent_files),
            queue.unit_count,
            units.dropped,
            units.runs.tobytes(),
            _int64s(units.sample_places),
            _int64s(units.sample_offsets),
        )
    )


def _int64s(values: Array) -> bytes:
    return values.astype(np.int64, copy=False).tobytes()


def _decoded(key: QueueKey, content: bytes) -> QueueMap:
    kept = msgspec.msgpack.decode(content, type=_Content)
    runs = OffsetRuns(
        np.frombuffer(kept.runs, RUN),
        np.frombuffer(kept.sample_places, np.int64),
        np.frombuffer(kept.sample_offsets, np.int64),
        kept.dropped,
    )
    return QueueMap(
        topic_text(key[0]),
        key[1],
        kept.is_batch,
        topic_text(kept.directory),
        tuple(UnitFile(topic_text(path), first, count) for path, first, count in kept.files),
        kept.units_per_file,
        runs,
        kept.end,
        *kept.spans,
        kept.unit_count,
    )

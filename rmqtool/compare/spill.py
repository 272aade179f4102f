"""Rows sorted into partitions, in memory while they are few and in temporary files from there on.

A row's partition follows from one of its fields, so that what belongs together is read back together, a part at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np

from rmqtool.compare.rows import Array
from rmqtool.errors import WriteError
from rmqtool.memory import memory_budget
from rmqtool.store.source import Closable, reason

MEMORY_MAX: Final = 64 << 20
"""Bytes of rows that are held before they are written."""


class Spill(Closable):
    """Rows of several sides in numbered partitions, from 0 on; threads may share it. Temporary files lie in the folder,
    or the system's place for them, until `close`.
    """

    def __init__(
        self,
        partition_count: int,
        partition_of: Callable[[Array], Array],
        folder: Path | None = None,
        memory_max: int | None = None,
    ) -> None:
        self.partition_count = partition_count
        self._partition_of = partition_of
        self._folder = folder
        self._memory_max = memory_budget().share(MEMORY_MAX, 8) if memory_max is None else memory_max
        self._lock = Lock()
        self._held: dict[tuple[int, int], list[Array]] = {}
        self._held_bytes = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def take(self, side: int, rows: Array) -> None:
        """Add rows of a side; WriteError if the disk does not take them."""
        if not len(rows):
            return
        if self.partition_count == 1:
            parts = [(0, rows)]
        else:
            numbers = self._partition_of(rows).astype(np.uint16)  # sorted by counting, as wider ones are not
            order = np.argsort(numbers, kind="stable")
            numbers, rows = numbers[order], rows[order]
            starts = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
            parts = list(zip(numbers[starts].tolist(), np.split(rows, starts[1:]), strict=True))
        with self._lock:
            for number, part in parts:
                self._held.setdefault((side, number), []).append(part)
                self._held_bytes += part.nbytes
            if self._held_bytes > self._memory_max:
                self._write()

    def rows(self, side: int, number: int, dtype: np.dtype[np.void]) -> Array:
        """All rows of a side in a partition, in the order in which they were added."""
        held = self._held.get((side, number), [])
        if self._directory is None:
            return np.concatenate(held) if held else np.empty(0, dtype)
        path = self._path(side, number)
        written = np.fromfile(path, dtype) if path.exists() else np.empty(0, dtype)
        return np.concatenate([written, *held])

    def close(self) -> None:
        """Forget all rows, and remove the files."""
        self._held = {}
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def _write(self) -> None:
        try:
            if self._directory is None:
                self._directory = tempfile.TemporaryDirectory(prefix="rmqtool-", dir=self._folder)
            for (side, number), parts in self._held.items():
                with self._path(side, number).open("ab") as file:
                    for part in parts:
                        file.write(part.tobytes())
        except OSError as error:
            raise WriteError(f"{self._folder or tempfile.gettempdir()}: {reason(error)}") from error
        self._held, self._held_bytes = {}, 0

    def _path(self, side: int, number: int) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / f"{side}-{number}"

"""New bytes for damaged ranges of the log, gathered in the staging directory until they become steps of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rmqtool.repair.salvage.damage import DamagedRange
from rmqtool.repair.steps import Remove, Replace, Step, WriteRange, create_file, replace_file, write_range
from rmqtool.store.content import Content, FilePart, Zeros
from rmqtool.store.overlay import PlannedView
from rmqtool.store.sink import DirectorySink
from rmqtool.store.view import StoreView

_DIRECTORY: Final = "bridges"
_NS_PER_MS: Final = 1_000_000
_COPY: Final = 4 << 20


class LogDraft:
    """Ranges of log files as they shall be; what is not written in a range is zero.

    Steps that give a file its right size belong in here too, for a range may lie in what they add or copy.
    """

    def __init__(self, base: StoreView, shape: Sequence[Step], staging: Path) -> None:
        """`base` is the store as it is, `shape` the steps about its files' sizes."""
        self._base, self._shape, self._staging = base, list(shape), staging
        self._sink = DirectorySink(staging)
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self._files: dict[str, DamagedRange] = {}
        self._times_ms: dict[str, int] = {}
        self._copies = {
            step.path: step.content.place
            for step in shape
            if isinstance(step, Replace) and isinstance(step.content, FilePart)
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sink.close()

    def claim(self, damaged: DamagedRange, end: int | None = None) -> None:
        """Make a range part of the draft, up to the physical offset `end` if it becomes longer than the damage."""
        ranges = self._ranges.setdefault(damaged.path, [])
        start, stop = damaged.start - damaged.file_start, max(damaged.end, end or 0) - damaged.file_start
        for found in [each for each in ranges if each[0] <= stop and start <= each[1]]:
            ranges.remove(found)
            start, stop = min(start, found[0]), max(stop, found[1])
        ranges.append((start, stop))
        self._files[damaged.path] = damaged
        self._sink.create(self._staged(damaged), damaged.file_size)

    def write(self, damaged: DamagedRange, physical_offset: int, data: bytes, time_ms: int = 0) -> None:
        """Write into a range that was claimed; `time_ms` is the store time of what is written."""
        self._sink.write_at(self._staged(damaged), physical_offset - damaged.file_start, data)
        self._times_ms[damaged.path] = max(time_ms, self._times_ms.get(damaged.path, 0))

    def view(self) -> StoreView:
        """The store with the draft laid over it, as it is now."""
        view = PlannedView(self._base)
        for path, position, content in self._writes():
            view.write(path, position, content)
        for path, content in self._replaced():
            view.replace(path, content)
        for path, content, mtime_ns in self._created():
            view.create(path, content, mtime_ns)
        for step in self._shape:
            if isinstance(step, Remove):
                view.remove(step.path)
        return view

    def steps(self, why: str) -> tuple[Step, ...]:
        """The steps that bring the draft into the store.

        Raises:
            UnreadableError: a file of the store may not be read.
        """
        whys = {step.path: step.why for step in self._shape}
        return (
            *(write_range(self._base, path, position, content, self._why(path, whys, why))
              for path, position, content in self._writes()),
            *(replace_file(self._base, path, content, whys[path]) for path, content in self._replaced()),
            *(create_file(self._base, path, content, why, mtime_ns) for path, content, mtime_ns in self._created()),
            *(step for step in self._shape if isinstance(step, Remove)),
        )  # fmt: skip

    def _why(self, path: str, whys: dict[str, str], why: str) -> str:
        return why if path in self._ranges else whys[path]

    def _writes(self) -> Iterator[tuple[str, int, Content]]:
        """Ranges of files that stay: (path, file position, content)."""
        for step in self._shape:
            if isinstance(step, WriteRange):
                ranges = self._ranges.get(step.path, [])
                start = max([step.file_position, *(end for begin, end in ranges if begin <= step.end)])
                if start < step.end:
                    yield step.path, start, Zeros(step.end - start)
        for path, ranges in self._ranges.items():
            if path not in self._copies and self._base.stat(path) is not None:
                place = self._staging / self._staged(self._files[path])
                for start, end in sorted(ranges):
                    yield path, start, FilePart(place, start, end - start)

    def _replaced(self) -> Iterator[tuple[str, Content]]:
        """Files that are replaced by a copy of the right size, in which the ranges are too."""
        for path, place in self._copies.items():
            if path in self._ranges:
                self._copy_into(place, path)
            yield path, FilePart.whole(place)

    def _created(self) -> Iterator[tuple[str, Content, int]]:
        """Files that are missing: (path, content, modification time: brokers go by it when they delete old files)."""
        for path in self._ranges:
            if self._base.stat(path) is None:
                place = self._staging / self._staged(self._files[path])
                yield path, FilePart.whole(place), self._times_ms.get(path, 0) * _NS_PER_MS

    def _copy_into(self, place: Path, path: str) -> None:
        with (self._staging / self._staged(self._files[path])).open("rb") as source, place.open("r+b") as target:
            for start, end in self._ranges[path]:
                source.seek(start)
                target.seek(start)
                for at in range(start, end, _COPY):
                    target.write(source.read(min(_COPY, end - at)))

    def _staged(self, damaged: DamagedRange) -> str:
        return f"{_DIRECTORY}/{damaged.file_start:020d}"

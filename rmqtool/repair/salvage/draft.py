"""New bytes for damaged ranges of the log, gathered in the staging directory until they become steps of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rmqtool.forecast.record_arrays import OffsetRanges
from rmqtool.repair.machine.steps import (
    Remove,
    Replace,
    Step,
    WriteRange,
    create_file,
    remove_file,
    replace_file,
    write_range,
)
from rmqtool.repair.salvage.damaged_ranges import DamagedRange
from rmqtool.store.overlay import Overlay
from rmqtool.store.sink import DirectorySink
from rmqtool.store.source import Closable, Content, FilePart, Zeros
from rmqtool.store.view import StoreView

_DIRECTORY: Final = "bridges"
_NS_PER_MS: Final = 1_000_000
_COPY: Final = 4 << 20


class LogDraft(Closable):
    """New content for ranges of log files; unwritten bytes of a range are zero.

    Steps that give a file its right size belong in here too, for a range may lie in what they add or copy.
    """

    def __init__(self, base: StoreView, shape: Sequence[Step], staging: Path, file_size: int) -> None:
        """Draft over `base`, the store as it is; `shape` are the steps about its files' sizes."""
        self._base, self._shape, self._staging, self._file_size = base, list(shape), staging, file_size
        self._sink = DirectorySink(staging)
        self._ranges: dict[str, OffsetRanges] = {}
        self._times_ms: dict[str, int] = {}
        self._copies = {
            step.path: step.content.place
            for step in shape
            if isinstance(step, Replace) and isinstance(step.content, FilePart)
        }

    def close(self) -> None:
        self._sink.close()

    def claim(self, damaged: DamagedRange, end: int | None = None) -> None:
        """Make a range part of the draft, up to the physical offset `end` if it becomes longer than the damage."""
        stop = max(damaged.end, end or 0)
        self._claim(damaged.path, damaged.start - damaged.file_start, stop - damaged.file_start)

    def write(
        self, damaged: DamagedRange, physical_offset: int, data: bytes, time_ms: int = 0, end: int | None = None
    ) -> None:
        """Claim a range, and write into it.

        Args:
            time_ms: store time of what is written.
            end: physical offset up to which the range reaches; None: to the end of what is written.
        """
        self.claim(damaged, physical_offset + len(data) if end is None else end)
        self._sink.write_at(_staged(damaged.path), physical_offset - damaged.file_start, data)
        self._times_ms[damaged.path] = max(time_ms, self._times_ms.get(damaged.path, 0))

    def take_over(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Apply steps that were planned on the draft to its own files; return the other steps."""
        for step in steps:
            is_own = step.path in self._ranges or any(other.path == step.path for other in self._shape)
            if isinstance(step, Remove) and is_own:
                self._ranges.pop(step.path, None)
                self._copies.pop(step.path, None)
                self._shape = [other for other in self._shape if other.path != step.path]
                if self._base.stat(step.path) is not None:
                    yield remove_file(self._base, step.path, step.why)
            elif isinstance(step, WriteRange) and (step.path in self._ranges or step.path in self._copies):
                assert isinstance(step.content, Zeros), "after the end of the commit log there are only zeros"
                self._claim(step.path, step.file_position, step.end)
                for at in range(step.file_position, step.end, _COPY):  # whatever was drafted for it before
                    self._sink.write_at(_staged(step.path), at, bytes(min(_COPY, step.end - at)))
            else:
                yield step

    def view(self) -> StoreView:
        """The store with the draft laid over it, as it is now."""
        view = Overlay(self._base)
        for path, position, content in self._writes():
            view.lay(path, position, content)
        for path, content in self._replaced():
            view.replace(path, content)
        for path, content, mtime_ns in self._created():
            view.add(path, content, mtime_ns)
        for step in self._shape:
            if isinstance(step, Remove):
                view.remove(step.path)
        return view

    def steps(self, why: str) -> tuple[Step, ...]:
        """The steps that bring the draft into the store."""
        whys = {step.path: step.why for step in self._shape}
        return (
            *(write_range(self._base, path, position, content, why if path in self._ranges else whys[path])
              for path, position, content in self._writes()),
            *(replace_file(self._base, path, content, whys[path]) for path, content in self._replaced()),
            *(create_file(self._base, path, content, why, mtime_ns) for path, content, mtime_ns in self._created()),
            *(step for step in self._shape if isinstance(step, Remove)),
        )  # fmt: skip

    def _claim(self, path: str, start: int, stop: int) -> None:
        self._ranges.setdefault(path, OffsetRanges()).add(start, stop)
        self._sink.create(_staged(path), self._file_size)

    def _writes(self) -> Iterator[tuple[str, int, Content]]:
        """Ranges of files that stay: (path, file position, content)."""
        for step in self._shape:
            if isinstance(step, WriteRange):
                for start, end in self._ranges.get(step.path, OffsetRanges()).between(step.file_position, step.end):
                    yield step.path, start, Zeros(end - start)
        for path, ranges in self._ranges.items():
            if path not in self._copies and self._base.stat(path) is not None:
                place = self._staging / _staged(path)
                for start, end in ranges:
                    yield path, start, FilePart(place, start, end - start)

    def _replaced(self) -> Iterator[tuple[str, Content]]:
        """Files that are replaced by a copy of the right size, in which the ranges are too."""
        for path, place in self._copies.items():
            if path in self._ranges:
                with (self._staging / _staged(path)).open("rb") as source, place.open("r+b") as target:
                    for start, end in self._ranges[path]:
                        source.seek(start)
                        target.seek(start)
                        for at in range(start, end, _COPY):
                            target.write(source.read(min(_COPY, end - at)))
            yield path, FilePart.whole(place)

    def _created(self) -> Iterator[tuple[str, Content, int]]:
        """Files that are missing: (path, content, modification time: brokers go by it when they delete old files)."""
        for path in self._ranges:
            if self._base.stat(path) is None:
                place = self._staging / _staged(path)
                yield path, FilePart.whole(place), self._times_ms.get(path, 0) * _NS_PER_MS


def _staged(path: str) -> str:
    return f"{_DIRECTORY}/{path.rpartition('/')[2]}"

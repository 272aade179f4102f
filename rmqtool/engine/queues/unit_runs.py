"""Content of a queue file, in order or backwards: runs of units, and the ranges between them that should be units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from rmqtool.scan.blocks import last_data_end
from rmqtool.store.source import ByteSource, read_salvaging

BLOCK_UNITS: Final = 8192


@dataclass(frozen=True)
class UnitRun:
    """Units side by side, none of them zero; `position` is that of the first in the file."""

    position: int
    raw: bytes


@dataclass(frozen=True)
class BadUnits:
    """Bytes of a file where units should be and are none.

    Attributes:
        finding: id of what is wrong: an unreadable range, a gap, a file of zeros, or a cut unit at the end.
    """

    start: int
    end: int
    finding: str


@dataclass
class UnitRuns:
    """The walk over one file.

    Attributes:
        file_size: as it is listed.
        ends_data: whether no later file holds data, so that zeros at the end are preallocated and no gap.
        first: file position of the first unit that is asked for.
        stop: file position after the last one; None: up to the end of the data.
    """

    source: ByteSource
    unit_size: int
    file_size: int
    ends_data: Callable[[], bool]
    first: int = 0
    stop: int | None = None
    reverse: bool = False
    block_units: int = BLOCK_UNITS
    _unreadable: list[tuple[int, int]] = field(default_factory=list)

    def walk(self) -> Iterator[UnitRun | BadUnits]:
        """The runs, each within a block, and the bad ranges."""
        source, size = self.source, self.unit_size
        data_end = last_data_end(source, 0, source.size)
        whole_end = source.size // size * size
        end = min(whole_end, -(-data_end // size) * size)
        if end < whole_end and not self.ends_data():
            end = whole_end
        end = max(self.first, end if self.stop is None else min(end, self.stop))
        expected = end if self.reverse else self.first
        for run in self._runs(end):
            run_end = run.position + len(run.raw)
            yield from self._gap(*((run_end, expected) if self.reverse else (expected, run.position)))
            yield run
            expected = run.position if self.reverse else run_end
        yield from self._gap(*((self.first, expected) if self.reverse else (expected, end)))
        if data_end > whole_end:
            yield BadUnits(whole_end, data_end, "consumequeue.wrong-file-size")

    def _runs(self, end: int) -> Iterator[UnitRun]:
        size, step = self.unit_size, self.block_units * self.unit_size
        blocks: list[int] = []
        for extent_start, extent_end in self.source.extents(self.first, end):
            begin = self.first + (extent_start - self.first) // step * step
            blocks += [at for at in range(begin, extent_end, step) if not blocks or at > blocks[-1]]
        zero = bytes(size)
        for at in reversed(blocks) if self.reverse else blocks:
            buffer = bytearray(min(step, end - at))
            self._unreadable += read_salvaging(self.source, at, memoryview(buffer))
            block = bytes(buffer)
            if zero not in block:
                yield UnitRun(at, block)
                continue
            if not block.strip(b"\0"):
                continue
            edges, is_data = [], False
            for start in range(0, len(block), size):
                if (block[start : start + size] != zero) != is_data:
                    edges.append(start)
                    is_data = not is_data
            edges += [len(block)] if is_data else []
            runs = [UnitRun(at + start, block[start:stop]) for start, stop in zip(edges[::2], edges[1::2], strict=True)]
            yield from reversed(runs) if self.reverse else runs

    def _gap(self, start: int, end: int) -> Iterator[BadUnits]:
        """Zeros where units should be, if there are any."""
        if start < end:
            if any(bad_start < end and bad_end > start for bad_start, bad_end in self._unreadable):
                name = "unreadable-range"
            else:
                name = "zero-file" if start == 0 and end >= self.file_size else "gap"
            yield BadUnits(start, end, f"consumequeue.{name}")

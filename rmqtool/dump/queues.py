"""Units of consume queues, extensions and batch queues for `dump`, queue after queue, in order or backwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from struct import Struct
from typing import Final

from rmqtool.dump.request import RowSource
from rmqtool.dump.target import DumpKind
from rmqtool.formats import consumequeue
from rmqtool.formats.layout import Format
from rmqtool.report.file_rows import bad_file_row, batch_row, extension_row, unit_row
from rmqtool.report.rows import DumpRow
from rmqtool.scan.blocks import Window, last_data_end
from rmqtool.scan.log import may_hold_data
from rmqtool.store.file_kinds import is_segment_name
from rmqtool.store.source import ByteSource, read_salvaging
from rmqtool.store.view import Entry

BLOCK_UNITS: Final = 8192
_BASE_AT: Final = [item.name for item in consumequeue.BATCH_UNIT.fields].index("base_queue_offset")
_EXTENSION_UNIT_MAX: Final = 32767


@dataclass(frozen=True)
class _DumpedQueue:
    """The files of one queue; topic and id are None for files that lie elsewhere."""

    topic: str | None
    queue_id: int | None
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class _Unit:
    """A unit that is not zero, with its place in its file."""

    position: int
    values: tuple[int, ...]


@dataclass
class QueueDump(RowSource):
    """The rows of queue files."""

    _unreadable: list[tuple[int, int]] = field(default_factory=list)

    def rows(self) -> Iterator[DumpRow]:
        """All wanted rows; with `reverse` the last queue and its last unit first."""
        queues = [queue for queue in self._queues() if self.ask.takes_queue(queue.topic, queue.queue_id)]
        for queue in reversed(queues) if self.ask.reverse else queues:
            if self.target.kind is DumpKind.EXTENSION:
                yield from self._extension(queue)
            else:
                yield from self._units(queue)

    @property
    def _format(self) -> Format:
        return consumequeue.unit_format(is_batch=self.target.kind is DumpKind.BATCH)

    def _queues(self) -> Iterator[_DumpedQueue]:
        for directory, entries in groupby(self.target.entries, lambda entry: entry.path.rpartition("/")[0]):
            names = directory.split("/")
            placed = len(names) in (3, 4) and names[-1].isascii() and names[-1].removeprefix("-").isdigit()
            yield _DumpedQueue(names[-2] if placed else None, int(names[-1]) if placed else None, tuple(entries))

    def _units(self, queue: _DumpedQueue) -> Iterator[DumpRow]:
        """Units up to the last one that is not zero; after it the files are only preallocated."""
        last = self._last_with_data(queue)
        numbers = range(last + 1)
        for number in reversed(numbers) if self.ask.reverse else numbers:
            is_last = number == last or not self.target.is_chain
            if (source := self.opened(queue.entries[number])) is not None:
                with closing(source):
                    yield from self._file(queue, queue.entries[number], source, is_last=is_last)

    def _file(self, queue: _DumpedQueue, entry: Entry, source: ByteSource, *, is_last: bool) -> Iterator[DumpRow]:
        size = self._format.size or 1
        base = int(entry.name) if is_segment_name(entry.name) else 0
        data_end = last_data_end(source, 0, source.size)
        whole_end = source.size // size * size
        end = min(whole_end, -(-data_end // size) * size) if is_last else whole_end
        start, end = self._range(base, end)
        self._unreadable.clear()
        expected = end if self.ask.reverse else start
        for unit in self._nonzero(source, start, end):
            if self.ask.reverse:
                yield from self._gap(queue, entry, unit.position + size, expected)
                expected = unit.position
            else:
                yield from self._gap(queue, entry, expected, unit.position)
                expected = unit.position + size
            yield from self._row(queue, base, unit)
        yield from self._gap(queue, entry, *((start, expected) if self.ask.reverse else (expected, end)))
        if data_end > whole_end:
            yield self._bad(queue, entry, whole_end, data_end, "wrong-file-size")

    def _range(self, base: int, end: int) -> tuple[int, int]:
        """File positions of the wanted units, as far as positions tell queue offsets."""
        if self.target.kind is DumpKind.BATCH:
            return 0, end
        size, ask = consumequeue.UNIT_SIZE, self.ask
        start = max(0, (ask.from_offset or 0) * size - base)
        if ask.to_offset is not None:
            end = min(end, ask.to_offset * size - base)
        return start, max(start, end)

    def _nonzero(self, source: ByteSource, start: int, end: int) -> Iterator[_Unit]:
        """Units that are not zero, in the order that is asked for; holes are skipped."""
        layout = Struct(self._format.struct_code)
        size = layout.size
        step = BLOCK_UNITS * size
        blocks: list[int] = []
        for extent_start, extent_end in source.extents(start, end):
            first = start + (extent_start - start) // step * step
            blocks += [at for at in range(first, extent_end, step) if not blocks or at > blocks[-1]]
        for at in reversed(blocks) if self.ask.reverse else blocks:
            block = bytearray(min(step, end - at))
            self._unreadable += read_salvaging(source, at, memoryview(block))
            if not block.strip(b"\0"):
                continue
            units = [_Unit(at + number * size, values) for number, values in enumerate(layout.iter_unpack(block))]
            for unit in reversed(units) if self.ask.reverse else units:
                if any(unit.values):
                    yield unit

    def _row(self, queue: _DumpedQueue, base: int, unit: _Unit) -> Iterator[DumpRow]:
        if self.target.kind is DumpKind.BATCH:
            ask = self.ask
            number = unit.values[_BASE_AT]
            if number < (ask.from_offset or 0) and ask.from_offset is not None:
                return
            if ask.to_offset is not None and number >= ask.to_offset:
                return
            row = batch_row(queue.topic, queue.queue_id, unit.values)
        else:
            physical_offset, record_size, tags_code = unit.values
            number = (base + unit.position) // consumequeue.UNIT_SIZE
            row = unit_row(queue.topic, queue.queue_id, number, (physical_offset, record_size, tags_code))
        raw = Struct(self._format.struct_code).pack(*unit.values) if self.ask.hex_width is not None else b""
        yield row | self.hex_of(raw, self._format, unit.position)

    def _gap(self, queue: _DumpedQueue, entry: Entry, start: int, end: int) -> Iterator[DumpRow]:
        """Zeros where units should be, if there are any."""
        if start >= end:
            return
        if any(bad_start < end and bad_end > start for bad_start, bad_end in self._unreadable):
            name = "unreadable-range"
        else:
            name = "zero-file" if start == 0 and end >= entry.size else "gap"
        yield self._bad(queue, entry, start, end, name)

    def _extension(self, queue: _DumpedQueue) -> Iterator[DumpRow]:
        for entry in queue.entries:
            if (source := self.opened(entry)) is not None:
                with closing(source):
                    yield from self._extension_file(queue, entry, source)

    def _extension_file(self, queue: _DumpedQueue, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        base = int(entry.name) if is_segment_name(entry.name) else 0
        data_end = last_data_end(source, 0, source.size)
        window = Window(source)
        at = 0
        while at < data_end:
            if at + _EXTENSION_UNIT_MAX > window.end or at < window.start:
                window.fill(at)
            size = int.from_bytes(window.bytes_at(at, 2), "big", signed=True)
            if size == consumequeue.EXTENSION_END_OF_FILE:
                return
            raw = bytes(window.bytes_at(at, max(0, size)))
            bitmap_length = int.from_bytes(raw[18:20], "big", signed=True)
            if size != consumequeue.EXTENSION_HEAD_SIZE + bitmap_length or len(raw) != size or bitmap_length < 0:
                yield self._bad(queue, entry, at, data_end, "bad-extension")
                return
            unit = consumequeue.EXTENSION_UNIT.struct.parse(raw)
            row = extension_row(queue.topic, queue.queue_id, base + at, unit)
            yield row | self.hex_of(raw, consumequeue.EXTENSION_UNIT, at)
            at += size

    def _last_with_data(self, queue: _DumpedQueue) -> int:
        numbers = reversed(range(len(queue.entries)))
        return next((at for at in numbers if may_hold_data(self.target.view.open, queue.entries[at].path)), -1)

    def _bad(self, queue: _DumpedQueue, entry: Entry, start: int, end: int, name: str) -> DumpRow:
        self.bad_ranges += 1
        return bad_file_row(entry.path, start, end - start, f"consumequeue.{name}", queue.topic, queue.queue_id)

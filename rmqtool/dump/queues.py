"""Units of consume queues, extensions and batch queues for `dump`, queue after queue, in order or backwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import Final

from rmqtool.dump.request import RowSource
from rmqtool.dump.target import DumpKind
from rmqtool.engine.queues.unit_runs import BadUnits, UnitRuns
from rmqtool.formats import consumequeue
from rmqtool.report.file_rows import bad_file_row, unit_row
from rmqtool.report.rows import DumpRow
from rmqtool.scan.blocks import Window, last_data_end
from rmqtool.scan.log import may_hold_data
from rmqtool.store.file_kinds import is_segment_name
from rmqtool.store.source import ByteSource
from rmqtool.store.view import Entry

_BATCH_FIELDS: Final = tuple(declared.name for declared in consumequeue.BATCH_UNIT.fields)
_BASE_AT: Final = _BATCH_FIELDS.index("base_queue_offset")
_EXTENSION_UNIT_MAX: Final = 32767


@dataclass(frozen=True)
class _DumpedQueue:
    """The files of one queue; topic and id are None for files that lie elsewhere."""

    topic: str | None
    queue_id: int | None
    entries: tuple[Entry, ...]


@dataclass
class QueueDump(RowSource):
    """The rows of queue files."""

    def rows(self) -> Iterator[DumpRow]:
        """All wanted rows; with `reverse` the last queue and its last unit first."""
        queues = [queue for queue in self._queues() if self.ask.takes_queue(queue.topic, queue.queue_id)]
        for queue in reversed(queues) if self.ask.reverse else queues:
            if self.target.kind is DumpKind.EXTENSION:
                for entry in queue.entries:
                    if (source := self.opened(entry)) is not None:
                        with closing(source):
                            yield from self._extensions(queue, entry, source)
                continue
            last = self._last_with_data(queue)  # after it the files are only preallocated
            for number in range(last, -1, -1) if self.ask.reverse else range(last + 1):
                entry = queue.entries[number]
                if (source := self.opened(entry)) is not None:
                    with closing(source):
                        ends_data = number == last or not self.target.is_chain
                        yield from self._units(queue, entry, source, ends_data=ends_data)

    def _queues(self) -> Iterator[_DumpedQueue]:
        for directory, entries in groupby(self.target.entries, lambda entry: entry.path.rpartition("/")[0]):
            names = directory.split("/")
            placed = len(names) in (3, 4) and names[-1].isascii() and names[-1].removeprefix("-").isdigit()
            yield _DumpedQueue(names[-2] if placed else None, int(names[-1]) if placed else None, tuple(entries))

    def _last_with_data(self, queue: _DumpedQueue) -> int:
        numbers = reversed(range(len(queue.entries)))
        return next((at for at in numbers if may_hold_data(self.target.view.open, queue.entries[at].path)), -1)

    def _units(self, queue: _DumpedQueue, entry: Entry, source: ByteSource, *, ends_data: bool) -> Iterator[DumpRow]:
        ask, is_batch = self.ask, self.target.kind is DumpKind.BATCH
        declared = consumequeue.unit_format(is_batch=is_batch)
        layout = Struct(declared.struct_code)
        size = layout.size
        base = int(entry.name) if is_segment_name(entry.name) else 0
        runs = UnitRuns(source, size, entry.size, lambda: ends_data, reverse=ask.reverse)
        if not is_batch:  # positions tell queue offsets
            runs.first = max(0, (ask.from_offset or 0) * size - base)
            runs.stop = None if ask.to_offset is None else ask.to_offset * size - base
        for run in runs.walk():
            if isinstance(run, BadUnits):
                yield self._bad(queue, entry, run.start, run.end, run.finding)
                continue
            units = list(enumerate(layout.iter_unpack(run.raw)))
            for number, values in reversed(units) if ask.reverse else units:
                at = number * size
                if is_batch:
                    queue_offset = values[_BASE_AT]
                    if ask.from_offset is not None and queue_offset < ask.from_offset:
                        continue
                    if ask.to_offset is not None and queue_offset >= ask.to_offset:
                        continue
                    row = {"type": "batch-unit", "topic": queue.topic, "queue_id": queue.queue_id}
                    row |= zip(_BATCH_FIELDS, values, strict=True)
                else:
                    queue_offset = (base + run.position + at) // consumequeue.UNIT_SIZE
                    row = unit_row(queue.topic, queue.queue_id, queue_offset, values)
                yield row | self.hex_of(run.raw[at : at + size], declared, run.position + at)

    def _extensions(self, queue: _DumpedQueue, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
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
                yield self._bad(queue, entry, at, data_end, "consumequeue.bad-extension")
                return
            unit = consumequeue.EXTENSION_UNIT.struct.parse(raw)
            yield {
                "type": "extension-unit", "topic": queue.topic, "queue_id": queue.queue_id,
                "stream_position": base + at,
                **{declared.name: unit[declared.name] for declared in consumequeue.EXTENSION_UNIT.fields},
                "filter_bitmap": bytes(unit["filter_bitmap"]).hex(),
                **self.hex_of(raw, consumequeue.EXTENSION_UNIT, at),
            }  # fmt: skip
            at += size

    def _bad(self, queue: _DumpedQueue, entry: Entry, start: int, end: int, finding: str) -> DumpRow:
        self.bad_ranges += 1
        return bad_file_row(entry.path, start, end - start, finding, queue.topic, queue.queue_id)

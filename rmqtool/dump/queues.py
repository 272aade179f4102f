"""Units of consume queues, extensions and batch queues for `dump`, queue after queue, in order or backwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from struct import Struct
from typing import Final

from rmqtool.dump.request import RowSource
from rmqtool.dump.target import DumpKind
from rmqtool.engine.queues.unit_runs import BLOCK_UNITS, BadUnits, UnitRuns
from rmqtool.formats import consumequeue
from rmqtool.formats.layout import Format
from rmqtool.formats.rocksdb.queue import DISPATCHED, OFFSET, UNIT
from rmqtool.report.file_rows import unit_row
from rmqtool.report.rows import DumpRow
from rmqtool.scan.blocks import Window, last_data_end
from rmqtool.scan.log import may_hold_data
from rmqtool.store.databases.queue_database import QueueDatabase, StoredEnds, databases_in, read_queue_database
from rmqtool.store.file_kinds import FileKind, is_segment_name, kind_of
from rmqtool.store.source import ByteSource
from rmqtool.store.view import Entry

_BATCH_FIELDS: Final = tuple(declared.name for declared in consumequeue.BATCH_UNIT.fields)
_BASE_AT: Final = _BATCH_FIELDS.index("base_queue_offset")
_EXTENSION_UNIT_MAX: Final = 32767


@dataclass(frozen=True)
class _DumpedQueue:
    """The files of one queue; topic and id are None for files outside a queue's directory."""

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
            open_file, entries = self.target.view.open, queue.entries
            numbers = reversed(range(len(entries)))
            last = next((at for at in numbers if may_hold_data(open_file, entries[at].path)), -1)  # then preallocated
            for number in range(last, -1, -1) if self.ask.reverse else range(last + 1):
                entry = entries[number]
                if (source := self.opened(entry)) is not None:
                    with closing(source):
                        ends_data = number == last or not self.target.is_chain
                        yield from self._units(queue, entry, source, ends_data=ends_data)

    def _queues(self) -> Iterator[_DumpedQueue]:
        for directory, entries in groupby(self.target.entries, lambda entry: entry.path.rpartition("/")[0]):
            names = directory.split("/")
            placed = len(names) in (3, 4) and names[-1].isascii() and names[-1].removeprefix("-").isdigit()
            yield _DumpedQueue(names[-2] if placed else None, int(names[-1]) if placed else None, tuple(entries))

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
                place = (entry.path, run.start, run.end - run.start, run.finding)
                yield self.bad_range(*place, queue.topic, queue.queue_id)
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
                place = (entry.path, at, data_end - at, "consumequeue.bad-extension")
                yield self.bad_range(*place, queue.topic, queue.queue_id)
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


class QueueDatabaseDump(RowSource):
    """The rows of queues of which some or all are in RocksDB: those in files come last."""

    def rows(self) -> Iterator[DumpRow]:
        of_database = {entry: kind_of(entry.path) is FileKind.CONSUMEQUEUE_ROCKSDB for entry in self.target.entries}
        for entries in databases_in([entry for entry in self.target.entries if of_database[entry]]):
            database = read_queue_database(self.target.view, entries)
            if database.failure is not None:
                self.problems.append(f"{database.directory}: the consume queues are in RocksDB: {database.reason}")
            yield from self._rows_of(database)
        of_files = tuple(entry for entry in self.target.entries if not of_database[entry])
        files = QueueDump(replace(self.target, entries=of_files), self.ask, self.problems)
        try:
            yield from files.rows()
        finally:
            self.bad_ranges += files.bad_ranges

    def _rows_of(self, database: QueueDatabase) -> Iterator[DumpRow]:
        ask, file = self.ask, database.directory
        names = sorted(name for name in database.names if ask.takes_queue(*name))
        if ask.reverse:
            names.reverse()
        for name in names:
            queue = database.units.get(name)
            if queue is None:
                continue
            first = 0 if ask.from_offset is None else database.number_of(name, ask.from_offset)
            end = queue.unit_count if ask.to_offset is None else database.number_of(name, ask.to_offset)
            starts = range(first, end, BLOCK_UNITS)
            for start in reversed(starts) if ask.reverse else starts:
                block = database.rows(name, start, min(BLOCK_UNITS, end - start)).tolist()
                for values in reversed(block) if ask.reverse else block:
                    # Extensions are of queues in files only.
                    own = {"extension_position": None, "store_timestamp_ms": values[4], "file": file}
                    yield unit_row(*name, values[0], values[1:4]) | own | self._bytes(UNIT, *values[1:])
        for name in names:
            ends = database.ends.get(name, StoredEnds())
            stored = [("min", ends.minimum), ("max", ends.maximum)]
            for which, stored_end in reversed(stored) if ask.reverse else stored:
                if stored_end is None or (ask.from_offset is not None and stored_end.queue_offset < ask.from_offset):
                    continue
                if ask.to_offset is None or stored_end.queue_offset < ask.to_offset:
                    yield {
                        "type": "queue-end", "topic": name[0], "queue_id": name[1], "end": which,
                        "queue_offset": stored_end.queue_offset, "physical_offset": stored_end.physical_offset,
                        "file": file, **self._bytes(OFFSET, *stored_end),
                    }  # fmt: skip
        if ask.topics or ask.queue_id is not None or ask.from_offset is not None or ask.to_offset is not None:
            return  # the rest belongs to no queue
        if database.dispatched is not None:
            row = {"type": "queue-checkpoint", "physical_offset": database.dispatched, "file": file}
            yield row | self._bytes(DISPATCHED, database.dispatched)
        self.bad_ranges += database.odd_row_count
        for message in database.odd_rows:
            yield {"type": "odd-row", "file": file, "message": message, "finding": "rocksdb.odd-row"}

    def _bytes(self, declared: Format, *values: int) -> DumpRow:
        return self.hex_of(Struct(declared.struct_code).pack(*values), declared, 0)

"""Rows of single files for `dump`: index, checkpoint, abort, configuration and the timer's files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from struct import Struct
from typing import Final

from rmqtool.dump.request import RowSource
from rmqtool.dump.target import DumpKind
from rmqtool.errors import UnreadableError
from rmqtool.formats import index, timer
from rmqtool.formats.abort import parse_abort
from rmqtool.formats.checkpoint import CHECKPOINT, FIELDS_SIZE, FILE_SIZE, parse_checkpoint
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.rocksdb.store import ROW_TYPES
from rmqtool.report.file_rows import bad_file_row
from rmqtool.report.rows import DumpRow
from rmqtool.scan.log import LogFile, RecordTable
from rmqtool.scan.rules import Verdict
from rmqtool.sides.rocksdb_tables import DIRECTORY, SideDatabase
from rmqtool.sides.timer.files import TimerUnit, read_slots, read_units
from rmqtool.store.config.config_json import SIZE_MAX
from rmqtool.store.config.tiered import METADATA, TieredSegment, is_coda, read_tiered
from rmqtool.store.file_kinds import FileKind, is_segment_name, kind_of
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json
from rmqtool.store.source import ByteSource, read_range, read_salvaging
from rmqtool.store.view import Entry

BLOCK: Final = 1 << 19
_SLOT = Struct(index.SLOT.struct_code)
_ENTRY = Struct(index.ENTRY.struct_code)


class FileDump(RowSource):
    """The rows of files that are no streams."""

    def rows(self) -> Iterator[DumpRow]:
        by_kind = {
            DumpKind.INDEX: self._index,
            DumpKind.CHECKPOINT: self._checkpoint,
            DumpKind.ABORT: self._abort,
            DumpKind.CONFIG: self._config,
            DumpKind.TIMER_WHEEL: self._timer_wheel,
            DumpKind.TIMER_LOG: self._timer_log,
            DumpKind.TIMER_CHECK: self._timer_check,
        }
        for entry in self.target.entries:
            if kind_of(entry.path) is FileKind.CONFIG_ROCKSDB:
                continue
            try:
                with closing(self.target.view.open(entry.path)) as source:
                    yield from by_kind[self.target.kind](entry, source)
            except UnreadableError as error:
                self.problems.append(str(error))
        # What databases of RocksDB have, as the files that they replace.
        paths = {entry.path for entry in self.target.entries if kind_of(entry.path) is FileKind.CONFIG_ROCKSDB}
        directories = {path.rpartition("/")[0] for path in paths}
        if not directories:
            return
        from rmqtool.store.config.config_database import read_config_databases

        for database in read_config_databases(self.target.view):
            if database.directory not in directories:
                continue
            for content in database.contents.values():
                yield {"type": "config", "file": database.directory, "content": content}
            for problem in database.problems:
                self.problems.append(problem)
                yield bad_file_row(database.directory, 0, 0, "config.unreadable")
                self.bad_ranges += 1
            if database.failure is not None:
                self.problems.append(f"{database.directory}: the configuration is in RocksDB: {database.reason}")

    def _index(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        raw = read_range(source, 0, index.HEADER_SIZE)
        if len(raw) < index.HEADER_SIZE:
            yield self.bad_range(entry.path, 0, entry.size, "index.bad-header")
            return
        header = index.HEADER.struct.parse(raw)
        slots = self.target.index_slot_count
        row = {"type": "header", "file": entry.path, **{item.name: header[item.name] for item in index.HEADER.fields}}
        yield row | {"slot_count": slots} | self.hex_of(raw, index.HEADER, 0)
        if slots is None:
            if header.next_entry_number != 1:
                self.problems.append(f"{entry.path}: nothing shows its number of slots; pass --index-slots N")
            return
        end = min(index.slot_position(slots), source.size)
        for begin, stop in source.extents(index.HEADER_SIZE, end):
            first = begin - begin % index.SLOT_SIZE  # the header's 40 bytes are a multiple too
            for at, block in self._blocks(entry, source, first, stop, index.SLOT_SIZE):
                for number, (newest,) in enumerate(
                    _SLOT.iter_unpack(block), (at - index.HEADER_SIZE) // index.SLOT_SIZE
                ):
                    if newest:
                        position = index.slot_position(number)
                        row = {"type": "slot", "slot": number, "newest_entry": newest}
                        yield row | self.hex_of(_SLOT.pack(newest), index.SLOT, position)
        start = index.entry_position(1, slots)
        room = max(0, source.size - start) // index.ENTRY_SIZE
        count = max(0, min(header.next_entry_number - 1, room))
        for at, block in self._blocks(entry, source, start, start + count * index.ENTRY_SIZE, index.ENTRY_SIZE):
            for number, values in enumerate(_ENTRY.iter_unpack(block), (at - start) // index.ENTRY_SIZE + 1):
                position = index.entry_position(number, slots)
                row = {"type": "entry", "number": number, "slot": values[0] % slots}
                row |= zip((declared.name for declared in index.ENTRY.fields), values, strict=True)
                yield row | self.hex_of(_ENTRY.pack(*values), index.ENTRY, position)
        if not 0 <= header.next_entry_number - 1 <= room:
            yield self.bad_range(entry.path, 0, index.HEADER_SIZE, "index.bad-header")

    def _blocks(
        self, entry: Entry, source: ByteSource, start: int, end: int, unit: int
    ) -> Iterator[tuple[int, memoryview]]:
        """Blocks of whole units; a range that cannot be read counts as bad, and as zeros."""
        step = BLOCK // unit * unit
        for at in range(start, end, step):
            block = bytearray(min(step, (end - at) // unit * unit))
            for bad_start, bad_end in read_salvaging(source, at, memoryview(block)):
                self.bad_ranges += 1
                self.problems.append(f"{entry.path}: bytes {bad_start} to {bad_end} cannot be read")
            yield at, memoryview(block)

    def _checkpoint(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        raw = read_range(source, 0, FIELDS_SIZE)
        finding = None if entry.size == FILE_SIZE else "checkpoint.bad-size"
        self.bad_ranges += finding is not None
        row = {"type": "checkpoint", "file": entry.path, "file_size": entry.size, **vars(parse_checkpoint(raw))}
        yield row | {"finding": finding} | self.hex_of(raw, CHECKPOINT, 0)

    def _abort(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        yield {"type": "abort", "file": entry.path, "process_id": parse_abort(read_range(source, 0, 64))}

    def _config(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        if entry.size > SIZE_MAX:
            self.problems.append(f"{entry.path}: {entry.size} bytes, which no broker writes; not read")
            return
        text = decode_java_utf8(read_range(source, 0, entry.size))
        try:
            content = parse_relaxed_json(text)
        except JsonError as error:
            self.problems.append(f"{entry.path}: {error}")
            yield self.bad_range(entry.path, 0, entry.size, "config.unreadable")
            return
        yield {"type": "config", "file": entry.path, "content": content}

    def _timer_wheel(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        if entry.size not in (0, timer.WHEEL_SIZE):
            yield self.bad_range(entry.path, 0, entry.size, "timer.wrong-file-size")
        for slot in read_slots(source):
            row = {"type": "timer-slot", "file": entry.path, **slot._asdict()}
            yield row | self.hex_of(timer.pack_slot(slot[1:]), timer.SLOT, slot.number * timer.SLOT_SIZE)

    def _timer_log(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        start = int(entry.name) if is_segment_name(entry.name) else 0
        for unit in read_units(source, start):
            if isinstance(unit, TimerUnit):
                row = {
                    "type": "timer-unit", "file": entry.path, "due_timestamp_ms": unit.due_timestamp_ms,
                    "rolls": unit.rolls, "deletes": unit.deletes, **unit._asdict(),
                }  # fmt: skip
                yield row | self.hex_of(timer.pack_unit(unit[1:]), timer.UNIT, unit.position - start)
            elif unit.is_blank:
                yield {"type": "timer-blank", "file": entry.path, "position": unit.position, "size": unit.length}
            else:
                yield self.bad_range(entry.path, unit.position - start, unit.length, "timer.bad-unit")

    def _timer_check(self, entry: Entry, source: ByteSource) -> Iterator[DumpRow]:
        raw = read_range(source, 0, timer.CHECK_SIZE)
        finding = None if entry.size == timer.CHECK_FILE_SIZE else "timer.bad-check"
        self.bad_ranges += finding is not None
        row = {"type": "timercheck", "file": entry.path, "file_size": entry.size, **vars(timer.parse_check(raw))}
        yield row | {"finding": finding} | self.hex_of(raw, timer.CHECK, 0)


class SideDatabaseDump(RowSource):
    """The rows of `rocksdbstore/`: index, timers and transactions as their tables have them, texts as far as UTF-8."""

    def rows(self) -> Iterator[DumpRow]:
        database = SideDatabase(self.target.view, self.target.entries)
        for family, row in database.rows():
            values = row._asdict()
            values.pop("text", None)
            texts = {name: one.decode("utf-8", "replace") for name, one in values.items() if isinstance(one, bytes)}
            yield {"type": ROW_TYPES[type(row)], "file": DIRECTORY, "table": family} | values | texts
        self.bad_ranges = database.odd_row_count
        if database.odd_row_count:
            self.problems.append(f"{DIRECTORY}: {database.odd_row_count} odd rows, the first: {database.odd_row}")
            yield bad_file_row(DIRECTORY, 0, 0, "rocksdbstore.odd-row")
        if database.failure is not None:
            self.problems.append(f"{DIRECTORY}: index, timers and transactions are in RocksDB: {database.reason}")


# Rows of a tiered store in files for `dump`: the records and units of the segments that its metadata names.


_UNIT: Final = Struct(UNIT.struct_code)
_BLOCK: Final = 4096 * UNIT_SIZE
_RECORDS: Final = "COMMIT_LOG"
_UNITS: Final = "CONSUME_QUEUE"


class TieredDump(RowSource):
    """The rows of all segments, queue after queue; the index is not decoded."""

    def rows(self) -> Iterator[DumpRow]:
        tiered = read_tiered(self.target.view)
        if tiered.is_used and tiered.config.value is None:
            self.problems.append(f"{METADATA}: {'; '.join(tiered.config.problems) or 'it is empty'}")
        if tiered.segments and tiered.root is None:
            self.problems.append(f"{METADATA}: the segments of the tiered store are not in the store's directory")
            return
        for segment in sorted(tiered.segments, key=lambda segment: (segment.owner, segment.kind, segment.start)):
            *_, topic, queue_id = ("", "", *segment.owner.split("/"))
            if not self.ask.takes_queue(topic, int(queue_id) if queue_id.isascii() and queue_id.isdigit() else None):
                continue
            if segment.entry is None and segment.size:
                yield self.bad_range(segment.path, 0, segment.size, "tiered.missing-segment")
            elif segment.entry is not None and segment.kind in (_RECORDS, _UNITS):
                try:
                    yield from (self._records if segment.kind == _RECORDS else self._units)(segment)
                except UnreadableError as error:
                    self.problems.append(str(error))
            elif segment.entry is not None:
                self.problems.append(f"{segment.path}: the index of the tiered store is not decoded")
        known = {segment.path for segment in tiered.segments}
        self.problems += [
            f"{entry.path}: a file of a tiered store that no metadata names; it is not decoded"
            for entry in self.target.entries
            if entry.path not in known and not entry.path.startswith(METADATA)
        ]

    def _records(self, segment: TieredSegment) -> Iterator[DumpRow]:
        file = LogFile(partial(self.target.view.open, segment.path), segment.start)
        with RecordTable.of([file]) as table:
            for batch in table.batches():
                for row in batch.as_rows():
                    position = row.physical_offset - segment.start
                    is_good = row.verdict == Verdict.GOOD and row.magic != MAGIC_BLANK
                    if not is_good and is_coda(row.size, bytes(batch.window.bytes_at(position, 8))):
                        continue
                    if not is_good:
                        yield self.bad_range(segment.path, position, row.size, "tiered.bad-record")
                        continue
                    yield {
                        "type": "tiered-record", "file": segment.path, "file_position": position, "size": row.size,
                        "topic": decode_java_utf8(batch.topics[row.topic_number]), "queue_id": row.queue_id,
                        "queue_offset": row.queue_offset, "physical_offset": row.physical_offset,
                        "store_timestamp_ms": row.store_timestamp_ms,
                    }  # fmt: skip

    def _units(self, segment: TieredSegment) -> Iterator[DumpRow]:
        with closing(self.target.view.open(segment.path)) as source:
            end = source.size // UNIT_SIZE * UNIT_SIZE
            for start in range(0, end, _BLOCK):
                raw = read_range(source, start, min(_BLOCK, end - start))
                for at, values in enumerate(_UNIT.iter_unpack(raw[: len(raw) // UNIT_SIZE * UNIT_SIZE])):
                    position = start + at * UNIT_SIZE
                    yield {
                        "type": "tiered-unit", "file": segment.path, "file_position": position,
                        "queue_offset": (segment.start + position) // UNIT_SIZE,
                        **dict(zip(("physical_offset", "record_size", "tags_code"), values, strict=True)),
                    }  # fmt: skip
            if source.size > end:
                yield self.bad_range(segment.path, end, source.size - end, "tiered.short-segment")

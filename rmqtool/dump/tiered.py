"""Rows of a tiered store in files for `dump`: the records and units of the segments that its metadata names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from struct import Struct
from typing import Final

from rmqtool.dump.request import RowSource
from rmqtool.errors import UnreadableError
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.report.file_rows import bad_file_row
from rmqtool.report.rows import DumpRow
from rmqtool.scan.log import LogFile, plan_log, scan_log
from rmqtool.scan.rules import Verdict
from rmqtool.store.config.tiered import METADATA, TieredSegment, is_coda, read_tiered
from rmqtool.store.source import read_range

_UNIT: Final = Struct(UNIT.struct_code)
_BLOCK: Final = 4096 * UNIT_SIZE
_RECORDS: Final = "COMMIT_LOG"
_UNITS: Final = "CONSUME_QUEUE"


class TieredDump(RowSource):
    """The rows of all segments, queue after queue; the index is not decoded."""

    def rows(self) -> Iterator[DumpRow]:
        """The rows of the queues that are asked for."""
        tiered = read_tiered(self.target.view)
        if tiered.is_used and tiered.config.value is None:
            self.problems.append(f"{METADATA}: {'; '.join(tiered.config.problems) or 'it is empty'}")
        if tiered.segments and tiered.root is None:
            self.problems.append(f"{METADATA}: the segments of the tiered store are not in the store's directory")
            return
        for segment in sorted(tiered.segments, key=lambda segment: (segment.owner, segment.kind, segment.start)):
            if not self._is_asked_for(segment):
                continue
            if segment.entry is None and segment.size:
                self.bad_ranges += 1
                yield bad_file_row(segment.path, 0, segment.size, "tiered.missing-segment")
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

    def _is_asked_for(self, segment: TieredSegment) -> bool:
        """By topic and queue id, which are the end of the owner's path."""
        *_, topic, queue_id = ("", "", *segment.owner.split("/"))
        return self.ask.takes_queue(topic, int(queue_id) if queue_id.isascii() and queue_id.isdigit() else None)

    def _records(self, segment: TieredSegment) -> Iterator[DumpRow]:
        file = LogFile(partial(self.target.view.open, segment.path), segment.start)
        with closing(plan_log([file])) as plan:
            for batch in scan_log(plan):
                for row in batch.as_rows():
                    position = row.physical_offset - segment.start
                    is_good = row.verdict == Verdict.GOOD and row.magic != MAGIC_BLANK
                    if not is_good and is_coda(row.size, bytes(batch.window.bytes_at(position, 8))):
                        continue
                    self.bad_ranges += not is_good
                    if not is_good:
                        yield bad_file_row(segment.path, position, row.size, "tiered.bad-record")
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
                self.bad_ranges += 1
                yield bad_file_row(segment.path, end, source.size - end, "tiered.short-segment")

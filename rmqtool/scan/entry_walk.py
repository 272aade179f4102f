"""The walk over a file of a DLedger log: the record in each entry is a row, and what lies between records is a blank.

So every byte belongs to a row as in a plain log. Broker: `DLedgerCommitLog`, `DLedgerEntryCoder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from rmqtool.formats import commitlog, dledger
from rmqtool.formats.commitlog import MESSAGE_MAGICS
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.columns import Row, bare_row
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import Batch, Walk

ROWS_MAX: Final = 1 << 15
_HEADER: Final = Struct(dledger.ENTRY.struct_code)
_BODY_LENGTH: Final = [field.name for field in dledger.ENTRY.fields].index("body_length")


class EntryWalk(Walk):
    """State of the scan of one file; always from its first byte."""

    def batches(self) -> Iterator[Batch]:
        """Rows of the file; a digest, which knows records that lie side by side, is not asked."""
        return self.scanned()

    def scanned(self) -> Iterator[Batch]:
        """Rows of the file, read and judged."""
        source, more_follows = self.split.source, self.split.more_follows
        self.outcome.first_record, self.outcome.ended = self.split.start, True
        end = last_data_end(source, 0, source.size)
        rows: list[Row] = []
        position = self.split.start
        while position < end:
            if not self.window.holds(position, min(end, position + self.block_size // 2)):
                if rows:
                    yield self._batch(rows)
                    rows = []
                self.window.fill(position, end)
            entry = self._entry(position)
            if entry is None:
                break
            rows += entry
            position += sum(row.size for row in entry)
            if len(rows) >= ROWS_MAX:
                yield self._batch(rows)
                rows = []
        end = max(end, position)  # a message without properties ends in zeros, and so does an entry without a message
        place = self.split.physical_offset + position
        if self._is_end(position):
            end = source.size
            rows.append(bare_row(place, end - position, Verdict.GOOD, commitlog.MAGIC_BLANK))
        elif position < end:
            unreadable = self.window.unreadable_in(position, position + dledger.ENTRY_SIZE)
            # DLedger cuts off what follows the last entry of the last file.
            verdict = Verdict.BAD_SIZE if more_follows else Verdict.STALE
            rows.append(bare_row(place, end - position, Verdict.UNREADABLE_RANGE if unreadable else verdict))
        if rows:
            yield self._batch(rows)
        self.outcome.data_end, self.outcome.tail_bytes = end, source.size - end

    def _is_end(self, position: int) -> bool:
        """Whether the mark that ends a file is at a file position, with room for its length."""
        raw = bytes(self.window.bytes_at(position, dledger.END_SIZE_MIN))
        is_mark = int.from_bytes(raw[:4], "big", signed=True) == dledger.END_OF_FILE
        return is_mark and len(raw) == dledger.END_SIZE_MIN

    def _entry(self, position: int) -> list[Row] | None:
        """The rows of the entry at a file position: its header, and its record; None where no entry is."""
        raw = self.window.bytes_at(position, dledger.ENTRY_SIZE)
        if len(raw) < dledger.ENTRY_SIZE:
            return None
        values = _HEADER.unpack(raw)
        magic, size, length = values[0], values[1], values[_BODY_LENGTH]
        is_whole = size == dledger.ENTRY_SIZE + length <= self.split.source.size - position
        if magic not in dledger.KINDS or length < 0 or not is_whole:
            return None
        place = self.split.physical_offset + position
        if magic != dledger.MESSAGE:
            return [bare_row(place, size, Verdict.GOOD, commitlog.MAGIC_BLANK)]
        header = bare_row(place, dledger.ENTRY_SIZE, Verdict.GOOD, commitlog.MAGIC_BLANK)
        row = self.judge(position + dledger.ENTRY_SIZE)
        if row.size != length or row.magic not in MESSAGE_MAGICS:
            verdict = Verdict.BAD_LENGTHS if row.verdict == Verdict.GOOD else Verdict(row.verdict)
            row = bare_row(place + dledger.ENTRY_SIZE, length, verdict)
        return [header, row]

"""Writes a plain commit log with the messages of a DLedger log: the same records, each at a new physical offset.

Files have the length of those of DLedger, and the first one has the same name. A record never gets a higher offset than
it had, for each one loses the header of its entry; so what had expired stays below the log. Where each record was and
where it is now is kept in two files, for a log has more of them than memory holds.
"""

from __future__ import annotations

import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnsupportedError
from rmqtool.forecast.record_arrays import MovedRecords
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, MAGIC_BLANK, MAGIC_BYTES, PHYSICAL_OFFSET_AT
from rmqtool.formats.dledger import ENTRY_SIZE
from rmqtool.formats.properties import HALF_TOPIC
from rmqtool.scan.runner import OnProgress
from rmqtool.sides.dledger import BadRange, LogEntry, read_entries
from rmqtool.store.directory import Segment
from rmqtool.store.dledger_files import DLedgerLog
from rmqtool.store.file_kinds import segment_name
from rmqtool.store.sink import reported
from rmqtool.store.source import ByteSource, read_range

_PREPARED_BEFORE_BODY: Final = 12
"""Bytes from the offset of the half message to the body: both host addresses, whose length varies, are before them."""
_FILE_SIZE_MAX: Final = (1 << 31) - 1
"""Brokers keep the size of a log file in 32 bits with a sign."""
_NOTED: Final = "before", "now"


@dataclass
class PlainLog:
    """The log as it was written.

    Attributes:
        places: a directory with what `moved` reads.
        files: name of each file, and the modification time that it gets.
        left_out: entries without a message, which only the group needs.
        last: number and term of the last entry; None without one.
        tail: bytes after the last entry that are none; DLedger cuts them off as well.
    """

    places: Path
    files: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    last: tuple[int, int] | None = None
    tail: int = 0

    @property
    def moved(self) -> MovedRecords:
        """Where its records were before; mapped, not read."""
        before, now = (np.memmap(self.places / name, np.int64, "r") for name in _NOTED)
        return MovedRecords(before, now)


def write_plain_log(
    log: DLedgerLog, rules: BrokerRules, directory: Path, places: Path, on_progress: OnProgress | None = None
) -> PlainLog:
    """Write the messages of a log of DLedger into the files of a plain one.

    Args:
        directory, places: where the files of the log are made, and those that tell where its records were; both are
            there, and empty.

    Raises:
        UnsupportedError: a file of the log is damaged, but for its end, or has a size of its own.
        UnreadableError, WriteError: a file cannot be read or written.
    """
    written = PlainLog(places)
    _demand_one_size(log)
    with closing(_Writer(log.data[0], directory, written)) as writer:
        for number, segment in enumerate(log.data):
            with closing(log.store.view.open(segment.path)) as source:
                for entry in _good_entries(log, segment, source, rules, written):
                    writer.append(source, segment, entry)
            if on_progress is not None:
                on_progress(number + 1, len(log.data))
    return written


def _demand_one_size(log: DLedgerLog) -> None:
    """Refuse files that no member of a group writes: a record of a longer file may not fit into the new ones."""
    size = log.data[0].size
    for segment in log.data:
        if segment.size > min(size, _FILE_SIZE_MAX) or (segment.size < size and segment is not log.data[-1]):
            raise UnsupportedError(
                f"{log.store.view.label}: {segment.path} has {segment.size:,} bytes and the first file {size:,}: "
                "nothing is converted; copy the directory from another member of the group first"
            )


def _good_entries(
    log: DLedgerLog, segment: Segment, source: ByteSource, rules: BrokerRules, written: PlainLog
) -> Iterator[LogEntry]:
    for entry in read_entries(source, segment.start, rules):
        if isinstance(entry, BadRange) and segment is log.data[-1]:
            written.tail = entry.length
        elif isinstance(entry, BadRange) or not entry.is_right:
            raise UnsupportedError(
                f"{log.store.view.label}: {segment.path} is damaged at byte {entry.file_position}: nothing is "
                "converted; copy the directory from another member of the group first"
            )
        else:
            written.last = entry.values["index"], entry.values["term"]
            if entry.record is not None:
                yield entry
            else:
                written.left_out += 1


class _Writer:
    def __init__(self, first: Segment, directory: Path, written: PlainLog) -> None:
        self._directory, self._written = directory, written
        self._file_size = first.size
        self._start, self._at = first.start, 0
        self._file: BinaryIO | None = None
        self._path = directory
        self._halves, self._new_halves = array("q"), array("q")
        self._old_end = first.start
        self._noted = [(written.places / name).open("wb") for name in _NOTED]

    def append(self, source: ByteSource, segment: Segment, entry: LogEntry) -> None:
        record = entry.record
        assert record is not None, "only entries with a message are appended"
        if self._at + record.size + BLANK_SIZE_MIN > self._file_size:
            blank = (self._file_size - self._at).to_bytes(4, "big") + MAGIC_BYTES[MAGIC_BLANK]
            self._write(blank)
            self._next_file()
        raw = bytearray(read_range(source, entry.file_position + ENTRY_SIZE, record.size))
        place = self._start + self._at
        raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = place.to_bytes(8, "big")
        half = bisect_left(self._halves, record.prepared_transaction_offset)
        if self._halves[half : half + 1] == array("q", [record.prepared_transaction_offset]):
            at = record.body_position - _PREPARED_BEFORE_BODY
            raw[at : at + 8] = self._new_halves[half].to_bytes(8, "big")
        if record.topic == HALF_TOPIC:
            self._halves.append(record.physical_offset)
            self._new_halves.append(place)
        self._write(raw)
        self._note(record.physical_offset, place)
        self._old_end = record.physical_offset + record.size
        self._written.files[self._path.name] = segment.entry.mtime_ns

    def close(self) -> None:
        """Finish the files."""
        self._note(self._old_end, self._start + self._at)
        with reported(str(self._written.places)):
            for file in self._noted:
                file.close()
        self._end_file()

    def _note(self, *places: int) -> None:
        with reported(str(self._written.places)):
            for file, place in zip(self._noted, places, strict=True):
                file.write(place.to_bytes(8, sys.byteorder))

    def _end_file(self) -> None:
        if self._file is not None:
            with reported(str(self._path)), self._file as file:
                file.flush()
                os.ftruncate(file.fileno(), self._file_size)
            self._file = None

    def _write(self, data: bytes | bytearray) -> None:
        with reported(str(self._path)):
            if self._file is None:
                self._path = self._directory / segment_name(self._start)
                self._file = self._path.open("wb")
            self._file.write(data)
        self._at += len(data)

    def _next_file(self) -> None:
        self._end_file()
        self._start, self._at = self._start + self._file_size, 0

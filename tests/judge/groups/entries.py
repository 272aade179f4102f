"""What lies in the logs of a group's member, read without rmqtool: entries of DLedger, and records of a plain log."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.judge.target import BLANK_MAGIC
from tests.judge.unjudged import judged_ranges_of

HEADER = struct.Struct(">iiqqqiiii")
"""magic, size, index, term, position, channel, chain checksum, body checksum, body length."""
UNIT = struct.Struct(">iqiqq")
MESSAGE, KINDS, END = 1, (1, 2, 3), -1
JUDGED_OF_HEADER = ((0, 32), (44, 48))
"""No broker looks at channel and checksums, which are 0 in what they write."""
SYS_FLAG_AT = 36
IN_NO_QUEUE = (4, 12)
"""Kinds of transaction in the system flag of records that no queue gets: prepared, and rolled back."""


@dataclass(frozen=True)
class Entry:
    """An entry, its place in the log and what it holds."""

    place: int
    index: int
    content: bytes

    @property
    def record(self) -> bytes:
        return self.content[HEADER.size :]

    @property
    def is_message(self) -> bool:
        return int.from_bytes(self.content[:4], "big", signed=True) == MESSAGE

    def judged(self) -> Iterator[tuple[int, int]]:
        """Ranges of its bytes that somebody looks at."""
        yield from JUDGED_OF_HEADER
        if self.is_message:
            for low, high in judged_ranges_of(self.record, has_crc=False):
                yield HEADER.size + low, HEADER.size + high


def data_files(store: Path, directories: tuple[str, ...]) -> list[Path]:
    """The files of the entries, in order."""
    files = [file for name in directories if (store / name).is_dir() for file in (store / name).iterdir()]
    return sorted((file for file in files if file.name.isdigit()), key=lambda file: file.name)


def entries_of(store: Path, directories: tuple[str, ...]) -> list[Entry]:
    """All entries of an undamaged log."""
    entries = []
    for file in data_files(store, directories):
        content, at = file.read_bytes(), 0
        while at + HEADER.size <= len(content):
            magic, size, index = HEADER.unpack_from(content, at)[:3]
            if magic not in KINDS:
                break
            entries.append(Entry(int(file.name) + at, index, content[at : at + size]))
            at += size
    return entries


def plain_records(store: Path) -> dict[int, bytes]:
    """The records of an undamaged plain log by physical offset."""
    records = {}
    for file in data_files(store, ("commitlog",)):
        content, at = file.read_bytes(), 0
        while at + 8 <= len(content):
            size, magic = struct.unpack_from(">iI", content, at)
            if size <= 0 or magic == BLANK_MAGIC:
                break
            records[int(file.name) + at] = content[at : at + size]
            at += size
    return records


def is_queued(record: bytes) -> bool:
    """Whether dispatch gives a record to a queue."""
    return int.from_bytes(record[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big") & 12 not in IN_NO_QUEUE

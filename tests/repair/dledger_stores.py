"""Stores of DLedger for tests: those of plain brokers, each record of the log put into an entry."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from struct import pack, unpack_from

from rmqtool.formats import consumequeue, dledger, timer
from rmqtool.formats.commitlog import MAGIC_BLANK

_HOSTS_V6 = 0x10, 0x20


def as_dledger(path: Path) -> Path:
    """Move a store's log into DLedger, and its queues to where the records lie then; its index stays as it was."""
    segments = sorted((path / "commitlog").iterdir())
    data, index = path / "dledger-n0" / "data", path / "dledger-n0" / "index"
    data.mkdir(parents=True)
    index.mkdir()
    file_size, start = segments[0].stat().st_size, int(segments[0].name)
    content, units, moved = bytearray(), bytearray(), dict[int, int]()
    for number, record in enumerate(record for segment in segments for record in records_of(segment.read_bytes())):
        size = dledger.ENTRY_SIZE + len(record)
        if len(content) + size + dledger.END_SIZE_MIN > file_size:
            content += pack(">ii", dledger.END_OF_FILE, file_size - len(content))
            (data / f"{start:020}").write_bytes(content.ljust(file_size, b"\0"))
            start, content = start + file_size, bytearray()
        position = start + len(content)
        moved[unpack_from(">q", record, 28)[0]] = position + dledger.ENTRY_SIZE
        content += pack(">iiqqqiiii", 1, size, number, 2, position, 0, 0, 0, len(record))
        content += _moved(record, position + dledger.ENTRY_SIZE, moved)
        units += pack(">iqiqq", 1, position, size, number, 2)
    (data / f"{start:020}").write_bytes(content.ljust(file_size, b"\0"))
    (index / f"{0:020}").write_bytes(units)
    os.truncate(index / f"{0:020}", dledger.INDEX_FILE_SIZE)
    (path / "dledger-n0" / "checkpoint").write_text(f"committedIndex={len(units) // 32 - 1}\n")
    shutil.rmtree(path / "commitlog")
    for file in path.glob("consumequeue/*/*/*"):
        file.write_bytes(_queue_file(bytearray(file.read_bytes()), consumequeue.UNIT_SIZE, moved))
    for file in path.glob("batchconsumequeue/*/*/*"):
        file.write_bytes(_queue_file(bytearray(file.read_bytes()), consumequeue.BATCH_UNIT_SIZE, moved))
    for file in path.glob("timerlog/*"):
        file.write_bytes(_timer_log(bytearray(file.read_bytes()), moved))
    return path


def _queue_file(content: bytearray, unit_size: int, moved: dict[int, int]) -> bytearray:
    """A file of a queue whose units lead to the moved records."""
    for at in range(0, len(content) - unit_size + 1, unit_size):
        old, size = unpack_from(">qi", content, at)
        if 0 < size < consumequeue.FILLER_UNIT[1]:
            content[at : at + 8] = pack(">q", moved.get(old, old))
    return content


def _timer_log(content: bytearray, moved: dict[int, int]) -> bytearray:
    """A file of the timer log whose units lead to the moved records."""
    for at in range(0, len(content) - timer.UNIT_SIZE + 1, timer.UNIT_SIZE):
        if any(content[at : at + timer.UNIT_SIZE]):
            place = at + timer.UNIT.position("physical_offset")
            (old,) = unpack_from(">q", content, place)
            content[place : place + 8] = pack(">q", moved.get(old, old))
    return content


def records_of(content: bytes) -> list[bytearray]:
    records, at = [], 0
    while at + 8 <= len(content):
        size, magic = unpack_from(">ii", content, at)
        if size <= 0 or magic == MAGIC_BLANK:
            break
        records.append(bytearray(content[at : at + size]))
        at += size
    return records


def _moved(record: bytearray, place: int, moved: dict[int, int]) -> bytearray:
    """A record with its new physical offset, and that of its half message."""
    record[28:36] = pack(">q", place)
    (system_flag,) = unpack_from(">i", record, 36)
    at = 76 + 12 * sum(bool(system_flag & bit) for bit in _HOSTS_V6)
    (half,) = unpack_from(">q", record, at)
    record[at : at + 8] = pack(">q", moved.get(half, half) if half else 0)
    return record

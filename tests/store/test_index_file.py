"""Index files give header, slots and entries; what lies after their end reads as zero."""

from __future__ import annotations

import errno
import struct
from functools import partial
from pathlib import Path

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.formats.index import HEADER_SIZE, IndexHeader, entry_position, file_size
from rmqtool.store import index_file
from rmqtool.store.index_file import IndexEntry, IndexFile, index_headers, reader_of
from rmqtool.store.source import BytesSource, read_range
from rmqtool.store.view import DirectoryView

SLOTS = 10
HEADER = IndexHeader(1, 2, 3, 4, 5, 4)


@pytest.fixture
def content() -> bytes:
    raw = bytearray(file_size(SLOTS, 6))
    raw[:HEADER_SIZE] = HEADER.build()
    raw[HEADER_SIZE + 4 * 7 : HEADER_SIZE + 4 * 8] = (3).to_bytes(4, "big")
    for number in range(1, 4):
        entry = struct.pack(">iqii", 100 + number, 1 << (40 + number), number, number - 1)
        raw[entry_position(number, SLOTS) : entry_position(number + 1, SLOTS)] = entry
    return bytes(raw)


def opened(content: bytes) -> IndexFile:
    return IndexFile(partial(read_range, BytesSource("index", content)), SLOTS)


def test_header_slots_and_entries(content: bytes) -> None:
    file = opened(content)
    assert file.header == HEADER
    assert [file.newest_entry(number) for number in (7, 17, 8)] == [3, 3, 0]
    assert file.entry(3) == IndexEntry(103, 1 << 43, 3, 2)


def test_what_lies_after_the_end_is_zero(content: bytes) -> None:
    file = opened(content[: entry_position(3, SLOTS) + 12])
    assert file.entry(3) == IndexEntry(103, 1 << 43, 0, 0)
    assert file.entry(5) == IndexEntry(0, 0, 0, 0)
    assert opened(content[:50]).newest_entry(7) == 0
    assert opened(b"").header == IndexHeader(next_entry_number=0)


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_entries_come_in_blocks(content: bytes, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "BLOCK_ENTRIES", block)
    entries = {
        number + at: int(entry["key_hash"])
        for number, entries in opened(content).entries(3)
        for at, entry in enumerate(entries)
    }
    assert entries == {1: 101, 2: 102, 3: 103}
    assert list(opened(content).entries(0)) == []


def test_a_part_of_an_entry_at_the_end_is_none(content: bytes) -> None:
    ((number, entries),) = opened(content[: entry_position(3, SLOTS) + 19]).entries(3)
    assert (number, entries["key_hash"].tolist()) == (1, [101, 102])


def test_headers_of_files_that_are_long_enough(tmp_path: Path, content: bytes) -> None:
    for name, length in (("1", HEADER_SIZE), ("2", HEADER_SIZE - 1), ("3", len(content))):
        (tmp_path / name).write_bytes(content[:length])
    view = DirectoryView(tmp_path)
    assert list(index_headers(view, view.list(""))) == [HEADER, HEADER]


def test_entries_come_newest_first_and_without_number_0(content: bytes) -> None:
    file = opened(content)
    assert [entry.key_hash for entry in file.entries_before(3, 2)] == [103, 102]
    assert [entry.key_hash for entry in file.entries_before(3, 64)] == [103, 102, 101]
    assert file.entries_before(0, 64) == file.entries_before(-5, 64) == []


def test_the_last_record_has_the_entries_that_lead_to_it(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "_LAST_ENTRIES", 2)
    raw = bytearray(content)
    for last_record, count in ((HEADER.end_physical_offset, 3), (7, 0)):
        for number in range(1, 4):
            at = entry_position(number, SLOTS) + 4
            raw[at : at + 8] = last_record.to_bytes(8, "big")
        assert opened(bytes(raw)).entries_of_last_record() == count


def test_of_a_small_file_with_a_bad_sector_the_rest_is_read(content: bytes) -> None:
    class Bad(BytesSource):
        def read_into(self, position: int, buffer: memoryview) -> int:
            if position + len(buffer) > HEADER_SIZE:
                raise OSError(errno.EIO, "bad sector")
            return super().read_into(position, buffer)

    read = reader_of(Bad("index", content))
    assert read(0, HEADER_SIZE) == HEADER.build()
    with pytest.raises(UnreadableError):
        read(HEADER_SIZE, 4)


def test_a_small_file_gives_nothing_before_its_start_or_after_its_end(content: bytes) -> None:
    read = reader_of(BytesSource("index", content))
    assert read(-4, 4) == read(4, -1) == read(len(content), 4) == b""
    assert read(len(content) - 2, 4) == content[-2:]

"""Time and memory are bounded whatever a file claims: lengths of gigabytes, records at every byte."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import MAGIC_BLANK, MAGIC_V1
from rmqtool.scan.compiled import CompiledReader
from rmqtool.scan.rules import Verdict
from rmqtool.scan.walk import WORK_BASE, WORK_PER_BYTE
from rmqtool.store.source import BytesSource, FileSource
from tests.scan.logs import MakeReader, Message, log_bytes, numbered, scan

MEMORY_LIMIT = 16 << 20


@dataclass
class CountedSource(BytesSource):
    """Bytes in memory, and how many of them were read."""

    bytes_read: int = 0

    def read_into(self, position: int, buffer: memoryview) -> int:
        count = super().read_into(position, buffer)
        self.bytes_read += count
        return count


@pytest.fixture
def measured() -> Iterator[None]:
    """Fails if more memory is in use at any time than a scan may take; the compiler's own is none of that."""
    scan(log_bytes(numbered(1)), CompiledReader)
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_LIMIT


def _sparse(path: Path, content: bytes, size: int, at: int = 0) -> FileSource:
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(at)
        file.write(content)
    return FileSource.open(path)


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("field", ["size", "body_length"])
@pytest.mark.parametrize("claim", [0x7FFFFFFF, 0x70000000, 0x00FFFFFF, -1, -(1 << 31)])
def test_a_length_of_gigabytes_takes_no_memory(tmp_path: Path, reader: MakeReader, field: str, claim: int) -> None:
    log = log_bytes(numbered(20), tail=0, blank=False)
    position = log.spans[5][0] + (commitlog.MESSAGE_V1.position(field) or 0)
    content = log.patched(position, claim.to_bytes(4, "big", signed=True)).content
    with _sparse(tmp_path / "log", content, 0x7FFFFFFF) as source:
        found = scan(source, reader)
    assert found.good_places() == [start for start, _ in log.spans if start != log.spans[5][0]]


@pytest.mark.usefixtures("measured")
def test_a_whole_record_of_a_gigabyte_is_judged_in_parts(tmp_path: Path, reader: MakeReader) -> None:
    size = 1 << 30
    head = Message(body=b"").record(0)[: commitlog.HEAD_SIZE]
    head = (size - 1000).to_bytes(4, "big") + head[4:-4] + (size - 2000).to_bytes(4, "big")
    with _sparse(tmp_path / "log", head, size) as source:
        found = scan(source, reader)
    assert [verdict for verdict, _, _ in found.bad()] == [Verdict.TORN_RECORD]


def test_a_sparse_tail_costs_nothing(tmp_path: Path, reader: MakeReader) -> None:
    log = log_bytes(numbered(20), tail=0, blank=False)
    with _sparse(tmp_path / "log", log.content, 1 << 40) as source:
        if os.fstat(source.descriptor).st_blocks * 512 > 1 << 20:
            pytest.skip("this file system has no holes")
        found = scan(source, reader)
    assert len(found.good()) == 20
    assert found.outcome.tail_bytes == (1 << 40) - log.records_end


def test_records_behind_a_hole_of_the_file_system_are_found(tmp_path: Path, reader: MakeReader) -> None:
    at = (1 << 30) + 4096 - 2  # the size in front of the magic begins in the hole
    log = log_bytes(numbered(3), physical_offset=at, tail=0, blank=False)
    with _sparse(tmp_path / "log", log.content, 1 << 31, at) as source:
        found = scan(source, reader)
    assert found.good_places() == [at + start for start, _ in log.spans]
    assert found.bad() == [(Verdict.HOLE, 0, at)]


def _hostile(size: int, step: int, good_between: bytes = b"") -> bytes:
    """A record at every `step` bytes, each with its own offset right, and reaching to the end of the file."""
    content = bytearray(size)
    at = 0
    while at + 200 < size:
        content[at : at + 4] = (size - at).to_bytes(4, "big")
        content[at + 4 : at + 8] = MAGIC_V1.to_bytes(4, "big", signed=True)
        content[at + 28 : at + 36] = at.to_bytes(8, "big")
        length = size - at - commitlog.HEAD_SIZE - 9 - 3
        content[at + 84 : at + 88] = length.to_bytes(4, "big")
        at += step
        if good_between:
            good = Message(body=b"", properties=b"", topic=b"T").record(at)
            content[at : at + len(good)] = good
            at += len(good)
    return bytes(content)


@pytest.mark.parametrize(("step", "with_good"), [(8, False), (16, False), (40, False), (120, False), (120, True)])
def test_records_claimed_at_every_byte_take_bounded_work(reader: MakeReader, step: int, *, with_good: bool) -> None:
    source = CountedSource("hostile", _hostile(2 << 20, step, b"good" if with_good else b""))
    scan(source, reader, block_size=1 << 16)
    # Were each judged in full, this would be a hundred gigabytes.
    assert source.bytes_read < 2 * (WORK_BASE + WORK_PER_BYTE * source.size)


def test_a_magic_at_every_place_is_no_record(reader: MakeReader) -> None:
    for magic in (MAGIC_V1, MAGIC_BLANK):
        content = magic.to_bytes(4, "big", signed=True) * (1 << 18)
        assert scan(content, reader).good() == []


def test_many_damaged_records_are_all_found(reader: MakeReader) -> None:
    # Honest damage never comes near the bound on work, however much of it there is.
    log = log_bytes(numbered(3000), tail=100)
    content = bytearray(log.content)
    for start, _ in log.spans[::2]:
        content[start + commitlog.HEAD_SIZE] ^= 0xFF
    found = scan(log.with_content(bytes(content)), reader)
    assert found.good_places() == [start for start, _ in log.spans[1::2]]
    assert len(found.bad()) == 1500

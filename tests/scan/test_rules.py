"""Damage of one byte, of the file's length, of the disk: never a crash, never silence about a body."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import pytest

from rmqtool.formats.commitlog import HEAD_SIZE, MAGIC_BLANK
from rmqtool.scan.rules import Verdict
from rmqtool.store.source import BytesSource
from tests.scan.logs import FIRST_STORE_TIMESTAMP_MS, MakeReader, Message, log_bytes, numbered, scan

SECTOR = 512


@dataclass
class BadDisk(BytesSource):
    """Bytes in memory of which some sectors cannot be read, and which may be shorter than they were."""

    bad_sectors: frozenset[int] = frozenset()
    shrunk_to: int | None = None
    reads: list[tuple[int, int]] = field(default_factory=list)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self.reads.append((position, len(buffer)))
        if any(
            position < (number + 1) * SECTOR and position + len(buffer) > number * SECTOR for number in self.bad_sectors
        ):
            raise OSError(errno.EIO, "Input/output error")
        end = len(self.content) if self.shrunk_to is None else self.shrunk_to
        part = self.content[position : min(end, position + len(buffer))]
        buffer[: len(part)] = part
        return len(part)


def test_a_flip_of_any_byte_is_survived_and_a_flip_in_a_body_reported(reader: MakeReader) -> None:
    log = log_bytes(numbered(5), tail=40)
    bodies = [
        (start + HEAD_SIZE, start + HEAD_SIZE + len(numbered(5)[number].body), start)
        for number, (start, _) in enumerate(log.spans)
    ]
    for position in range(len(log.content)):
        for mask in (0x01, 0x80, 0xFF):
            found = scan(log.patched(position, bytes([log.content[position] ^ mask])), reader)
            touched = [start for start, end in log.spans if start <= position < end]
            intact = {start for start, _ in log.spans} - set(touched)
            assert intact <= {row.physical_offset for row in found.rows if row.verdict in (Verdict.GOOD, Verdict.STALE)}
            for start, end, record in bodies:
                if start <= position < end:
                    size = next(last - first for first, last in log.spans if first == record)
                    assert found.bad() == [(Verdict.BODY_CRC_MISMATCH, record, size)]


@pytest.mark.parametrize("more_follows", [False, True])
def test_a_file_cut_at_any_length_keeps_its_whole_records(reader: MakeReader, *, more_follows: bool) -> None:
    log = log_bytes(numbered(5), tail=40)
    for length in range(len(log.content)):
        found = scan(log.content[:length], reader, more_follows=more_follows)
        whole = [start for start, end in log.spans if end <= length]
        assert found.good_places() == whole
        behind = max((end for start, end in log.spans if end <= length), default=0)
        if more_follows or any(log.content[behind:length]):
            assert len(found.bad()) == 1
            assert found.bad()[0][1] == behind
        else:
            assert found.bad() == []


def test_a_record_that_ends_with_the_file_is_found(reader: MakeReader) -> None:
    log = log_bytes(numbered(3), tail=0, blank=False)
    assert scan(log, reader).bad() == []
    found = scan(log, reader, more_follows=True)
    assert found.bad() == [(Verdict.MISSING_END_BLANK, log.records_end, 0)]
    assert len(found.good()) == 3


@pytest.mark.parametrize("tail", [1, 7, 8, 500])
def test_a_full_file_without_its_blank_is_missing_it(reader: MakeReader, tail: int) -> None:
    log = log_bytes(numbered(3), tail=tail, blank=False)
    assert scan(log, reader, more_follows=True).bad() == [(Verdict.MISSING_END_BLANK, log.records_end, tail)]
    last = scan(log, reader)
    assert last.bad() == []
    assert last.outcome.tail_bytes == tail


@pytest.mark.parametrize("tail", [8, 500])
def test_a_blank_of_any_size_ends_a_file(reader: MakeReader, tail: int) -> None:
    log = log_bytes(numbered(3), tail=tail)
    found = scan(log, reader, more_follows=True)
    assert found.bad() == []
    assert (found.rows[-1].magic, found.rows[-1].size) == (MAGIC_BLANK, tail)


def test_a_blank_may_be_filled_with_anything(reader: MakeReader) -> None:
    log = log_bytes(numbered(3), tail=400)
    junk = Message().record(log.records_end + 8)  # right in every respect, but inside the blank
    found = scan(log.patched(log.records_end + 8, junk), reader)
    assert found.bad() == []
    assert len(found.good()) == 3


def test_a_file_of_zeros_in_the_middle_of_the_log_is_a_hole(reader: MakeReader) -> None:
    assert scan(bytes(5000), reader, more_follows=True).bad() == [(Verdict.HOLE, 0, 5000)]
    assert scan(bytes(5000), reader).outcome.tail_bytes == 5000


def test_zeros_from_the_begin_of_a_record_are_a_hole_wherever_they_end(reader: MakeReader) -> None:
    log = log_bytes(numbered(8))
    start, end = log.spans[2][0], log.spans[4][0] + 30
    found = scan(log.patched(start, bytes(end - start)), reader)
    assert found.bad() == [(Verdict.HOLE, start, log.spans[5][0] - start)]


def test_two_damaged_bodies_in_a_row_are_two_findings(reader: MakeReader) -> None:
    log = log_bytes(numbered(6))
    for number in (2, 3):
        log = log.patched(log.spans[number][0] + HEAD_SIZE, b"\xff")
    expected = [(Verdict.BODY_CRC_MISMATCH, start, end - start) for start, end in log.spans[2:4]]
    assert scan(log, reader).bad() == expected


def test_a_damaged_last_record_that_arrived_whole_is_not_torn(reader: MakeReader) -> None:
    # Without properties the record ends in two zero bytes, which look like the file's untouched rest.
    log = log_bytes(numbered(3, properties=b""), tail=500, blank=False)
    start, end = log.spans[-1]
    found = scan(log.patched(start + HEAD_SIZE, b"\xff"), reader)
    assert found.bad() == [(Verdict.BODY_CRC_MISMATCH, start, end - start)]


def test_a_last_record_whose_end_never_arrived_is_torn(reader: MakeReader) -> None:
    log = log_bytes(numbered(3), tail=500, blank=False)
    start, end = log.spans[-1]
    for kept in range(9, HEAD_SIZE + 5):
        cut = log.patched(start + kept, bytes(end - start - kept))
        data_end = len(cut.content.rstrip(b"\0"))
        assert scan(cut, reader).bad() == [(Verdict.TORN_RECORD, start, data_end - start)]


def test_what_a_cut_left_of_older_records_is_stale(reader: MakeReader) -> None:
    old = log_bytes(numbered(10), tail=500, blank=False)
    fresh = log_bytes([Message(body=b"fresh", store_timestamp_ms=FIRST_STORE_TIMESTAMP_MS + 60_000)])
    length = fresh.spans[0][1]
    found = scan(old.patched(0, fresh.content[:length]), reader)
    assert found.good_places() == [0]
    assert found.outcome.stale
    assert {verdict for verdict, _, _ in found.bad()} == {Verdict.STALE}
    leftover, *whole = found.bad()
    assert leftover[1] == length
    assert [place for _, place, _ in whole] == [start for start, _ in old.spans if start >= length]


def test_a_clock_that_was_set_back_makes_nothing_stale(reader: MakeReader) -> None:
    messages = [Message(store_timestamp_ms=FIRST_STORE_TIMESTAMP_MS - 3_600_000 * (number > 3)) for number in range(8)]
    assert scan(log_bytes(messages), reader).bad() == []


def test_a_damaged_record_makes_the_next_one_not_stale_that_begins_where_it_ends(reader: MakeReader) -> None:
    times = (FIRST_STORE_TIMESTAMP_MS - 3_600_000 * (number > 3) for number in range(8))
    log = log_bytes([Message(body=b"x" * 20, store_timestamp_ms=time) for time in times])
    start, end = log.spans[3]
    found = scan(log.patched(start + HEAD_SIZE, b"!"), reader)
    assert found.bad() == [(Verdict.BODY_CRC_MISMATCH, start, end - start)]
    assert not found.outcome.stale


def test_records_are_never_looked_for_inside_an_intact_one(reader: MakeReader) -> None:
    inner_at = HEAD_SIZE + 10
    first = numbered(1)[0].record(0)
    body = b"x" * 10 + Message(body=b"inner").record(len(first) + inner_at) + b"y" * 10
    log = log_bytes([numbered(1)[0], Message(body=body), *numbered(3)])
    found = scan(log, reader)
    assert found.bad() == []
    assert found.good_places() == [start for start, _ in log.spans]


def test_a_damaged_body_with_a_whole_record_inside_is_one_bad_range(reader: MakeReader) -> None:
    first = numbered(1)[0].record(0)
    body = b"x" * 10 + Message(body=b"inner").record(len(first) + HEAD_SIZE + 10) + b"y" * 10
    log = log_bytes([numbered(1)[0], Message(body=body), *numbered(3)])
    start, end = log.spans[1]
    found = scan(log.patched(start + HEAD_SIZE, b"!"), reader)
    assert found.bad() == [(Verdict.BODY_CRC_MISMATCH, start, end - start)]


@pytest.mark.parametrize("block_size", [300, 1 << 19])
def test_what_the_disk_does_not_give_is_a_finding_and_the_rest_is_read(reader: MakeReader, block_size: int) -> None:
    log = log_bytes(numbered(60), tail=700)
    for bad in ({0}, {3}, {3, 4, 5}, {1, 6, 11}, set(range(20))):
        source = BadDisk("log", log.content, frozenset(bad))
        found = scan(source, reader, block_size=block_size)
        hit = {
            start
            for start, end in log.spans
            if any(start < (number + 1) * SECTOR and end > number * SECTOR for number in bad)
        }
        assert found.good_places() == [start for start, _ in log.spans if start not in hit]
        assert {verdict for verdict, _, _ in found.bad()} <= {Verdict.UNREADABLE_RANGE}
        covered = [(place, place + size) for _, place, size in found.bad()]
        assert all(any(start <= record < end for start, end in covered) for record in hit)


def test_a_file_that_shrinks_while_it_is_read_is_a_finding(reader: MakeReader) -> None:
    log = log_bytes(numbered(20), tail=300)
    for shrunk_to in range(0, len(log.content), 97):
        found = scan(BadDisk("log", log.content, shrunk_to=shrunk_to), reader, block_size=400)
        whole = [start for start, end in log.spans if end <= shrunk_to]
        assert found.good_places() == whole
        end = max((end for _, end in log.spans if end <= shrunk_to), default=0)
        lost = [(Verdict.UNREADABLE_RANGE, end, len(log.content) - end)]
        assert found.bad() == (lost if shrunk_to < log.records_end + 8 else [])  # behind a blank's frame lies nothing


def test_one_bad_sector_does_not_slow_the_rest_of_the_file(reader: MakeReader) -> None:
    log = log_bytes(numbered(4000))
    source = BadDisk("log", log.content, frozenset({1}))
    scan(source, reader, block_size=1 << 16)
    # As many reads as blocks, and those with which the bad sector was narrowed down.
    assert len(source.reads) < len(log.content) // (1 << 16) + 60

"""A log in parts, files and threads gives what it gives in one split; no more files are open than are being read."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.errors import UnreadableError
from rmqtool.formats.commitlog import HEAD_SIZE, MAGIC_BLANK
from rmqtool.scan.columns import Row
from rmqtool.scan.compiled import CompiledReader
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions, carries_record_crc, reader_for
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import Split, SplitOutcome, merged_outcome, sub_splits, whole_file
from rmqtool.scan.walk import PlainReader, Walk
from rmqtool.store.source import ByteSource, BytesSource, FileSource
from tests.scan.logs import (
    LogBytes,
    MakeReader,
    Message,
    log_bytes,
    numbered,
    scan,
    scan_split,
)
from tests.scan.strategies import Damaged, damaged_logs


def in_parts(split: Split, count: int) -> list[Split]:
    """Parts of equal length."""
    return sub_splits(split, (split.start + (split.end - split.start) * number // count for number in range(count)))


def _rows_of_parts(split: Split, splits: list[Split], make_reader: MakeReader) -> list[Row] | None:
    """Rows of all parts; None where they do not make up the whole."""
    parts = [scan_split(part, make_reader) for part in splits]
    rows = [row._replace(topic_number=0) for part in parts for row in part.rows]  # topic numbers are local to a part
    sound = all(row.verdict == Verdict.GOOD for row in rows)
    return rows if sound and merged_outcome(split, [part.outcome for part in parts]) is not None else None


def _assert_parts_agree(log: LogBytes, count: int, make_reader: MakeReader, *, more_follows: bool = False) -> None:
    whole = scan(log, make_reader, more_follows=more_follows)
    split = whole_file(BytesSource("log", log.content), log.physical_offset, more_follows=more_follows)
    splits = in_parts(split, count)
    assert _rows_of_parts(split, splits, make_reader) == [row._replace(topic_number=0) for row in whole.rows]
    joined = merged_outcome(split, [scan_split(part, make_reader).outcome for part in splits])
    assert joined is not None
    assert (joined.data_end, joined.tail_bytes) == (whole.outcome.data_end, whole.outcome.tail_bytes)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("more_follows", [False, True])
def test_parts_join_to_the_whole(reader: MakeReader, count: int, *, more_follows: bool) -> None:
    log = log_bytes(numbered(50), physical_offset=65536, tail=900)
    _assert_parts_agree(log, count, reader, more_follows=more_follows)


@pytest.mark.parametrize("count", [2, 7])
def test_a_record_inside_a_body_makes_no_whole(reader: MakeReader, count: int) -> None:
    first = Message().record(0)
    inner = Message(body=b"inner").record(len(first) + HEAD_SIZE + 3000)
    body = b"x" * 3000 + inner + b"y" * 3000
    log = log_bytes([Message(), Message(body=body), *numbered(3)])
    split = whole_file(BytesSource("log", log.content), 0, more_follows=False)
    expected = [row._replace(topic_number=0) for row in scan(log, reader).rows]
    assert _rows_of_parts(split, in_parts(split, count), reader) in (None, expected)


@settings(deadline=None, max_examples=150)
@given(damaged=damaged_logs(), count=st.sampled_from((1, 2, 3, 7)))
def test_parts_of_a_damaged_log_are_no_whole_or_its_rows(damaged: Damaged, count: int) -> None:
    rows = [row._replace(topic_number=0) for row in scan(damaged.log, PlainReader).rows]
    split = whole_file(BytesSource("log", damaged.log.content), damaged.log.physical_offset, more_follows=False)
    joined = _rows_of_parts(split, in_parts(split, count), CompiledReader)
    assert joined in (None, rows)
    if any(row.verdict != Verdict.GOOD for row in rows):
        assert joined is None


def test_parts_that_leave_a_gap_or_overlap_are_no_whole() -> None:
    log = log_bytes(numbered(5))
    split = whole_file(BytesSource("log", log.content), 0, more_follows=False)
    rows = scan(log, PlainReader).rows
    seam = rows[3].physical_offset
    size = len(log.content)
    assert merged_outcome(split, [SplitOutcome(seam, 0), SplitOutcome(size, seam, ended=True)]) is not None
    assert (
        merged_outcome(split, [SplitOutcome(seam, 0), SplitOutcome(size, rows[4].physical_offset, ended=True)]) is None
    )
    assert (
        merged_outcome(split, [SplitOutcome(rows[4].physical_offset, 0), SplitOutcome(size, seam, ended=True)]) is None
    )
    assert merged_outcome(split, [SplitOutcome(seam, 0), SplitOutcome()]) is None


def _write_log(folder: Path, count: int, *, last_zero: int = 0) -> list[LogFile]:
    files = []
    at = 0
    for number in range(count + last_zero):
        content = log_bytes(numbered(10), physical_offset=at, tail=100).content
        path = folder / f"{at:020d}"
        path.write_bytes(content if number < count else bytes(len(content)))
        files.append(LogFile(lambda path=path: FileSource.open(path), at))
        at += len(content)
    return files


def test_a_log_of_more_files_than_may_be_open_is_scanned(tmp_path: Path) -> None:
    files = _write_log(tmp_path, 120)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 20, limits[1]))
    try:
        table = RecordTable.of(files)
        assert not carries_record_crc(table.splits)
        rows = [row for batch in table.batches() for row in batch.as_rows()]
        places = [place for part in table.map(_places, 2, table.splits) for place in part]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [row.physical_offset for row in rows] == places
    assert len(rows) == 120 * 11
    assert all(row.verdict == Verdict.GOOD for row in rows)


def _places(walk: Walk) -> list[int]:
    return [row.physical_offset for batch in walk.batches() for row in batch.as_rows()]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_give_what_one_gives_in_log_order(tmp_path: Path, threads: int, *, compiled: bool) -> None:
    table = RecordTable.of(_write_log(tmp_path, 12, last_zero=2), ScanOptions(compiled=compiled))
    alone = [row.physical_offset for batch in table.batches() for row in batch.as_rows()]
    assert [place for part in table.map(_places, threads, table.splits) for place in part] == alone


def test_few_results_wait_for_who_asks_for_them(tmp_path: Path) -> None:
    table = RecordTable.of(_write_log(tmp_path, 40))
    started: list[int] = []
    threads_before = threading.active_count()  # other tests may have left some of their own
    results = table.map(lambda walk: started.append(walk.split.physical_offset), 2, table.splits)
    next(results)
    assert len(started) <= 6
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() <= threads_before
    assert len(started) < 40


def test_zero_files_behind_the_log_are_preallocated(tmp_path: Path) -> None:
    table = RecordTable.of(_write_log(tmp_path, 3, last_zero=2))
    assert [split.more_follows for split in table.splits] == [True, True, False]
    assert all(row.verdict == Verdict.GOOD for batch in table.batches() for row in batch.as_rows())


def test_a_zero_file_inside_the_log_is_a_hole(tmp_path: Path) -> None:
    files = _write_log(tmp_path, 3)
    path = tmp_path / f"{files[1].physical_offset:020d}"
    path.write_bytes(bytes(path.stat().st_size))
    bad = [row for batch in RecordTable.of(files).batches() for row in batch.as_rows() if row.verdict]
    assert [(row.verdict, row.physical_offset) for row in bad] == [(Verdict.HOLE, files[1].physical_offset)]


def test_a_log_of_zero_files_and_a_log_without_files_are_empty(tmp_path: Path) -> None:
    for files in ([], _write_log(tmp_path, 0, last_zero=2)):
        assert list(RecordTable.of(files).batches()) == []


def test_a_file_that_may_not_be_opened_is_an_error_with_its_name(tmp_path: Path) -> None:
    files = _write_log(tmp_path, 2)
    (tmp_path / f"{files[1].physical_offset:020d}").unlink()
    with pytest.raises(UnreadableError, match=f"{files[1].physical_offset:020d}"):
        RecordTable.of(files)


def test_a_file_that_vanishes_between_plan_and_scan_is_a_bad_range(tmp_path: Path) -> None:
    files = _write_log(tmp_path, 2)
    table = RecordTable.of(files)
    (tmp_path / f"{files[1].physical_offset:020d}").unlink()
    rows = [row for batch in table.batches() for row in batch.as_rows()]
    assert rows[10].magic == MAGIC_BLANK
    assert [Verdict(row.verdict) for row in rows[11:]] == [Verdict.UNREADABLE_RANGE]


def test_record_crcs_of_a_later_file_count() -> None:
    def opener(content: bytes) -> LogFile:
        def opened() -> ByteSource:
            return BytesSource("log", content)

        return LogFile(opened, 0)

    without = opener(log_bytes(numbered(2)).content)
    forged = opener(log_bytes([Message(properties=b"__CRC32#\x010123456789\x02")]).content)
    carrying = opener(log_bytes(numbered(2), with_record_crc=True).content)
    assert not carries_record_crc(RecordTable.of([without, forged]).splits)
    assert carries_record_crc(RecordTable.of([without, carrying]).splits)


@pytest.mark.parametrize(("start", "length"), [(0, 4), (0, 40), (-20, 20), (-12, 1), (0, 150)])
def test_a_damaged_first_record_hides_no_record_crcs(start: int, length: int) -> None:
    log = log_bytes(numbered(3), with_record_crc=True)
    position = start if start >= 0 else log.spans[0][1] + start
    broken = log.patched(position, b"\0" * length)
    assert carries_record_crc(RecordTable.of([LogFile(lambda: BytesSource("log", broken.content), 0)]).splits)


def test_a_source_that_was_given_open_stays_open(tmp_path: Path) -> None:
    (file,) = _write_log(tmp_path, 1)
    with FileSource.open(tmp_path / f"{file.physical_offset:020d}") as source:
        split = whole_file(source, 0, more_follows=False)
        assert not carries_record_crc([split])
        assert len(scan_split(split, PlainReader).good()) == 10


def test_little_data_is_not_worth_a_compiler() -> None:
    assert isinstance(reader_for(1 << 20), PlainReader)
    assert isinstance(reader_for(1 << 40), CompiledReader)
    assert isinstance(reader_for(1 << 40, compiled=False), PlainReader)
    assert isinstance(reader_for(0, compiled=True), CompiledReader)

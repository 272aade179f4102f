"""A part begins where the walk over the whole file passes its cut, whatever lies there."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.formats.commitlog import HEAD_SIZE
from rmqtool.scan.compiled import CompiledReader
from rmqtool.scan.log import ScanOptions, first_row_from
from rmqtool.scan.split import whole_file
from rmqtool.scan.walk import PlainReader
from rmqtool.store.source import BytesSource
from tests.scan.logs import LogBytes, MakeReader, Message, log_bytes, numbered, scan
from tests.scan.strategies import Damaged, damaged_logs

LONGEST = 3400
"""Bytes of the longest random message: a look back must be as long, for damage may put records into bodies."""


def expected_start(log: LogBytes, cut: int, make_reader: MakeReader) -> int:
    """Where the first row at or behind a cut begins, by the walk over all of it."""
    starts = [row.physical_offset - log.physical_offset for row in scan(log, make_reader, more_follows=True).rows]
    return min((start for start in starts if start >= cut), default=len(log.content))


def found_start(log: LogBytes, cut: int, make_reader: MakeReader, proof_bytes: int) -> int:
    whole = whole_file(BytesSource("log", log.content), log.physical_offset, more_follows=True)
    return first_row_from(whole, cut, ScanOptions(compiled=make_reader is CompiledReader), proof_bytes)


@pytest.mark.parametrize("proof_bytes", [200, 1000, 1 << 20])
def test_every_cut_of_a_sound_file(reader: MakeReader, proof_bytes: int) -> None:
    log = log_bytes(numbered(30), physical_offset=65536)
    for cut in range(0, len(log.content), 37):
        assert found_start(log, cut, reader, proof_bytes) == expected_start(log, cut, reader)


@settings(max_examples=150, deadline=None)
@given(damaged=damaged_logs(), part=st.floats(0, 1), proof_bytes=st.sampled_from([LONGEST, 1 << 20]))
def test_any_cut_of_a_damaged_file(damaged: Damaged, part: float, proof_bytes: int) -> None:
    log = damaged.log
    cut = int(part * len(log.content))
    assert found_start(log, cut, PlainReader, proof_bytes) == expected_start(log, cut, PlainReader)


def body_of_records(base: int) -> LogBytes:
    """A file whose first message has a body of records that say they lie where they lie."""
    inner = log_bytes(numbered(20), physical_offset=base + HEAD_SIZE)
    return log_bytes([Message(body=inner.content[: inner.records_end]), *numbered(5)], physical_offset=base)


def test_a_body_of_records_does_not_pass_for_the_log(reader: MakeReader) -> None:
    log = body_of_records(65536)
    for cut in range(100, len(log.content), 101):
        assert found_start(log, cut, reader, 1 << 20) == expected_start(log, cut, reader)


def test_a_look_back_that_is_shorter_than_a_body_of_records_takes_it_for_the_log(reader: MakeReader) -> None:
    """What the part in front of the cut then notices; see tests/pipeline/tables/test_log_splits.py."""
    log = body_of_records(65536)
    cut = log.spans[0][1] // 2
    assert found_start(log, cut, reader, 400) < expected_start(log, cut, reader)

"""Keys of pop consumption in RocksDB are read as they were written, and what is no key is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.rocksdb.pop import POP_KEY, PopKeyRow, parse_pop_key, pop_key

names = st.binary(min_size=1, max_size=20)
int64 = st.integers(-(2**63), 2**63 - 1)
rows = st.builds(
    PopKeyRow, int64, names.filter(lambda name: b"@" not in name), names, st.integers(-(2**31), 2**31 - 1), int64
)


@given(rows)
def test_a_key_is_read_as_it_was_written(row: PopKeyRow) -> None:
    assert parse_pop_key(pop_key(row)) == row


@given(rows)
def test_the_declared_format_reads_the_same(row: PopKeyRow) -> None:
    declared = POP_KEY.struct.parse(pop_key(row))
    assert declared.revive_timestamp_ms == row.revive_timestamp_ms
    assert declared.names == row.group + b"@" + row.topic + b"@"
    assert (declared.queue_id, declared.queue_offset) == (row.queue_id, row.queue_offset)
    assert POP_KEY.struct.build(declared) == pop_key(row)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_key_or_none(raw: bytes) -> None:
    row = parse_pop_key(raw)
    assert row is None or pop_key(row) == raw


@pytest.mark.parametrize(
    "row", [PopKeyRow(1, b"", b"topic", 0, 0), PopKeyRow(1, b"group", b"", 0, 0)], ids=["no group", "no topic"]
)
def test_a_key_without_a_name_is_none(row: PopKeyRow) -> None:
    assert parse_pop_key(pop_key(row)) is None

"""Rows of index, timer and transactions in RocksDB are read as they were written, and what is no row is none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.rocksdb import store
from rmqtool.formats.rocksdb.store import IndexRow, Mark, TimerRow, TransactionRow, index_texts, parse_row

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
plain = st.binary(min_size=1, max_size=12).filter(lambda text: b"@" not in text)


def pack(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}q", *numbers)


@given(int64, plain, plain, plain, plain, int64, int64)
def test_every_text_of_a_message_is_a_row_of_the_index(
    hour: int, topic: bytes, key: bytes, tag: bytes, unique_key: bytes, physical_offset: int, time: int
) -> None:
    rows = [
        parse_row(store.INDEX_FAMILY, pack(hour) + text + pack(physical_offset), pack(time))
        for text in index_texts(topic, (key, key, key + b"@x"), tag, unique_key)
    ]
    kinds = [("key", key), ("key", key + b"@x"), ("tag", tag), ("unique-key", b"")]
    assert [(row.kind, row.key) for row in rows if isinstance(row, IndexRow)] == kinds
    for row in rows:
        assert isinstance(row, IndexRow)
        assert (row.hour_ms, row.topic, row.unique_key) == (hour, topic, unique_key)
        assert (row.physical_offset, row.store_timestamp_ms) == (physical_offset, time)


def test_a_unique_key_may_have_the_separator_in_it_where_it_stands_alone() -> None:
    row = parse_row(store.INDEX_FAMILY, pack(0) + b"@topic@U@a@b@" + pack(1), pack(2))
    assert isinstance(row, IndexRow)
    assert row.unique_key == b"a@b"


@given(int64, st.binary(min_size=1, max_size=20), int32, int64)
def test_timers(due: int, unique_key: bytes, size: int, physical_offset: int) -> None:
    key, value = pack(due) + unique_key, struct.pack(">iq", size, physical_offset)
    if key not in store.MARKS[store.TIMER_FAMILY]:
        assert parse_row(store.TIMER_FAMILY, key, value) == TimerRow(due, unique_key, size, physical_offset)
    assert parse_row(store.TIMER_FAMILY, pack(due), value) is None
    assert parse_row(store.TIMER_FAMILY, key, value[1:]) is None


@given(int64, plain, st.binary(max_size=20), int32, int32)
def test_transactions(physical_offset: int, topic: bytes, transaction: bytes, checks: int, size: int) -> None:
    key, value = pack(physical_offset) + b"@" + topic + b"@" + transaction, struct.pack(">ii", checks, size)
    row = TransactionRow(physical_offset, topic, transaction, checks, size)
    assert parse_row(store.TRANSACTION_FAMILY, key, value) == row
    assert parse_row(store.TRANSACTION_FAMILY, pack(physical_offset) + b"topic", value) is None
    assert parse_row(store.TRANSACTION_FAMILY, key, value + b"x") is None


@pytest.mark.parametrize(("family", "key"), [(family, key) for family, keys in store.MARKS.items() for key in keys])
def test_marks_say_how_far_a_table_is(family: str, key: bytes) -> None:
    assert parse_row(family, key, pack(-5)) == Mark(key.decode(), -5)
    assert parse_row(family, key, b"1234567") is None


@given(st.sampled_from(sorted(store.MARKS)), st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes_are_a_row_or_none(family: str, key: bytes, value: bytes) -> None:
    row = parse_row(family, key, value)
    assert row is None or isinstance(row, IndexRow | TimerRow | TransactionRow | Mark)

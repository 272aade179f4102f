"""Rows of configuration in RocksDB are read as brokers write them, and what is no such row is none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.rocksdb.config import (
    GROUPS_TABLE,
    NAME_KEY,
    OFFSET,
    OFFSET_KEY,
    OFFSETS_TABLE,
    TOPICS_TABLE,
    VERSION,
    ConfigRow,
    parse_config_row,
)

names = st.binary(max_size=30)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def name_key(table: int, name: bytes, record: int = 2) -> bytes:
    return bytes(NAME_KEY.struct.build({"prefix": 1, "table": table, "record": record, "name": name}))


def offset_key(group: bytes, topic: bytes, queue_id: int) -> bytes:
    fields = {"prefix": 1, "table": OFFSETS_TABLE, "record": 2, "group": group, "after_group": b"\1"}
    return bytes(OFFSET_KEY.struct.build({**fields, "topic": topic, "after_topic": b"\1", "queue_id": queue_id}))


@given(st.sampled_from([TOPICS_TABLE, GROUPS_TABLE]), names, st.binary(max_size=30))
def test_topics_and_groups(table: int, name: bytes, json: bytes) -> None:
    assert parse_config_row(name_key(table, name), b"\x01" + json) == ConfigRow(table, name, json=json)
    assert parse_config_row(name_key(table, name), b"\x02" + json) is None


@given(names, names.filter(bool), int32, int64)
def test_offsets_of_consumers(group: bytes, topic: bytes, queue_id: int, queue_offset: int) -> None:
    value = OFFSET.struct.build({"queue_offset": queue_offset})
    row = ConfigRow(OFFSETS_TABLE, group, topic, queue_id, queue_offset)
    assert parse_config_row(offset_key(group, topic, queue_id), value) == row
    assert parse_config_row(offset_key(group, topic, queue_id) + b"x", value) is None
    assert parse_config_row(offset_key(group, topic, queue_id), value[:-1]) is None


@pytest.mark.parametrize("table", [OFFSETS_TABLE, TOPICS_TABLE, GROUPS_TABLE])
def test_versions_of_tables(table: int) -> None:
    key = struct.pack(">bhb", 1, table, 1) + b"data_version"
    value = VERSION.struct.build({"state_version": 1, "timestamp": 2, "counter": 3})
    assert parse_config_row(key, value) == ConfigRow(table, version=(1, 2, 3))
    assert parse_config_row(key, value + b"x") is None


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_are_a_row_or_none(key: bytes, value: bytes) -> None:
    for prefix in (b"", b"\1\0\1\2", b"\1\0\3\2", b"\1\0\4\1"):
        row = parse_config_row(prefix + key, value)
        assert row is None or row.table == int.from_bytes((prefix + key)[1:3], "big", signed=True)

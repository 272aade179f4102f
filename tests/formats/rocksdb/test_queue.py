"""Keys of consume queues in RocksDB are read as they were written, and what is no key is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.rocksdb.queue import (
    DISPATCHED_KEY,
    OFFSET_KEY,
    UNIT_KEY,
    OffsetKey,
    offset_key,
    parse_offset_key,
    parse_queue_prefix,
    queue_prefix,
    unit_key,
)

topics = st.binary(max_size=40)
ids = st.integers(-(2**31), 2**31 - 1)


@given(topics, ids, st.integers(0, 2**63 - 1))
def test_a_unit_key_says_its_queue_and_offset(topic: bytes, queue_id: int, queue_offset: int) -> None:
    key = unit_key(topic, queue_id, queue_offset)
    assert parse_queue_prefix(key[:-8]) == (topic, queue_id)
    declared = UNIT_KEY.struct.parse(key)
    assert (declared.topic, declared.queue_id, declared.queue_offset) == (topic, queue_id, queue_offset)


@given(topics, ids, st.booleans())
def test_an_offset_key_says_its_queue_and_end(topic: bytes, queue_id: int, is_maximum: bool) -> None:
    key = offset_key(topic, queue_id, is_maximum=is_maximum)
    assert parse_offset_key(key) == OffsetKey(topic, queue_id, is_maximum)
    assert OFFSET_KEY.struct.parse(key).end == (b"max" if is_maximum else b"min")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_key_or_none(raw: bytes) -> None:
    parsed, prefix = parse_offset_key(raw), parse_queue_prefix(raw)
    assert parsed is None or offset_key(parsed.topic, parsed.queue_id, is_maximum=parsed.is_maximum) == raw
    assert prefix is None or queue_prefix(*prefix) == raw


@given(topics, ids, st.data())
def test_a_key_with_another_byte_is_none_or_another_key(topic: bytes, queue_id: int, data: st.DataObject) -> None:
    key = bytearray(offset_key(topic, queue_id, is_maximum=True))
    key[data.draw(st.integers(0, len(key) - 1))] ^= 0xFF
    assert parse_offset_key(bytes(key)) != OffsetKey(topic, queue_id, is_maximum=True)
    assert parse_offset_key(bytes(key[:-1])) is None


def test_the_end_of_dispatch_has_a_key_of_its_own() -> None:
    assert parse_offset_key(DISPATCHED_KEY) == OffsetKey(b"CHECKPOINT_TOPIC", 0, is_maximum=True)

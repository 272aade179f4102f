"""Digests of records: both readers give the same, they tell apart what differs, and say what they are meant to say."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqtool.formats.system_flag import BORN_HOST_V6, STORE_HOST_V6
from rmqtool.scan import digest
from rmqtool.scan.columns import row_dtype
from rmqtool.scan.compiled import CompiledReader
from rmqtool.scan.digest import batch_digests
from rmqtool.scan.split import whole_file
from rmqtool.scan.walk import PlainReader, Walk
from rmqtool.store.source import BytesSource
from tests.scan.logs import LogBytes, MakeReader, Message
from tests.scan.strategies import Damaged, block_sizes, damaged_logs, messages


def digests(
    content: bytes, physical_offset: int, reader: MakeReader, block_size: int, *, by_content: bool, record_crc: bool
) -> list[tuple[int, ...]]:
    """Place and digests of each row of a log file."""
    split = whole_file(BytesSource("log", content), physical_offset, more_follows=False)
    found: list[tuple[int, ...]] = []
    for batch in Walk(split, reader(), record_crc=record_crc, block_size=block_size).batches():
        rows = batch.as_array()
        assert rows.dtype == row_dtype()
        with patch.object(digest, "is_worth", lambda _count, _least: reader is CompiledReader):
            columns = batch_digests(batch, rows, by_content=by_content, record_crc=record_crc)
        places = rows["physical_offset"].astype(np.uint64), rows["verdict"].astype(np.uint64)
        # Of what is no good message nothing but `whole` is promised.
        found += [tuple(map(int, values)) for values in zip(*places, *columns, strict=True)]
    return found


def of_message(message: Message, physical_offset: int = 0, *, by_content: bool = False, crc: bool = False) -> list[int]:
    content = message.record(physical_offset, with_record_crc=crc)
    ((_, verdict, *values),) = digests(
        content, physical_offset, PlainReader, 1 << 20, by_content=by_content, record_crc=crc
    )
    assert verdict == 0
    return values


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(damaged=damaged_logs(), block_size=block_sizes, by_content=st.booleans(), record_crc=st.booleans())
def test_both_readers_give_the_same(damaged: Damaged, block_size: int, *, by_content: bool, record_crc: bool) -> None:
    log: LogBytes = damaged.log
    plain, compiled = (
        digests(log.content, log.physical_offset, reader, block_size, by_content=by_content, record_crc=record_crc)
        for reader in (PlainReader, CompiledReader)
    )
    assert plain == compiled


@settings(deadline=None, max_examples=100)
@given(message=messages(), physical_offset=st.integers(0, 1 << 50))
def test_the_place_is_no_part_of_what_a_message_says(message: Message, physical_offset: int) -> None:
    message = replace(message, properties=b"KEYS\x01k\x02UNIQ_KEY\x01abc\x02")
    there = replace(
        message,
        queue_id=message.queue_id ^ 1,
        queue_offset=message.queue_offset ^ 1,
        store_timestamp_ms=message.store_timestamp_ms ^ 1,
        reconsume_times=message.reconsume_times ^ 1,
        sys_flag=message.sys_flag ^ STORE_HOST_V6,
    )
    identity, content, whole = of_message(message)
    other_identity, other_content, other_whole = of_message(there, physical_offset)
    assert (identity, content) == (other_identity, other_content)
    assert whole != other_whole
    assert of_message(message, by_content=True)[0] == of_message(there, physical_offset, by_content=True)[0]


def test_what_a_message_says_is_in_its_content() -> None:
    message = Message(properties=b"UNIQ_KEY\x01abc\x02KEYS\x01k\x02")
    first = of_message(message)
    for other in (
        replace(message, body=b"hellp"),
        replace(message, properties=b"UNIQ_KEY\x01abc\x02KEYS\x01l\x02"),
        replace(message, flag=1),
        replace(message, sys_flag=4),
    ):
        identity, content, _ = of_message(other)
        assert identity == first[0]
        assert content != first[1]
    assert of_message(replace(message, topic=b"Other"))[0] != first[0]
    assert of_message(replace(message, properties=b"UNIQ_KEY\x01abd\x02KEYS\x01k\x02"))[0] != first[0]


def test_without_a_key_the_producer_tells_messages_apart() -> None:
    message = Message(properties=b"")
    first = of_message(message)[0]
    assert of_message(replace(message, born_timestamp_ms=1))[0] != first
    assert of_message(replace(message, sys_flag=BORN_HOST_V6))[0] != first
    assert of_message(replace(message, body=b"x"))[0] != first
    assert of_message(replace(message, queue_offset=9), 4096)[0] == first


def test_what_the_broker_puts_into_properties_is_no_content() -> None:
    crc = Message(properties=b"UNIQ_KEY\x01abc\x02")
    assert of_message(crc, 0, crc=True)[1] == of_message(crc, 4096, crc=True)[1]
    queues = b"INNER_MULTI_DISPATCH\x01a,b\x02INNER_MULTI_QUEUE_OFFSET\x01%s\x02"
    here, there = (of_message(Message(properties=queues % text)) for text in (b"1,2", b"3,4"))
    assert here[1] == there[1]
    assert here[2] != there[2]

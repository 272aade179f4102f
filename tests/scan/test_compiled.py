"""Both readers say the same of random records and of random damage, and what they say is right."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.formats.properties import decode_properties, split_properties
from rmqtool.formats.record_crc import PROPERTY_SIZE, is_record_crc_lost, masked_crc, record_crc_matches
from rmqtool.formats.tags import parse_delay_levels, tags_code
from rmqtool.scan.compiled import CompiledReader, load_kernel
from rmqtool.scan.judge import TopicTable
from rmqtool.scan.rules import Verdict
from rmqtool.scan.split import SplitOutcome, whole_file
from rmqtool.scan.walk import PlainReader, Walk
from rmqtool.store.source import BytesSource
from tests.formats.reference import parse_message
from tests.scan.logs import LogBytes, Message, Scanned, expected_row, log_bytes, numbered, records_of, scan
from tests.scan.strategies import Damaged, block_sizes, damaged_logs, logs

SLOW = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
DELAYS_MS = parse_delay_levels()
KEY = np.array([3, 5], np.uint64)


def _both(log: LogBytes, **options: object) -> Scanned:
    plain = scan(log, PlainReader, **options)
    compiled = scan(log, CompiledReader, **options)
    assert plain == compiled
    return plain


def _is_good(raw: bytes, *, record_crc: bool) -> bool:
    fields = parse_message(raw)
    try:
        tags_code(decode_java_utf8(fields.topic), decode_properties(fields.properties), 0, DELAYS_MS)
    except ValueError:
        return False
    is_lost = len(fields.properties) >= PROPERTY_SIZE and is_record_crc_lost(raw)
    return not record_crc or (record_crc_matches(raw) is not False and not is_lost)


@SLOW
@given(log=logs(), block_size=block_sizes, record_crc=st.booleans(), more_follows=st.booleans())
def test_random_records_come_out_as_they_are_declared(
    log: LogBytes, block_size: int, *, record_crc: bool, more_follows: bool
) -> None:
    found = _both(log, block_size=block_size, record_crc=record_crc, more_follows=more_follows)
    good = {row.physical_offset: row for row in found.good()}
    for physical_offset, raw in records_of(log):
        if not _is_good(raw, record_crc=record_crc):
            assert physical_offset not in good
            continue
        row = good.pop(physical_offset)
        assert expected_row(raw, physical_offset).items() <= row._asdict().items()
        fields = parse_message(raw)
        assert found.topics[row.topic_number] == fields.topic
        properties = decode_properties(fields.properties)
        assert row.tags_code == tags_code(
            decode_java_utf8(fields.topic), properties, fields.store_timestamp_ms, DELAYS_MS
        )
        texts = dict(split_properties(fields.properties))
        for name, at, length in (
            (b"TAGS", row.tags_position, row.tags_length),
            (b"KEYS", row.keys_position, row.keys_length),
            (b"UNIQ_KEY", row.unique_key_position, row.unique_key_length),
        ):
            assert (raw[at : at + length] if length >= 0 else None) == texts.get(name)
        names = set(texts)
        assert row.features == ({b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"} <= names) + 2 * (
            {b"INNER_NUM", b"INNER_BASE"} <= names
        )
    assert good == {}


@SLOW
@given(damaged=damaged_logs(), block_size=block_sizes, more_follows=st.booleans())
def test_random_damage_is_seen_alike_and_hides_no_intact_record(
    damaged: Damaged, block_size: int, *, more_follows: bool
) -> None:
    log = damaged.log
    found = _both(log, block_size=block_size, more_follows=more_follows)
    rows = {row.physical_offset: row for row in found.rows}
    for start, end in damaged.intact():
        row = rows.get(log.physical_offset + start)
        assert row is not None, f"the record at {start} is not found"
        # A flipped store time can make what follows look older than it.
        assert row.verdict in (Verdict.GOOD, Verdict.STALE)
        assert row.size == end - start
    for row in found.good():
        start = row.physical_offset - log.physical_offset
        fields = parse_message(log.content[start : start + row.size])
        assert not fields.body or masked_crc(fields.body) == fields.body_crc
        assert fields.physical_offset == row.physical_offset


@SLOW
@given(data=st.data())
def test_random_bytes_are_no_records(data: st.DataObject) -> None:
    raw = data.draw(st.binary(max_size=3000))
    found = _both(LogBytes(raw, (), 0))
    assert found.good() == []


@SLOW
@given(
    first=st.integers(-(1 << 31), (1 << 31) - 1),
    at=st.sampled_from((0, 84)),
    which=st.integers(0, 4),
    block_size=block_sizes,
)
def test_a_length_field_may_say_anything(first: int, at: int, which: int, block_size: int) -> None:
    log = log_bytes(numbered(5))
    start = log.spans[which][0]
    found = _both(log.patched(start + at, first.to_bytes(4, "big", signed=True)), block_size=block_size)
    intact = [begin for number, (begin, _) in enumerate(log.spans) if number != which]
    assert set(intact) <= set(found.good_places())


@pytest.mark.parametrize(("start", "length"), [(-20, 20), (-60, 60), (-5, 5), (-1, 1), (-20, 3)])
def test_zeros_are_no_record_crc(start: int, length: int) -> None:
    """A record that lost its CRC to zeros is none that was written without one."""
    message = Message(properties=b"TAGS\x01TagA\x02K\x01" + b"v" * 60 + b"\x02")
    log = log_bytes([message] * 2, with_record_crc=True)
    broken = log.patched(log.spans[0][1] + start, bytes(length))
    assert [verdict for verdict, _, _ in _both(broken, record_crc=True).bad()] == [Verdict.RECORD_CRC_MISMATCH]
    assert _both(broken, record_crc=False).bad() == []


@pytest.mark.parametrize(("start", "length"), [(-20, 20), (-57, 57), (-5, 5), (-1, 1)])
def test_bytes_that_are_no_text_are_no_record_crc(start: int, length: int) -> None:
    message = Message(properties=b"TAGS\x01TagA\x02K\x01" + b"v" * 60 + b"\x02")
    log = log_bytes([message] * 2, with_record_crc=True)
    broken = log.patched(log.spans[0][1] + start, b"\xa7" * length)
    assert [verdict for verdict, _, _ in _both(broken, record_crc=True).bad()] == [Verdict.RECORD_CRC_MISMATCH]
    assert _both(broken, record_crc=False).bad() == []


@pytest.mark.parametrize("length", range(1, 9))
def test_text_is_no_lost_record_crc(length: int) -> None:
    """A record that was written without a CRC; the last 20 bytes begin anywhere in a character."""
    message = Message(properties=b"K\x01" + "签标\U0001f600".encode() * 3 + b"v" * length + b"\x02")
    assert _both(log_bytes([message] * 2), record_crc=True).bad() == []


def test_a_glued_record_crc_is_checked_by_both() -> None:
    log = log_bytes([Message(properties=b"TAGS\x01TagA")] * 2, with_record_crc=True)
    assert _both(log, record_crc=True).bad() == []
    broken = log.patched(20, b"\x01")  # queue offset: in no checksum but this one
    assert [verdict for verdict, _, _ in _both(broken, record_crc=True).bad()] == [Verdict.RECORD_CRC_MISMATCH]
    assert _both(broken).bad() == []


def test_topics_by_the_hundred_keep_their_numbers() -> None:
    messages = [Message(topic=b"Topic-%d-%s" % (number % 700, b"x" * (number % 50))) for number in range(2000)]
    found = _both(log_bytes(messages))
    assert [found.topics[row.topic_number] for row in found.good()] == [message.topic for message in messages]


def test_a_walk_by_the_same_reader_numbers_topics_anew() -> None:
    log = log_bytes([Message(topic=b"Topic-%d" % (number % 3)) for number in range(9)])
    split = whole_file(BytesSource("log", log.content), log.physical_offset, more_follows=False)
    walk = Walk(split, CompiledReader())
    for again in (walk, replace(walk, outcome=SplitOutcome(), topics=TopicTable(), at_hand=None)):
        names = [batch.topics[row["topic_number"]] for batch in again.batches() for row in batch.as_array()]
        assert names[:9] == [b"Topic-%d" % (number % 3) for number in range(9)]


def test_new_topics_interrupt_the_kernel_only_where_its_tables_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    run = CompiledReader.run

    def counted(reader: CompiledReader, walk: Walk, position: int, limit: int) -> object:
        runs.append(position)
        return run(reader, walk, position, limit)

    monkeypatch.setattr(CompiledReader, "run", counted)
    log = log_bytes([Message(topic=b"Topic-%d" % number) for number in range(3000)])
    assert scan(log, CompiledReader).topics == [b"Topic-%d" % number for number in range(3000)]
    assert len(runs) < 100


def test_a_checksum_is_the_same_from_every_function() -> None:
    log = log_bytes([Message(body=bytes(range(256)) * 40)])
    (row,) = _both(log).good()
    assert row.computed_crc == zlib.crc32(bytes(range(256)) * 40) & 0x7FFFFFFF


def test_delayed_records_are_read_as_fast_as_others() -> None:
    """Only a level that is no plain number is left to the plain judge."""
    levels = [b"3", b"18", b"99", b"0", b"007", b"1\x02DELAY\x0110", b"2\x02DELAY\x01"]
    messages = [
        Message(topic=b"SCHEDULE_TOPIC_XXXX", properties=b"TAGS\x01TagA\x02DELAY\x01" + level) for level in levels
    ]
    log = log_bytes([Message(topic=b"SCHEDULE_TOPIC_XXXX"), *messages], blank=False)
    _both(log)
    source = BytesSource("log", log.content)
    walk = Walk(whole_file(source, log.physical_offset, more_follows=False), CompiledReader())
    assert [len(batch.rows) for batch in walk.batches()] == [1, len(levels)]  # the first names the topic


def test_each_type_of_an_argument_has_code_of_its_own() -> None:
    kernel = load_kernel("rmqtool.scan.kernels.text_kernel")
    source = np.frombuffer(b"abcdef", np.uint8)  # which cannot be written to
    for starts in (np.array([4, 0], np.int64), np.array([4, 9, 0, 9], np.int64)[::2]):
        for lengths in (np.array([2, 3], np.int64), np.array([2, 3], np.int32)):
            target = np.zeros(5, np.uint8)
            assert kernel.copy_ranges(source, starts, lengths, target) is None
            assert target.tobytes() == b"efabc"

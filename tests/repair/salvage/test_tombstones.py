"""Every record that a salvage writes is good to the judge, of the exact size, and stands in the queues it should."""

from __future__ import annotations

import pytest

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats import properties, system_flag
from rmqtool.formats.properties import HALF_TOPIC
from rmqtool.formats.record_crc import PROPERTY_SIZE, record_crc_matches
from rmqtool.formats.tombstone import TOMBSTONE, TOMBSTONE_TAG, TOMBSTONE_TOPIC
from rmqtool.repair.salvage.layout import Filling, TombstoneEncoder
from rmqtool.repair.salvage.lost_records import LostRecord
from rmqtool.scan.columns import Row
from rmqtool.scan.judge import TopicTable, judge_record
from rmqtool.scan.rules import Verdict

PLACE = 65_536 + 777
TIME_MS = 1_700_000_000_000
VERSIONS = ["4.4.0", "4.9.7", "5.1.4", "5.5.0"]

LOST = {
    "plain": LostRecord(b"orders", 3, 41),
    "one-letter": LostRecord(b"T", 0, 0),
    "far": LostRecord(b"orders", 65_535, (1 << 62) + 7),
    "schedule": LostRecord(properties.SCHEDULE_TOPIC.encode(), 17, 5),
    "half": LostRecord(HALF_TOPIC.encode(), 0, 9),
    "further": LostRecord(b"orders", 1, 4, ((b"%LMQ%a", 7), (b"%LMQ%b", 0))),
    "batch": LostRecord(b"packed", 1, 40, batch_size=12),
    "not-utf-8": LostRecord(b"\xff\xfe", 0, 1),
}


def properties_of(raw: bytes, length: int) -> dict[str, str]:
    block = raw[len(raw) - length :]
    return dict(part.split("\x01", 1) for part in block.decode("utf-8", "surrogateescape").split("\x02") if part)


def judged(raw: bytes, rules: BrokerRules, *, record_crc: bool) -> tuple[Row, str]:
    topics = TopicTable()
    row = judge_record(memoryview(raw), PLACE, topics, (), record_crc)
    assert row.verdict == Verdict.GOOD
    assert row.physical_offset == PLACE
    assert row.size == len(raw)
    assert row.prepared_transaction_offset == TOMBSTONE
    assert row.store_timestamp_ms == TIME_MS
    return row, topics.names[row.topic_number].decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("record_crc", [False, True], ids=["", "record-crc"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("extra", [0, 1, 13, 17, 18, 19, 30, 500, 100_000])
def test_a_tombstone(name: str, version: str, extra: int, *, record_crc: bool) -> None:
    lost = LOST[name]
    stand_in = TombstoneEncoder(rules_for(version), record_crc)
    size = stand_in.least(lost) + extra
    raw = stand_in.records([Filling(PLACE, PLACE + size, lost)], TIME_MS)
    assert len(raw) == size
    row, topic = judged(raw, rules_for(version), record_crc=record_crc)
    assert (topic, row.queue_id, row.queue_offset) == (lost.topic_name, lost.queue_id, lost.queue_offset)
    assert row.sys_flag & system_flag.TRANSACTION_MASK == 0
    if record_crc:
        assert record_crc_matches(raw)
    said = properties_of(raw, row.properties_length)
    assert not {properties.KEYS, properties.UNIQUE_KEY} & said.keys()
    if extra >= len(TOMBSTONE_TAG) + 6:
        assert said[properties.TAGS] == TOMBSTONE_TAG
    if name in ("schedule", "half"):
        assert (said[properties.REAL_TOPIC], said[properties.REAL_QUEUE_ID]) == (TOMBSTONE_TOPIC, "0")
    if name == "schedule":
        assert said[properties.DELAY_LEVEL] == "18"
    if name == "further":
        assert said[properties.MULTI_DISPATCH] == "%LMQ%a,%LMQ%b"
        assert said[properties.MULTI_QUEUE_OFFSET] == "7,0"
    if name == "batch":
        assert (said[properties.INNER_BASE], said[properties.INNER_COUNT]) == ("40", "12")


@pytest.mark.parametrize("record_crc", [False, True], ids=["", "record-crc"])
@pytest.mark.parametrize("length", [127, 128, 255])
def test_a_long_topic_is_one_of_version_2(length: int, *, record_crc: bool) -> None:
    lost = LostRecord(b"L" * length, 0, 3)
    stand_in = TombstoneEncoder(rules_for("5.5.0"), record_crc)
    size = stand_in.least(lost)
    raw = stand_in.records([Filling(PLACE, PLACE + size, lost)], TIME_MS)
    _, topic = judged(raw, rules_for("5.5.0"), record_crc=record_crc)
    assert topic == "L" * length


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [92, 93, 102, 103, 104, 4096, 4 << 20])
def test_a_bridge_stands_in_no_queue(version: str, size: int) -> None:
    stand_in = TombstoneEncoder(rules_for(version))
    assert stand_in.least(None) == 92
    raw = stand_in.records([Filling(PLACE, PLACE + size)], TIME_MS)
    row, topic = judged(raw, rules_for(version), record_crc=False)
    assert row.sys_flag == system_flag.TRANSACTION_ROLLBACK
    assert topic == (TOMBSTONE_TOPIC if size >= 103 else "-")


def test_a_bridge_with_a_whole_records_crc() -> None:
    stand_in = TombstoneEncoder(rules_for("5.5.0"), record_crc=True)
    assert stand_in.least(None) == 92 + PROPERTY_SIZE
    raw = stand_in.records([Filling(PLACE, PLACE + 500)], TIME_MS)
    judged(raw, rules_for("5.5.0"), record_crc=True)
    assert record_crc_matches(raw)


def test_fillings_lie_side_by_side() -> None:
    stand_in = TombstoneEncoder(rules_for("5.5.0"))
    sizes = [120, 300, 95]
    fillings, at = [], PLACE
    for number, size in enumerate(sizes):
        fillings.append(Filling(at, at + size, LostRecord(b"T", 0, number) if number != 2 else None))
        at += size
    fillings.append(Filling(at, at + 50, is_blank=True))
    raw = stand_in.records(fillings, TIME_MS)
    assert len(raw) == sum(sizes) + 8
    assert raw[-8:] == (50).to_bytes(4, "big") + bytes.fromhex("CBD43194")
    for filling in fillings[:3]:
        part = raw[filling.start - PLACE : filling.end - PLACE]
        alone = stand_in.records([filling], TIME_MS)
        assert part == alone

"""Dispatch of records: which queues and keys they go to, by version, held against a record at a time."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.engine.dispatch import derived_writer
from rmqtool.engine.dispatch.derived_writer import DerivedSizes, DerivedWriter
from rmqtool.engine.dispatch.index_entries import index_entries
from rmqtool.engine.dispatch.queue_entries import (
    DispatchSettings,
    RowBytes,
    batch_bytes,
    named_queues,
    queue_entries,
)
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats import commitlog, system_flag
from rmqtool.formats.index import key_hash
from rmqtool.formats.java_text import java_hash
from rmqtool.formats.properties import decode_properties, encode_properties
from rmqtool.scan.log import ScanOptions
from rmqtool.scan.split import whole_file
from rmqtool.store.sink import TrackingSink
from rmqtool.store.source import BytesSource
from tests.formats.reference import key_texts
from tests.memory_sink import MemorySink

LMQ = {"INNER_MULTI_DISPATCH": "%LMQ%a,plain,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "3,4,5"}
STAMP = 1_700_000_000_000


@dataclass(frozen=True)
class Message:
    """What is written into a log for a test."""

    topic: str = "Topic"
    queue_id: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scanned:
    """A log as the scan gives it."""

    rows: Any
    topics: list[bytes]
    texts: RowBytes


def _record(message: Message, physical_offset: int, number: int) -> bytes:
    topic = message.topic.encode()
    properties = encode_properties(message.properties, trailing_separator=True)
    rest = bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
    size = commitlog.HEAD_SIZE + len(rest)
    head = struct.pack(
        ">iiiiiqqiq8sq8siqi",
        size,
        commitlog.MAGIC_V1,
        0,
        message.queue_id,
        0,
        message.queue_offset,
        physical_offset,
        message.sys_flag,
        STAMP,
        bytes(8),
        STAMP + number,
        bytes(8),
        0,
        0,
        0,
    )
    return head + rest


def _scan(messages: Sequence[Message]) -> Scanned:
    log = b""
    for number, message in enumerate(messages):
        log += _record(message, len(log), number)
    walk = ScanOptions(compiled=False).walk(whole_file(BytesSource("log", log), 0, more_follows=False))
    batches = list(walk.batches())
    rows = np.concatenate([batch.as_array() for batch in batches])
    assert len(rows) == len(messages)
    return Scanned(rows, batches[-1].topics, batch_bytes(batches[-1]))


def _queues(
    scanned: Scanned, version: str = "5.5.0", **settings: Any
) -> dict[tuple[bytes, int], list[tuple[int, int, bool]]]:
    """(queue offset, record number by its time, own) of each queue's entries."""
    found = queue_entries(scanned.rows, scanned.topics, scanned.texts, DispatchSettings(rules_for(version), **settings))
    return {
        (entries.topic, entries.queue_id): [
            (offset, stamp - STAMP, own)
            for offset, stamp, own in zip(
                entries.queue_offsets.tolist(),
                entries.store_timestamps_ms.tolist(),
                entries.own.tolist(),
                strict=True,
            )
        ]
        for entries in found
    }


def test_prepared_and_rolled_back_records_have_no_place_in_a_queue() -> None:
    flags = (0, system_flag.TRANSACTION_PREPARED, system_flag.TRANSACTION_COMMIT, system_flag.TRANSACTION_ROLLBACK)
    scanned = _scan(
        [Message(sys_flag=flag, queue_offset=at, properties={"KEYS": "k"}) for at, flag in enumerate(flags)]
    )
    assert _queues(scanned) == {(b"Topic", 0): [(0, 0, True), (2, 2, True)]}
    entries = index_entries(scanned.rows, scanned.topics, scanned.texts, rules_for("5.5.0"))
    assert (entries.store_timestamps_ms - STAMP).tolist() == [0, 1, 2]
    assert entries.ends_without


def test_a_record_goes_into_the_queues_that_it_names() -> None:
    scanned = _scan(
        [Message("%LMQ%a", 0, 2), Message(queue_id=7, queue_offset=1, properties=LMQ), Message("%LMQ%a", 0, 4)]
    )
    assert _queues(scanned) == {
        (b"Topic", 7): [(1, 1, True)],
        (b"%LMQ%a", 0): [(2, 0, True), (3, 1, False), (4, 2, True)],
        (b"plain", 7): [(4, 1, False)],
        (b"%LMQ%b", 0): [(5, 1, False)],
    }
    assert (b"%LMQ%a", 7) in _queues(scanned, lmq=False)
    assert (b"plain", 7) not in _queues(scanned, multi_dispatch=False)


@pytest.mark.parametrize(
    ("version", "topic", "expected"),
    [
        ("4.9.2", "Topic", False),
        ("4.9.3", "Topic", True),
        ("4.9.7", "%RETRY%group", True),
        ("5.1.4", "SCHEDULE_TOPIC_XXXX", True),
        ("5.2.0", "%RETRY%group", False),
        ("5.5.0", "rmq_sys_x", False),
        ("5.5.0", "SCHEDULE_TOPIC_XXXX", False),
        ("5.5.0", "Topic", True),
    ],
)
def test_versions_differ_in_which_records_name_queues(version: str, topic: str, *, expected: bool) -> None:
    queues = _queues(_scan([Message(topic, properties=LMQ)]), version)
    assert (topic.encode(), 0) in queues
    assert ((b"plain", 0) in queues) == expected


@pytest.mark.parametrize(
    ("names", "offsets", "expected"),
    [
        ("a,b", "1,2", [("a", 1), ("b", 2)]),
        ("a,b", "1", []),
        ("a,b,", "1,2", [("a", 1), ("b", 2)]),
        ("a,b", ",2", [("b", 2)]),
        ("a,b", "2,", []),
        ("a/../b,c", "1,2", [("c", 2)]),
        ("a", "9223372036854775808", []),
        ("a", " 1", []),
        (" ", "1", []),
        ("a", " ", []),
        (",", ",", []),
        ("a,,b", "1,2,3", [("a", 1), ("", 2), ("b", 3)]),
    ],
)
def test_lists_of_queues_are_read_as_java_reads_them(names: str, offsets: str, expected: list[Any]) -> None:
    assert named_queues(names, offsets) == expected


def test_a_batch_topic_has_batch_entries() -> None:
    inner = {"INNER_NUM": "5", "INNER_BASE": "30"}
    scanned = _scan(
        [Message("Packed", 1, 9, properties=inner), Message("Packed", 1, 35), Message("Other", 1, 0, 0, inner)]
    )
    topics = frozenset({b"Packed"})
    by_topic = {}
    for version in ("4.9.7", "5.5.0"):
        settings = DispatchSettings(rules_for(version), batch_topics=topics)
        for entries in queue_entries(scanned.rows, scanned.topics, scanned.texts, settings):
            by_topic[version, entries.topic] = (
                entries.is_batch,
                entries.queue_offsets.tolist(),
                entries.batch_sizes.tolist(),
            )
    assert by_topic == {
        ("5.5.0", b"Packed"): (True, [30, 35], [5, 1]),
        ("5.5.0", b"Other"): (False, [0], [1]),
        ("4.9.7", b"Packed"): (False, [9, 35], [1, 1]),
        ("4.9.7", b"Other"): (False, [0], [1]),
    }


def test_queues_keep_the_order_of_the_log_however_many_there_are() -> None:
    ids = [0, 5, (1 << 31) - 1, -(1 << 31), 70_000]
    messages = [Message(f"t{number % 7}", ids[number % 5], number) for number in range(200)]
    expected = defaultdict(list)
    for number, message in enumerate(messages):
        expected[message.topic.encode(), message.queue_id].append((number, number, True))
    assert _queues(_scan(messages)) == expected


def test_names_that_lead_out_of_the_store_are_refused_and_the_rest_is_written() -> None:
    names = ["..", "a/b", "x\0y", "Good", "é" * 60]
    scanned = _scan([Message(name) for name in names])
    sink = MemorySink()
    writer = DerivedWriter(TrackingSink(sink), DerivedSizes(100), DispatchSettings(rules_for("5.5.0")), None)
    writer.put(scanned.rows, scanned.topics, scanned.texts)
    writer.put(scanned.rows, scanned.topics, scanned.texts)
    writer.sync()
    assert {topic for topic, _ in writer.refused} == {"..", "a/b", "x\0y"}
    assert sorted(path.split("/")[1] for path in sink.files) == ["Good", "é" * 60]


def test_entries_are_held_back_until_there_are_enough_or_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = _scan([Message(f"t{number % 3}", 0, number // 3) for number in range(30)])
    rules = rules_for("5.5.0")
    expected: dict[str, bytes] = {}
    for rows_max in (1, 8, 1000):
        monkeypatch.setattr(derived_writer, "HELD_ROWS_MAX", rows_max)
        sink = MemorySink()
        writer = DerivedWriter(TrackingSink(sink), DerivedSizes(100), DispatchSettings(rules), None)
        for at in range(0, 30, 3):
            writer.put(scanned.rows[at : at + 3], scanned.topics, scanned.texts)
            assert bool(sink.files) == ((at + 3) >= rows_max)
        writer.flush()
        found = {path: bytes(content) for path, content in sink.files.items()}
        assert len(found) == 6
        expected = expected or found
        assert found == expected


def test_a_key_without_absolute_hash_counts_as_0() -> None:
    scanned = _scan([Message("Topic", properties={"KEYS": "adpempfw"})])
    assert java_hash("Topic#adpempfw") == -(1 << 31)
    assert index_entries(scanned.rows, scanned.topics, scanned.texts, rules_for("5.5.0")).key_hashes.tolist() == [0]


_WORD = st.text(st.sampled_from("abcXYZ019-"), min_size=1, max_size=8)
_VALUE = st.one_of(
    _WORD, st.lists(_WORD, max_size=4).map(" ".join), st.text(st.characters(exclude_characters="\x01\x02"), max_size=9)
)
_MESSAGES = st.lists(
    st.builds(
        Message,
        topic=st.sampled_from(["Topic", "Other", "Füße", "%RETRY%group"]),
        sys_flag=st.sampled_from([0, 0, 0, system_flag.TRANSACTION_PREPARED, system_flag.TRANSACTION_ROLLBACK]),
        properties=st.dictionaries(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "X"]), _VALUE),
    ),
    max_size=12,
)


@settings(deadline=None)  # the first example reads versions and tables that later ones find in memory
@given(messages=_MESSAGES, version=st.sampled_from(["4.9.7", "5.5.0"]), outside=st.booleans())
def test_key_hashes_are_those_of_a_record_at_a_time(messages: list[Message], version: str, *, outside: bool) -> None:
    if not messages:
        return
    scanned, rules = _scan(messages), rules_for(version)
    expected = []
    for number, message in enumerate(messages):
        if message.sys_flag != system_flag.TRANSACTION_ROLLBACK:
            properties = decode_properties(encode_properties(message.properties, trailing_separator=True))
            texts = key_texts(message.topic, properties, with_tags=rules.index_tags)
            expected += [(key_hash(text), number) for text in texts]
    texts_at = scanned.texts
    if outside:
        # The same bytes, of which only a part in the middle is at hand.
        whole = texts_at.buffer
        start, stop = whole.size // 4, whole.size * 3 // 4
        texts_at = RowBytes(whole[start:stop], start, lambda at, length: whole[at : at + length].tobytes())
    found = index_entries(scanned.rows, scanned.topics, texts_at, rules)
    pairs = zip(found.key_hashes.tolist(), (found.store_timestamps_ms - STAMP).tolist(), strict=True)
    assert list(pairs) == expected
    assert found.ends_without == (not expected or expected[-1][1] != len(messages) - 1)

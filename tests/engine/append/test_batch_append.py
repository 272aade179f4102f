"""Many messages at once are written as one after the other would be, and what is not plain is left to that way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.engine.append.appender import MessageAppender
from rmqtool.engine.append.batch_append import MessageColumns, WrittenMessages
from rmqtool.engine.append.log_writer import LogWriter
from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.rewrite import sent_text
from rmqtool.engine.append.status import AppendStatus, PutResult, PutStatus
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.batch import BatchPart
from rmqtool.formats.message_id import host_bytes
from tests.memory_sink import MemorySink

FILE_SIZE = 4096
HOSTS = [host_bytes(text) for text in ("10.1.2.3:50000", "[2001:db8::7]:10911")]

plain = st.builds(
    Message,
    topic=st.sampled_from(["T", "TopicTest", "%RETRY%" + "g" * 150, "ü" * 20]),
    body=st.binary(max_size=1500),
    queue_id=st.integers(0, 2),
    properties=st.dictionaries(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "own"]), st.text(min_size=1, max_size=9)),
    flag=st.integers(-5, 5),
    sys_flag=st.sampled_from([0, 0, 1, 0x101, 2]),
    born_timestamp_ms=st.integers(0, 2**40),
    born_host=st.sampled_from(HOSTS),
    store_host=st.sampled_from(HOSTS),
    store_timestamp_ms=st.sampled_from([1_700_000_000_000, None]),
    reconsume_times=st.integers(0, 3),
)


class Log:
    """A log in memory and a putter for it."""

    def __init__(self, version: str = "5.5.0", *, first_queue_offset: int = 0, from_dump: bool = False) -> None:
        self.sink = MemorySink()
        self.writer = LogWriter(self.sink, ("commitlog",), FILE_SIZE, lambda _place, _block: None)
        config = WriterConfig(commitlog_file_size=FILE_SIZE)
        rules = rules_for(version)
        self.putter = MessageAppender(
            self.writer, rules, config, lambda _topic, _queue_id: first_queue_offset, lambda: 7, from_dump=from_dump
        )

    def put(self, messages: Sequence[Message | MessageBatch], at_once: int) -> list[PutResult]:
        results: list[PutResult] = []
        for at in range(0, len(messages), at_once):
            results += self.putter.put_all(messages[at : at + at_once])
        self.writer.write_out()
        return results


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@settings(deadline=None)  # a busy machine
@given(messages=st.lists(plain, max_size=60))
def test_many_at_once_are_the_same_as_one_by_one(version: str, messages: list[Message]) -> None:
    together, alone = Log(version), Log(version)
    assert together.put(messages, 60) == alone.put(messages, 1)
    assert together.sink.files == alone.sink.files


def test_results_of_many_are_the_same_however_they_are_asked_for() -> None:
    messages = [Message(topic="T", queue_id=number % 2, store_host=HOSTS[number % 2]) for number in range(20)]
    log, again = Log(), Log()
    written = log.putter.put_all(messages)
    assert isinstance(written, WrittenMessages)
    results = again.put(messages, 1)
    assert list(written) == results == written[:]
    assert [written[index] for index in range(20)] == results
    assert list(reversed(written)) == results[::-1]
    assert [written.column(name) for name in PutResult._fields] == list(map(list, zip(*results, strict=True)))


TOO_LARGE = Message(topic="T", body=b"x" * 5000)
"""Fits into no file, so that two files end early."""


@settings(deadline=None)  # a busy machine
@given(
    messages=st.lists(plain, min_size=40, max_size=80),
    early=st.sets(st.sampled_from([16, 17, 30, 34]), max_size=2),
    lost=st.sampled_from([None, 0, 20, 39]),
    at_once=st.sampled_from([17, 80]),
)
def test_a_dumped_log_is_put_again_where_it_was(
    messages: list[Message], early: set[int], lost: int | None, at_once: int
) -> None:
    for place in early:
        messages.insert(place, TOO_LARGE)
    original = Log(first_queue_offset=5)
    results = original.put(messages, 1)
    dumped = [
        replace(
            message,
            properties_text=sent_text(message.properties, rules_for("5.5.0")),
            is_final=True,
            store_timestamp_ms=result.store_timestamp_ms,
            dumped_at=(result.physical_offset, result.queue_offset),
        )
        for message, result in zip(messages, results, strict=True)
        if result.is_written
    ]
    if lost is not None:
        del dumped[lost : lost + 1]
    together, alone = Log(from_dump=True), Log(from_dump=True)
    again = together.put(dumped, at_once)
    assert again == alone.put(dumped, 1)
    assert together.sink.files == alone.sink.files
    if lost is None:
        assert [(result.physical_offset, result.queue_offset) for result in again] == [
            message.dumped_at for message in dumped
        ]


def test_columns_tell_where_each_message_went() -> None:
    log = Log()
    columns = MessageColumns(["A", "B", "A"], [0, 0, 0], [b"x" * 10, b"", b"y" * 3950], [b"", b"TAGS\x01t\x02", b""])
    put = log.putter.put_columns(columns)
    assert put is not None
    assert put.queue_offsets == [0, 0, 1]
    assert put.physical_offsets.tolist() == [0, 102, FILE_SIZE]
    assert put.store_timestamps_ms.tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    "odd",
    [
        Message(topic="T", properties={"DELAY": "3"}),
        Message(topic="T", properties={"WAIT": "true"}),
        Message(topic="T", sys_flag=4),
        Message(topic="t" * 300),
        Message(topic="T", body=b"x" * 5000),
        MessageBatch(shared=Message(topic="T"), parts=[BatchPart(0, b"a", b""), BatchPart(0, b"b", b"")]),
    ],
)
def test_what_is_not_plain_is_put_by_its_own_rules(odd: Message | MessageBatch) -> None:
    usual: list[Message | MessageBatch] = [Message(topic="T", body=b"z" * 50, store_timestamp_ms=1) for _ in range(20)]
    together, alone = Log(), Log()
    messages = [*usual, odd, *usual]
    assert together.put(messages, 41) == alone.put(messages, 1)
    assert together.sink.files == alone.sink.files


def test_a_message_that_fits_into_no_file_leaves_blanks_and_says_so() -> None:
    log = Log()
    (result,) = log.put([Message(topic="T", body=b"x" * 5000)], 1)
    assert (result.status, result.append_status) == (PutStatus.PUT_OK, AppendStatus.END_OF_FILE)
    assert not result.is_written
    assert log.writer.end == 2 * FILE_SIZE

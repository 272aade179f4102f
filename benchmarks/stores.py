"""Whole generated stores for benchmarks: log, queues and index by the full writer, ended by a crash."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rmqtool.engine.append.batch_append import MessageColumns
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.store_writer import StoreWriter
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for

VERSION: Final = "5.5.0"
BOTH_COMPILERS = "-XX:TieredStopAtLevel=4"
"""Tests do without Java's second compiler; a broker that is measured has what a broker has."""
FIRST_STORE_TIMESTAMP_MS: Final = 1_700_000_000_000
PUT_COUNT: Final = 20_000
TEXT: Final = os.urandom(1 << 20)
TOPIC_COUNT: Final = 4
QUEUE_COUNT: Final = 8


def columns(first: int, count: int, body_length: int, topic_count: int = TOPIC_COUNT) -> MessageColumns:
    """Messages as a producer with keys and tags sends them, a hundred in a millisecond."""
    numbers = range(first, first + count)
    room = len(TEXT) - body_length
    return MessageColumns(
        topics=[f"TopicTest{number % topic_count}" for number in numbers],
        queue_ids=[number // topic_count % QUEUE_COUNT for number in numbers],
        bodies=[TEXT[at : at + body_length] for at in (number * 97 % room for number in numbers)],
        properties_texts=[
            b"KEYS\x01order-%08d\x02UNIQ_KEY\x017F0000010000%020d\x02TAGS\x01Tag%d\x02" % (number, number, number % 7)
            for number in numbers
        ],
        born_timestamps_ms=[FIRST_STORE_TIMESTAMP_MS + number // 100 for number in numbers],
        store_timestamps_ms=[FIRST_STORE_TIMESTAMP_MS + number // 100 for number in numbers],
    )


def write_store(
    root: Path,
    message_count: int,
    body_length: int,
    log_file_size: int,
    *,
    topic_count: int = TOPIC_COUNT,
    **sizes: int,
) -> None:
    """A store of a broker that was killed once all was dispatched, whose checkpoint is gone: all of it is scanned.

    Args:
        topic_count: topics, each of `QUEUE_COUNT` queues.
        sizes: other ones of `WriterConfig`.
    """
    config = WriterConfig(commitlog_file_size=log_file_size, **sizes)
    with new_store(root, rules_for(VERSION), config, lambda: FIRST_STORE_TIMESTAMP_MS) as writer:
        _put_all(writer, message_count, body_length, topic_count)
        writer.close(crash=True)
    (root / "checkpoint").unlink()


def _put_all(writer: StoreWriter, message_count: int, body_length: int, topic_count: int) -> None:
    for first in range(0, message_count, PUT_COUNT):
        put = writer.put_columns(columns(first, min(PUT_COUNT, message_count - first), body_length, topic_count))
        assert put is not None, "a message is not plain"

"""Puts many plain messages at once: no rule of the broker rewrites them, so columns go in and columns come out.

What makes a message anything but plain (a delay level, further queues, an inner batch, a transaction type, a size that
is refused) is looked for here; such messages go one by one through `Putter.put_all`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np

from rmqtool.engine.encoder import FIXED_SIZE, RecordColumns, encode_records, host_flags
from rmqtool.engine.log_writer import LogWriter
from rmqtool.engine.message import DEFAULT_BORN_HOST, DEFAULT_STORE_HOST, Message
from rmqtool.engine.preparation import is_plain_text, sent_text
from rmqtool.engine.put_checks import refusal
from rmqtool.engine.versions import BrokerRules
from rmqtool.engine.writer_config import WriterConfig
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, PROPERTIES_LENGTH_MAX

_PROBE: Final = b""
Int64s = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class MessageColumns:
    """Messages of transaction type none, one list per field; a field that is None has the default of `Message`.

    Attributes:
        properties_texts: encoded properties, stored byte for byte.
        store_timestamps_ms: None for the writer's clock.
    """

    topics: Sequence[str]
    queue_ids: Sequence[int]
    bodies: Sequence[bytes]
    properties_texts: Sequence[bytes]
    flags: Sequence[int] | None = None
    sys_flags: Sequence[int] | None = None
    born_timestamps_ms: Sequence[int] | None = None
    born_hosts: Sequence[bytes] | None = None
    store_timestamps_ms: Sequence[int] | None = None
    store_hosts: Sequence[bytes] | None = None
    reconsume_times: Sequence[int] | None = None
    prepared_transaction_offsets: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.topics)


@dataclass(frozen=True, slots=True)
class PutColumns:
    """Where the messages went: all of them were written."""

    physical_offsets: Int64s
    sizes: Int64s
    queue_offsets: list[int]
    store_timestamps_ms: list[int]

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """(physical offset, size, queue offset, store time) of each message."""
        places, sizes = self.physical_offsets.tolist(), self.sizes.tolist()
        return zip(places, sizes, self.queue_offsets, self.store_timestamps_ms, strict=True)


def columns_of(messages: Sequence[Message], rules: BrokerRules) -> MessageColumns:
    """The columns of messages; times are those that the messages bring, if they all do."""
    times = [message.store_timestamp_ms for message in messages]
    return MessageColumns(
        topics=[message.topic for message in messages],
        queue_ids=[message.queue_id for message in messages],
        bodies=[message.body for message in messages],
        properties_texts=[
            message.properties_text if message.properties_text is not None else sent_text(message.properties, rules)
            for message in messages
        ],
        flags=[message.flag for message in messages],
        sys_flags=[message.sys_flag for message in messages],
        born_timestamps_ms=[message.born_timestamp_ms for message in messages],
        born_hosts=[message.born_host for message in messages],
        store_timestamps_ms=None if None in times else [time for time in times if time is not None],
        store_hosts=[message.store_host for message in messages],
        reconsume_times=[message.reconsume_times for message in messages],
        prepared_transaction_offsets=[message.prepared_transaction_offset for message in messages],
    )


def are_plain(columns: MessageColumns, rules: BrokerRules, config: WriterConfig) -> bool:
    """Whether every message of the columns is stored as it is, in its own queue, and refused by no rule."""
    if config.record_crc or any(columns.sys_flags or ()) or not is_plain_text(columns.properties_texts):
        return False
    if max(map(len, columns.bodies), default=0) > config.message_size_max:
        return False
    if max(map(len, columns.properties_texts), default=0) > PROPERTIES_LENGTH_MAX:
        return False
    # A text of so many bytes has no more characters; the other limits are those of topics.
    return not any(refusal(Message(topic=topic), _PROBE, rules, config) for topic in set(columns.topics))


def place_columns(
    columns: MessageColumns,
    log: LogWriter,
    topic_part: Callable[[str], bytes],
    queue_offsets: list[int],
    now_ms: int,
) -> PutColumns | None:
    """Encode plain messages into the log, file after file; None, and nothing written, where one fits into no file."""
    count = len(columns)
    records = _records(columns, topic_part, queue_offsets, now_ms)
    lengths = (
        np.fromiter(map(len, texts), np.int64, count)
        for texts in (records.topics, records.bodies, records.properties, records.born_hosts, records.store_hosts)
    )
    sizes: Int64s = FIXED_SIZE + np.sum(list(lengths), axis=0)
    if int(sizes.max(initial=0)) + BLANK_SIZE_MIN > log.file_size:
        return None
    ends = np.cumsum(sizes)
    places = np.empty(count, np.int64)
    at = 0
    while at < count:
        before = int(ends[at] - sizes[at])
        stop = int(np.searchsorted(ends, before + log.room() - BLANK_SIZE_MIN, "right"))
        if stop <= at:
            log.roll()
            continue
        places[at:stop] = log.end + (ends[at:stop] - sizes[at:stop]) - before
        log.append(encode_records(records.part(at, stop), log.end))
        at = stop
    return PutColumns(places, sizes, queue_offsets, records.store_timestamps_ms)


def _records(
    columns: MessageColumns, topic_part: Callable[[str], bytes], queue_offsets: list[int], now_ms: int
) -> RecordColumns:
    count = len(columns)

    def filled(values: Sequence[Any] | None, default: Any) -> list[Any]:
        return list(values) if values is not None else list(repeat(default, count))

    born_hosts = filled(columns.born_hosts, DEFAULT_BORN_HOST)
    store_hosts = filled(columns.store_hosts, DEFAULT_STORE_HOST)
    flags_of = {hosts: host_flags(*hosts) for hosts in set(zip(born_hosts, store_hosts, strict=True))}
    return RecordColumns(
        topics=[topic_part(topic) for topic in columns.topics],
        bodies=list(columns.bodies),
        properties=list(columns.properties_texts),
        queue_ids=list(columns.queue_ids),
        flags=filled(columns.flags, 0),
        queue_offsets=queue_offsets,
        sys_flags=[flags_of[hosts] for hosts in zip(born_hosts, store_hosts, strict=True)],
        born_timestamps_ms=filled(columns.born_timestamps_ms, 0),
        born_hosts=born_hosts,
        store_timestamps_ms=filled(columns.store_timestamps_ms, now_ms),
        store_hosts=store_hosts,
        reconsume_times=filled(columns.reconsume_times, 0),
        prepared_transaction_offsets=filled(columns.prepared_transaction_offsets, 0),
        with_record_crc=filled(None, False),
    )

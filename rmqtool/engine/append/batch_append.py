"""Puts many plain messages at once: no rule of the broker rewrites them, so columns go in and columns come out.

What makes a message anything but plain (a delay level, further queues, an inner batch, a transaction type, a size that
is refused) is looked for here; such messages go one by one through `MessageAppender.put_all`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np

from rmqtool.engine.append.encoder import (
    HOST_BITS,
    Int64s,
    Integers,
    RecordColumns,
    encode_records,
    host_flags,
    lengths_of,
)
from rmqtool.engine.append.log_writer import LogWriter
from rmqtool.engine.append.message import DEFAULT_BORN_HOST, DEFAULT_STORE_HOST, Message
from rmqtool.engine.append.rewrite import is_plain_text, sent_text
from rmqtool.engine.append.status import AppendStatus, PutResult, PutStatus
from rmqtool.engine.append.validation import refusal
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import system_flag
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, PROPERTIES_LENGTH_MAX
from rmqtool.formats.message_id import offset_message_id

_ODD_FLAGS: Final = system_flag.TRANSACTION_MASK | system_flag.INNER_BATCH
"""Bits of a message whose queue offset follows rules of its own."""


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
class ColumnAppender:
    """Where the messages went: all of them were written."""

    physical_offsets: Int64s
    sizes: Int64s
    queue_offsets: list[int]
    store_timestamps_ms: Int64s


@dataclass(frozen=True)
class WrittenMessages(Sequence[PutResult]):
    """Results of plain messages, all of which were written; each is made on access."""

    placed: ColumnAppender
    store_hosts: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.store_hosts)

    @overload
    def __getitem__(self, index: int) -> PutResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[PutResult]: ...

    def __getitem__(self, index: int | slice) -> PutResult | list[PutResult]:
        return list(self)[index] if isinstance(index, slice) else self._result(index)

    def __iter__(self) -> Iterator[PutResult]:
        return map(PutResult, *(self.column(name) for name in PutResult._fields[:7]))

    def __reversed__(self) -> Iterator[PutResult]:
        return map(self._result, range(len(self) - 1, -1, -1))

    def column(self, name: str) -> list[Any]:
        """A field of all results."""
        placed = self.placed
        numbers = {
            "physical_offset": placed.physical_offsets,
            "size": placed.sizes,
            "store_timestamp_ms": placed.store_timestamps_ms,
        }
        if name in numbers:
            return list(numbers[name].tolist())
        if name == "queue_offset":
            return placed.queue_offsets
        if name == "message_id":
            hosts = {host: host.hex().upper() for host in set(self.store_hosts)}
            places = placed.physical_offsets.tolist()
            return [f"{hosts[host]}{place:016X}" for host, place in zip(self.store_hosts, places, strict=True)]
        same = {"status": PutStatus.PUT_OK, "append_status": AppendStatus.PUT_OK}
        return [same.get(name)] * len(self)

    def _result(self, index: int) -> PutResult:
        place = int(self.placed.physical_offsets[index])
        return PutResult(
            PutStatus.PUT_OK,
            AppendStatus.PUT_OK,
            place,
            int(self.placed.sizes[index]),
            self.placed.queue_offsets[index],
            int(self.placed.store_timestamps_ms[index]),
            offset_message_id(self.store_hosts[index], place),
        )


def columns_of(messages: Sequence[Message], rules: BrokerRules, now_ms: int) -> MessageColumns:
    """The columns of messages; those that bring no store time get this one."""
    times = [message.store_timestamp_ms for message in messages]
    texts = list[bytes]()
    last: Mapping[str, str] | None = None
    last_text = b""
    for message in messages:
        if message.properties_text is not None:
            texts.append(message.properties_text)
            continue
        if message.properties is not last:  # what is stored for the same map one after the other is made once
            last, last_text = message.properties, sent_text(message.properties, rules)
        texts.append(last_text)
    return MessageColumns(
        topics=[message.topic for message in messages],
        queue_ids=[message.queue_id for message in messages],
        bodies=[message.body for message in messages],
        properties_texts=texts,
        flags=[message.flag for message in messages],
        sys_flags=[message.sys_flag for message in messages],
        born_timestamps_ms=[message.born_timestamp_ms for message in messages],
        born_hosts=[message.born_host for message in messages],
        store_timestamps_ms=[now_ms if time is None else time for time in times],
        store_hosts=[message.store_host for message in messages],
        reconsume_times=[message.reconsume_times for message in messages],
        prepared_transaction_offsets=[message.prepared_transaction_offset for message in messages],
    )


def are_plain(columns: MessageColumns, rules: BrokerRules, config: WriterConfig) -> bool:
    """True if every message of the columns is stored as it is, in its own queue, and no rule refuses any."""
    if config.record_crc or not is_plain_text(columns.properties_texts):
        return False
    if columns.sys_flags is not None and (np.asarray(columns.sys_flags, np.int64) & _ODD_FLAGS).any():
        return False
    if max(map(len, columns.bodies), default=0) > config.message_size_max:
        return False
    if max(map(len, columns.properties_texts), default=0) > PROPERTIES_LENGTH_MAX:
        return False
    # A text of so many bytes has no more characters; the other limits are those of topics.
    queues = set(zip(columns.topics, columns.queue_ids, strict=True))
    probes = (Message(topic=topic, queue_id=queue_id) for topic, queue_id in queues)
    return not any(refusal(probe, b"", rules, config) for probe in probes)


def place_columns(
    columns: MessageColumns,
    log: LogWriter,
    topic_part: Callable[[str], bytes],
    queue_offsets: list[int],
    now_ms: int,
    physical_offsets: Sequence[int] | None,
) -> ColumnAppender | None:
    """Encode plain messages into the log, file after file.

    Args:
        physical_offsets: physical offsets at which they have to come to lie; None for any.

    Returns:
        None, and nothing is written, where one would lie elsewhere, or fits into no file, or a file cannot be made.
    """
    records = _records(columns, topic_part, queue_offsets, now_ms)
    sizes = records.sizes()
    if int(sizes.max(initial=0)) + BLANK_SIZE_MIN > log.file_size:
        return None
    places, runs = _places(sizes, log)
    if physical_offsets is not None and places.tolist() != list(physical_offsets):
        return None
    if sizes.size and not log.make_files(len(runs)):
        return None
    for number, (start, stop) in enumerate(runs):
        if number:
            log.roll()
        if start < stop:
            log.append(encode_records(records.part(start, stop), sizes[start:stop], log.end))
    return ColumnAppender(places, sizes, queue_offsets, np.asarray(records.store_timestamps_ms, np.int64))


def _places(sizes: Int64s, log: LogWriter) -> tuple[Int64s, list[tuple[int, int]]]:
    """Positions of records that fit into a file, and the bounds of those of each file, from the current one on."""
    ends = np.cumsum(sizes)
    places = ends - sizes
    runs: list[tuple[int, int]] = []
    at, begin, room = 0, log.end, log.room()
    while True:
        before = int(ends[at - 1]) if at else 0
        stop = int(np.searchsorted(ends, before + room - BLANK_SIZE_MIN, "right"))
        places[at:stop] += begin - before
        runs.append((at, stop))
        if stop == sizes.size:
            return places, runs
        at, begin, room = stop, begin + room, log.file_size


def _records(
    columns: MessageColumns, topic_part: Callable[[str], bytes], queue_offsets: list[int], now_ms: int
) -> RecordColumns:
    count = len(columns)
    parts = {topic: topic_part(topic) for topic in set(columns.topics)}

    def filled(values: Sequence[int] | None, default: int = 0) -> Integers:
        return values if values is not None else np.full(count, default)

    born_hosts = columns.born_hosts or [DEFAULT_BORN_HOST] * count
    store_hosts = columns.store_hosts or [DEFAULT_STORE_HOST] * count
    host_bits = host_flags(lengths_of(born_hosts), lengths_of(store_hosts))
    return RecordColumns(
        topics=[parts[topic] for topic in columns.topics],
        bodies=columns.bodies,
        properties=columns.properties_texts,
        queue_ids=columns.queue_ids,
        flags=filled(columns.flags),
        queue_offsets=queue_offsets,
        sys_flags=np.asarray(filled(columns.sys_flags), np.int64) & ~HOST_BITS | host_bits,
        born_timestamps_ms=filled(columns.born_timestamps_ms),
        born_hosts=born_hosts,
        store_timestamps_ms=filled(columns.store_timestamps_ms, now_ms),
        store_hosts=store_hosts,
        reconsume_times=filled(columns.reconsume_times),
        prepared_transaction_offsets=filled(columns.prepared_transaction_offsets),
        with_record_crc=np.zeros(count, np.bool_),
    )

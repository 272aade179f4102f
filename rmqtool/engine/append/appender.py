"""Puts messages: checks, queue offsets, placing and encoding, with the status that the broker would answer.

Broker: `DefaultMessageStore#asyncPutMessage`, `CommitLog#asyncPutMessage`, `CommitLog#asyncPutMessages`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from rmqtool.engine.append.batch_append import (
    ColumnAppender,
    MessageColumns,
    WrittenMessages,
    are_plain,
    columns_of,
    place_columns,
)
from rmqtool.engine.append.encoder import (
    HOST_BITS,
    RecordColumns,
    RecordFields,
    encode_records,
    host_flags,
    record_size,
    topic_part,
)
from rmqtool.engine.append.log_writer import LogWriter
from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.rewrite import RewrittenMessage, encode_map, further_queues, prepare, sent_text
from rmqtool.engine.append.status import AppendStatus, PutResult, PutStatus
from rmqtool.engine.append.validation import batch_refusal, further_refusal, refusal
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.broker_rules import BatchProperties, BrokerRules
from rmqtool.formats import properties as names
from rmqtool.formats import system_flag
from rmqtool.formats.batch import join_batch
from rmqtool.formats.commitlog import BLANK_SIZE_MIN, PROPERTIES_LENGTH_MAX
from rmqtool.formats.message_id import offset_message_id
from rmqtool.formats.queue_name import QueueName
from rmqtool.formats.record_crc import PROPERTY_SIZE

INNER_BATCH_FLAGS: Final = system_flag.INNER_BATCH | system_flag.NEED_UNWRAP
ENCODED_AT_ONCE: Final = 2048
ROLLS_IN_STEP: Final = 4
ROOMS: Final = 2
"""Files that are tried for a message: the current one and a new one."""
PLAIN_FROM: Final = 16
"""Messages from which columns are worth making."""
_DumpedAt = tuple[int, int]
"""Physical offset and queue offset."""


def clock_ms() -> int:
    """Now, in ms since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(eq=False)
class MessageAppender:
    """Gives every message its queue offset and its place in the log.

    Args:
        next_queue_offset: the next offset of a queue that this putter has not met yet, from the queue's files.
        clock: store time of messages that bring none.
        from_dump: the messages are those of a whole log, so that files end and queues begin where they did there. As
            soon as a message goes elsewhere, it is a new log like any other.
    """

    _log: LogWriter
    _rules: BrokerRules
    _config: WriterConfig
    _next_queue_offset: Callable[[str, int], int]
    _clock: Callable[[], int] = clock_ms
    from_dump: bool = field(default=False, kw_only=True)
    _queue_offsets: dict[QueueName, int] = field(default_factory=dict)
    _topic_parts: dict[str, bytes] = field(default_factory=dict)
    _waiting: list[RecordFields] = field(default_factory=list)
    _waiting_size: int = 0

    def put_columns(self, columns: MessageColumns) -> ColumnAppender | None:
        """Put plain messages as columns; None, and nothing written, where one of them is not plain."""
        return self._put_columns(columns) if are_plain(columns, self._rules, self._config) else None

    def _put_columns(
        self, columns: MessageColumns, dumped_at: Sequence[_DumpedAt] | None = None
    ) -> ColumnAppender | None:
        """Put plain messages, those of a dumped log only where they were."""
        queues = list(zip(columns.topics, columns.queue_ids, strict=True))
        physical_offsets, begins = None, self._queue_offsets
        if dumped_at is not None:
            physical_offsets, offsets = zip(*dumped_at, strict=True)
            begins = dict(zip(reversed(queues), reversed(offsets), strict=True)) | self._queue_offsets
        next_offsets = {
            queue: count(begins[queue] if queue in begins else self._queue_offset(queue))
            for queue in dict.fromkeys(queues)
        }
        queue_offsets = list(map(next, map(next_offsets.__getitem__, queues)))
        put = place_columns(columns, self._log, self._topic_part, queue_offsets, self._clock(), physical_offsets)
        if put is not None:
            self._queue_offsets.update((queue, next(offsets)) for queue, offsets in next_offsets.items())
        return put

    def put_all(self, messages: Sequence[Message | MessageBatch]) -> Sequence[PutResult]:
        """Put messages in order; all of them are in the log's hands when this returns."""
        if put := self._put_plain(messages):
            return put
        results = []
        for message in messages:
            if isinstance(message, MessageBatch):
                results.append(self._put_batch(message))
            elif not self.from_dump or message.dumped_at is None:
                results.append(self._put(message))
            else:  # put it where it was, if that is where the log is now
                place, queue_offset = message.dumped_at
                self._roll_to(place)
                queue = message.topic, message.queue_id
                if queue not in self._queue_offsets and system_flag.takes_queue_entry(message.sys_flag):
                    self._queue_offsets[queue] = queue_offset
                results.append(self._put(message))
                self.from_dump = results[-1].physical_offset == place
        self._encode()
        return results

    def _roll_to(self, place: int) -> None:
        """End files early where the dumped log did: at a batch that did not fit, or a message that fits into none."""
        for _ in range(ROLLS_IN_STEP):
            if self._end < place and place % self._log.file_size == 0:
                self._encode()
                self._log.roll()

    def _put_plain(self, messages: Sequence[Message | MessageBatch]) -> WrittenMessages | None:
        """Put several plain messages as columns; None where one of them is not plain, or not where it was."""
        if len(messages) < PLAIN_FROM:
            return None
        plain = [message for message in messages if isinstance(message, Message)]
        columns = columns_of(plain, self._rules, self._clock())
        if len(plain) < len(messages) or not are_plain(columns, self._rules, self._config):
            return None
        dumped_at = None
        if self.from_dump:
            dumped_at = [message.dumped_at for message in plain if message.dumped_at is not None]
            if len(dumped_at) < len(plain):
                return None
            self._roll_to(dumped_at[0][0])
        put = self._put_columns(columns, dumped_at)
        if put is None:
            return None
        return WrittenMessages(put, [message.store_host for message in plain])

    def _put(self, message: Message) -> PutResult:
        rules, config = self._rules, self._config
        prepared = prepare(message, rules, config)
        if reason := refusal(message, prepared.text, rules, config):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        takes_entry = system_flag.takes_queue_entry(message.sys_flag)
        queue = prepared.topic, prepared.queue_id
        queue_offset = self._queue_offset(queue) if takes_entry else 0
        further: list[QueueName | None] = []
        offset_count = 1
        if prepared.properties:
            further = [] if message.is_final else further_queues(prepared, rules, config)
            if reason := further_refusal(further):
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
            if further:
                offsets = [None if other is None else self._queue_offset(other) for other in further]
                offset_texts = ("" if offset is None else str(offset) for offset in offsets)
                prepared.properties[names.MULTI_QUEUE_OFFSET] = ",".join(offset_texts)
                without = names.WAIT if rules.strips_wait else None
                prepared.text = encode_map(prepared.properties, rules, without=without)
            if message.sys_flag & system_flag.INNER_BATCH:
                if not message.is_final:
                    prepared.properties[names.INNER_BASE] = str(queue_offset)
                    prepared.text = encode_map(prepared.properties, rules)
                offset_count = int(prepared.properties.get(names.INNER_COUNT, "1"))
        if config.record_crc and not message.is_final and prepared.text and not prepared.text.endswith(b"\x02"):
            prepared.text += b"\x02"
        size = self._size(message, prepared.topic, len(message.body), prepared.text)
        if refused := self._too_large(prepared.text, size, len(message.body)):
            return refused
        if (refused := self._without_room(size)) is not None:
            return refused
        now = self._clock() if message.store_timestamp_ms is None else message.store_timestamp_ms
        start = self._end
        transaction_offset = message.prepared_transaction_offset
        self._add(message, prepared, message.flag, message.body, queue_offset, size, now, transaction_offset)
        if takes_entry:
            self._queue_offsets[queue] = queue_offset + offset_count
        for other in further if takes_entry or rules.further_offsets_always_advance else []:
            if other is not None:
                self._queue_offsets[other] = self._queue_offset(other) + 1
        message_id = offset_message_id(message.store_host, start)
        return PutResult(PutStatus.PUT_OK, AppendStatus.PUT_OK, start, size, queue_offset, now, message_id)

    def _put_batch(self, batch: MessageBatch) -> PutResult:
        """Put a batch: its parts as adjacent records in one file, or all of it as one record."""
        shared, body = batch.shared, join_batch(batch.parts)
        if batch.is_inner:
            properties = {**shared.properties, names.INNER_COUNT: str(len(batch.parts))}
            sys_flag = shared.sys_flag | INNER_BATCH_FLAGS
            return self._put(replace(shared, body=body, properties=properties, sys_flag=sys_flag))
        if reason := batch_refusal(batch, len(body), self._rules, self._config):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        if not batch.parts:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="a batch without messages")
        text = shared.properties_text
        batch_text = text if text is not None else sent_text(shared.properties, self._rules)
        how = self._rules.batch_properties
        texts, sizes = [], []
        for part in batch.parts:
            part_text = part.properties
            if how is not BatchProperties.DROPPED and batch_text:
                needs_separator = part_text and not part_text.endswith(b"\x02")
                separator = b"\x02" if how is BatchProperties.SEPARATED and needs_separator else b""
                part_text = part_text + separator + batch_text
            texts.append(part_text)
            sizes.append(self._size(shared, shared.topic, len(part.body), part_text))
            if refused := self._too_large(part_text, sizes[-1], len(part.body)):
                return refused
        if (refused := self._without_room(sum(sizes))) is not None:
            return refused
        queue = shared.topic, shared.queue_id
        first_offset = self._queue_offset(queue)
        start = self._end
        now = self._clock() if shared.store_timestamp_ms is None else shared.store_timestamp_ms
        ids = []
        for at, (part, part_text, size) in enumerate(zip(batch.parts, texts, sizes, strict=True)):
            ids.append(offset_message_id(shared.store_host, self._end))
            prepared = RewrittenMessage(shared.topic, shared.queue_id, part_text, None)
            self._add(shared, prepared, part.flag, part.body, first_offset + at, size, now, 0)
        self._queue_offsets[queue] = first_offset + len(batch.parts)
        return PutResult(PutStatus.PUT_OK, AppendStatus.PUT_OK, start, sum(sizes), first_offset, now, ",".join(ids))

    def _add(
        self,
        message: Message,
        prepared: RewrittenMessage,
        flag: int,
        body: bytes,
        queue_offset: int,
        size: int,
        store_timestamp_ms: int,
        prepared_transaction_offset: int,
    ) -> None:
        """Place one record after those that wait to be encoded."""
        host_bits = host_flags(len(message.born_host), len(message.store_host))
        self._waiting.append(
            RecordFields(
                self._topic_part(prepared.topic),
                body,
                prepared.text,
                prepared.queue_id,
                flag,
                queue_offset,
                message.sys_flag & ~HOST_BITS | host_bits,
                message.born_timestamp_ms,
                message.born_host,
                store_timestamp_ms,
                message.store_host,
                message.reconsume_times,
                prepared_transaction_offset,
                self._config.record_crc and not message.is_final,
            )
        )
        self._waiting_size += size
        if len(self._waiting) >= ENCODED_AT_ONCE:
            self._encode()

    def _encode(self) -> None:
        if not self._waiting:
            return
        columns = RecordColumns(*zip(*self._waiting, strict=True))
        block = encode_records(columns, columns.sizes(), self._log.end)
        assert len(block) == self._waiting_size, (len(block), self._waiting_size)
        self._waiting = []
        self._waiting_size = 0
        self._log.append(block)

    @property
    def _end(self) -> int:
        return self._log.end + self._waiting_size

    def _without_room(self, size: int) -> PutResult | None:
        """Roll to the next file where this size does not fit; None where it fits now, else the refusal."""
        for number in range(ROOMS):
            if not self._waiting_size and not self._log.open_file():
                rolled = AppendStatus.END_OF_FILE if number else None
                reason = "the next file of the commit log cannot be made"
                return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, rolled, self._end, reason=reason)
            if self._waiting_size + size + BLANK_SIZE_MIN <= self._log.room():
                return None
            self._encode()
            self._log.roll()
        return PutResult(PutStatus.PUT_OK, AppendStatus.END_OF_FILE, self._end)

    def _too_large(self, text: bytes, size: int, body_length: int) -> PutResult | None:
        """The encoder's refusal of a message for its size (`MessageExtEncoder#encode`)."""
        if len(text) + (PROPERTY_SIZE if self._config.record_crc else 0) > PROPERTIES_LENGTH_MAX:
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, reason="properties of more than 32767 bytes")
        size_max = self._config.message_size_max
        if body_length > size_max or size > size_max + 65536:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=f"a message of more than {size_max} bytes")
        return None

    def _size(self, message: Message, topic: str, body_length: int, text: bytes) -> int:
        properties_length = len(text)
        if self._config.record_crc and not message.is_final:
            properties_length += PROPERTY_SIZE
        hosts_length = len(message.born_host) + len(message.store_host)
        return record_size(len(self._topic_part(topic)), body_length, properties_length, hosts_length)

    def _topic_part(self, topic: str) -> bytes:
        part = self._topic_parts.get(topic)
        if part is None:
            raw = topic.encode("utf-8", "surrogatepass")
            part = self._topic_parts[topic] = topic_part(raw, writes_v2=self._rules.reads_v2)
        return part

    def _queue_offset(self, queue: QueueName) -> int:
        offset = self._queue_offsets.get(queue)
        if offset is None:
            offset = self._queue_offsets[queue] = self._next_queue_offset(*queue)
        return offset

"""Puts messages: checks, queue offsets, encoding and placing, with the status that the broker would answer.

Broker: `DefaultMessageStore#asyncPutMessage`, `CommitLog#asyncPutMessage`, `CommitLog#asyncPutMessages`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rmqtool.engine.algorithms import BatchProperties
from rmqtool.engine.encoder import encode_record, host_flags, record_size
from rmqtool.engine.log_writer import LogWriter
from rmqtool.engine.message import Message, MessageBatch
from rmqtool.engine.preparation import Prepared, further_queues, prepare, sent_text, with_further_offsets
from rmqtool.engine.properties_text import encode_map
from rmqtool.engine.put_checks import batch_refusal, refusal, size_refusal
from rmqtool.engine.put_status import AppendStatus, PutResult, PutStatus
from rmqtool.engine.versions import BrokerRules
from rmqtool.engine.writer_config import WriterConfig
from rmqtool.formats import properties as names
from rmqtool.formats import system_flag
from rmqtool.formats.batch import join_batch
from rmqtool.formats.commitlog import PROPERTIES_LENGTH_MAX, TOPIC_LENGTH_MAX_V1
from rmqtool.formats.java_text import decode_java_utf8, java_length
from rmqtool.formats.message_id import offset_message_id
from rmqtool.formats.record_crc import PROPERTY_SIZE

INNER_BATCH_FLAGS: Final = system_flag.INNER_BATCH | system_flag.NEED_UNWRAP


def clock_ms() -> int:
    """Now, in ms since the epoch."""
    return time.time_ns() // 1_000_000


class Putter:
    """Gives every message its queue offset and its place in the log.

    Args:
        next_queue_offset: the next offset of a queue that this putter has not met yet, from the queue's files.
        clock: store time of messages that bring none.
    """

    def __init__(
        self,
        log: LogWriter,
        rules: BrokerRules,
        config: WriterConfig,
        next_queue_offset: Callable[[str, int], int],
        clock: Callable[[], int] = clock_ms,
    ) -> None:
        self._log = log
        self._rules = rules
        self._config = config
        self._next_queue_offset = next_queue_offset
        self._clock = clock
        self._queue_offsets: dict[tuple[str, int], int] = {}
        self._topics: dict[str, bytes] = {}

    def put(self, message: Message) -> PutResult:
        """Put one message."""
        rules, config = self._rules, self._config
        prepared = prepare(message, rules, config)
        if reason := refusal(message, prepared.text, rules, config):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        sys_flag = message.sys_flag
        takes_entry = system_flag.takes_queue_entry(sys_flag)
        queue = prepared.topic, prepared.queue_id
        queue_offset = self._queue_offset(queue) if takes_entry else 0
        further = further_queues(prepared, rules, config) if prepared.properties else []
        if further:
            offsets = [None if other is None else self._queue_offset(other) for other in further]
            prepared.text = with_further_offsets(prepared, offsets, rules)
        taken = 1
        if sys_flag & system_flag.INNER_BATCH and prepared.properties and not message.is_final:
            prepared.properties[names.INNER_BASE] = str(queue_offset)
            prepared.text = encode_map(prepared.properties, rules)
        if sys_flag & system_flag.INNER_BATCH and prepared.properties:
            taken = int(prepared.properties.get(names.INNER_COUNT, "1"))
        result = self._append(message, prepared, message.flag, message.body, queue_offset)
        if result.is_written:
            if takes_entry:
                self._queue_offsets[queue] = queue_offset + taken
            for other in further if takes_entry or rules.further_offsets_always_advance else []:
                if other is not None:
                    self._queue_offsets[other] = self._queue_offset(other) + 1
        return result

    def put_batch(self, batch: MessageBatch) -> PutResult:
        """Put a batch: its parts as records side by side in one file, or all of it as one record."""
        if batch.is_inner:
            return self._put_inner(batch)
        shared = batch.shared
        body_length = len(join_batch(batch.parts))
        if reason := batch_refusal(batch, body_length, self._rules, self._config):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        if not batch.parts:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="a batch without messages")
        batch_text = (
            shared.properties_text if shared.properties_text is not None else sent_text(shared.properties, self._rules)
        )
        texts = [self._part_text(part.properties, batch_text) for part in batch.parts]
        topic = self._topic(shared.topic)
        sizes = [self._size(shared, topic, len(part.body), text) for part, text in zip(batch.parts, texts, strict=True)]
        for part, text, size in zip(batch.parts, texts, sizes, strict=True):
            if len(text) > PROPERTIES_LENGTH_MAX:
                return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, reason="properties of more than 32767 bytes")
            if reason := size_refusal(size, len(part.body), self._config):
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        if not self._make_room(sum(sizes)):
            return PutResult(PutStatus.PUT_OK, AppendStatus.END_OF_FILE, self._log.end)
        queue = shared.topic, shared.queue_id
        first_offset = self._queue_offset(queue)
        start = self._log.end
        now = shared.store_timestamp_ms if shared.store_timestamp_ms is not None else self._clock()
        ids = []
        for at, (part, text, size) in enumerate(zip(batch.parts, texts, sizes, strict=True)):
            ids.append(offset_message_id(shared.store_host, self._log.end))
            self._write(shared, topic, part.flag, part.body, text, size, shared.queue_id, first_offset + at, now, 0)
        self._queue_offsets[queue] = first_offset + len(batch.parts)
        return PutResult(PutStatus.PUT_OK, AppendStatus.PUT_OK, start, sum(sizes), first_offset, now, ",".join(ids))

    def _put_inner(self, batch: MessageBatch) -> PutResult:
        shared = batch.shared
        properties = dict(shared.properties)
        properties[names.INNER_COUNT] = str(len(batch.parts))
        return self.put(
            Message(
                topic=shared.topic,
                body=join_batch(batch.parts),
                queue_id=shared.queue_id,
                properties=properties,
                flag=shared.flag,
                sys_flag=shared.sys_flag | INNER_BATCH_FLAGS,
                born_timestamp_ms=shared.born_timestamp_ms,
                born_host=shared.born_host,
                store_timestamp_ms=shared.store_timestamp_ms,
                store_host=shared.store_host,
                reconsume_times=shared.reconsume_times,
                prepared_transaction_offset=shared.prepared_transaction_offset,
            )
        )

    def _append(self, message: Message, prepared: Prepared, flag: int, body: bytes, queue_offset: int) -> PutResult:
        text = prepared.text
        if self._config.record_crc and not message.is_final and text and not text.endswith(b"\x02"):
            text += b"\x02"
        if len(text) + (PROPERTY_SIZE if self._config.record_crc else 0) > PROPERTIES_LENGTH_MAX:
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED, reason="properties of more than 32767 bytes")
        topic = self._topic(prepared.topic)
        size = self._size(message, topic, len(body), text)
        if reason := size_refusal(size, len(body), self._config):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
        if not self._make_room(size):
            return PutResult(PutStatus.PUT_OK, AppendStatus.END_OF_FILE, self._log.end)
        now = message.store_timestamp_ms if message.store_timestamp_ms is not None else self._clock()
        start = self._log.end
        prepared_offset = message.prepared_transaction_offset
        self._write(message, topic, flag, body, text, size, prepared.queue_id, queue_offset, now, prepared_offset)
        message_id = offset_message_id(message.store_host, start)
        return PutResult(PutStatus.PUT_OK, AppendStatus.PUT_OK, start, size, queue_offset, now, message_id)

    def _write(
        self,
        message: Message,
        topic: bytes,
        flag: int,
        body: bytes,
        text: bytes,
        size: int,
        queue_id: int,
        queue_offset: int,
        now: int,
        prepared_offset: int,
    ) -> None:
        hosts = host_flags(message.born_host, message.store_host)
        sys_flag = message.sys_flag & ~(system_flag.BORN_HOST_V6 | system_flag.STORE_HOST_V6) | hosts
        self._log.append(
            encode_record(
                size,
                self._is_v2(topic),
                queue_id,
                flag,
                queue_offset,
                self._log.end,
                sys_flag,
                message.born_timestamp_ms,
                message.born_host,
                now,
                message.store_host,
                message.reconsume_times,
                prepared_offset,
                body,
                topic,
                text,
                self._config.record_crc and not message.is_final,
            )
        )

    def _size(self, message: Message, topic: bytes, body_length: int, text: bytes) -> int:
        properties_length = len(text) + (PROPERTY_SIZE if self._config.record_crc and not message.is_final else 0)
        hosts_length = len(message.born_host) + len(message.store_host)
        is_v2 = self._is_v2(topic)
        return record_size(body_length, len(topic), properties_length, is_v2=is_v2, hosts_length=hosts_length)

    def _part_text(self, text: bytes, batch_text: bytes) -> bytes:
        """Properties of a batch's part with what the version adds to them."""
        how = self._rules.batch_properties
        if how is not BatchProperties.DROPPED and batch_text:
            separator = b"\x02" if how is BatchProperties.SEPARATED and text and not text.endswith(b"\x02") else b""
            text = text + separator + batch_text
        return text

    def _make_room(self, size: int) -> bool:
        """Roll to the next file where so much does not fit; False where it fits into none."""
        for _ in range(2):
            if self._log.fits(size):
                return True
            self._log.roll()
        return False

    def _is_v2(self, topic: bytes) -> bool:
        return (
            self._rules.reads_v2
            and len(topic) > TOPIC_LENGTH_MAX_V1
            and java_length(decode_java_utf8(topic)) > TOPIC_LENGTH_MAX_V1
        )

    def _topic(self, topic: str) -> bytes:
        raw = self._topics.get(topic)
        if raw is None:
            raw = self._topics[topic] = topic.encode("utf-8", "surrogatepass")
        return raw

    def _queue_offset(self, queue: tuple[str, int]) -> int:
        found = self._queue_offsets.get(queue)
        if found is None:
            found = self._queue_offsets[queue] = self._next_queue_offset(*queue)
        return found

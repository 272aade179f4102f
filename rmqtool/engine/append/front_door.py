"""Broker's handling of a client's request before the store: checks, completed properties, its response.

Broker: `SendMessageProcessor#sendMessage`, `#sendBatchMessage`, `AbstractSendMessageProcessor#msgCheck`,
`#consumerSendMsgBack`, `EndTransactionProcessor`, `TransactionalMessageBridge`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rmqtool.engine.append.appender import clock_ms
from rmqtool.engine.append.client_settings import ClientSettings
from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.rewrite import CLIENT_MAP_CAPACITY, encode_map, hash_map_order, ordered
from rmqtool.engine.append.send_topics import WRITE, SendTopic, SendTopics
from rmqtool.engine.append.status import PutResult, PutStatus, refused, response_to
from rmqtool.engine.append.store_writer import StoreWriter
from rmqtool.engine.append.transactions import TransactionEnds, message_again
from rmqtool.engine.append.validation import TOPIC_LENGTH_MAX, delay_level, is_kept_from_clients, topic_refusal
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.reading.record import Record, read_record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import DEAD_LETTER_PREFIX, LMQ_PREFIX, RETRY_PREFIX
from rmqtool.formats import properties as names
from rmqtool.formats import system_flag
from rmqtool.formats.message_id import create_unique_key
from rmqtool.formats.properties import encode_properties
from rmqtool.formats.remoting import ResponseCode
from rmqtool.store.config.config_kinds import GROUPS, TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.sink import DirectorySink

RANDOM_END: Final = 99_999_999
"""A random queue is a number below it, modulo the number of queues."""
RETRY_DELAY_FIRST: Final = 3
"""Delay level of the first retry."""
_WORDS: Final = ("true", "false")


@dataclass(eq=False)
class FrontDoor:
    """A broker's answers to its clients, on a store that is open for writing.

    Args:
        read: the record at a physical offset, None for none; also of a message that was put just now.
        clock: now, in ms since the epoch.
        chance: decides the queue where a client leaves that to the broker.
    """

    _rules: BrokerRules
    _settings: ClientSettings
    _topics: SendTopics
    _put: Callable[[Message | MessageBatch], PutResult]
    _read: Callable[[int], tuple[Record, bytes] | None]
    _clock: Callable[[], int]
    _chance: random.Random
    _unique_keys: int = 0

    def send(self, request: Message | MessageBatch) -> PutResult:
        """Send a message or a batch, as a producer does.

        Raises:
            UnsupportedError: a topic has to be made, and the topics are in RocksDB.
            WriteError: the disk takes neither message nor topic.
        """
        shared = request.shared if isinstance(request, MessageBatch) else request
        if self._rules.adds_region and not isinstance(request, MessageBatch) and not request.body:
            return refused(ResponseCode.SYSTEM_ERROR, "no body: a broker of this version fails on such a request")
        topic = self._checked(shared)
        if isinstance(topic, PutResult):
            return topic
        if shared.queue_id < 0:
            if not topic.write_queue_count:
                return refused(ResponseCode.SYSTEM_ERROR, "a topic without queues to write to")
            shared = replace(shared, queue_id=self._chance.randrange(RANDOM_END) % topic.write_queue_count)
        if topic.has_several_tags:
            shared = replace(shared, sys_flag=shared.sys_flag | system_flag.MULTI_TAGS)
        if isinstance(request, MessageBatch):
            return self._send_batch(replace(request, shared=shared), topic)
        return self._send_message(shared, topic)

    def send_back(self, physical_offset: int, group: str, level: int, retries_max: int | None) -> PutResult:
        """Send a message back that a consumer of a group could not process: for a later retry, or as a dead letter.

        Args:
            level: delay level; 0 for one that grows with the retries, a negative one makes a dead letter at once.
            retries_max: of the consumer; None for that of its group.

        Raises:
            UnsupportedError, UnreadableError, WriteError: see `send`; the message cannot be read.
        """
        rules, known = self._rules, self._topics.group(group)
        if known is None:
            return refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {group} does not exist")
        if not self._settings.permission & WRITE:
            return refused(ResponseCode.NO_PERMISSION, "the broker may not be written to (brokerPermission)")
        if known.retry_queue_count <= 0:
            return refused(ResponseCode.SUCCESS, "the group has no queues for retries, so the message is dropped")
        topic = RETRY_PREFIX + group
        queue_id = self._chance.randrange(RANDOM_END) % known.retry_queue_count
        if not self._topics.find_or_create(topic, known.retry_queue_count).permission & WRITE:
            return refused(ResponseCode.NO_PERMISSION, f"topic {topic} may not be written to (perm)")
        stored = self._read(physical_offset)
        if stored is None:
            return refused(ResponseCode.SYSTEM_ERROR, f"there is no message at {physical_offset}")
        record, body = stored
        properties = ordered(record.properties, rules)
        properties.setdefault(names.RETRY_TOPIC, record.topic)
        properties[names.WAIT] = "false"
        limit = known.retries_max if retries_max is None else retries_max
        if record.reconsume_times >= limit or level < 0:
            topic, queue_id = DEAD_LETTER_PREFIX + group, 0
            self._topics.find_or_create(topic, 1)
            properties[names.DELAY_LEVEL] = "0"
        else:
            properties[names.DELAY_LEVEL] = str(level or RETRY_DELAY_FIRST + record.reconsume_times)
        if not properties.get(names.ORIGIN_MESSAGE_ID, "").strip():
            properties[names.ORIGIN_MESSAGE_ID] = record.message_id
        text = encode_map(properties, rules)
        again = message_again(record, body, topic, queue_id, properties, text)
        again.reconsume_times += 1
        if not rules.send_back_keeps_store_host:
            again.store_host = self._settings.store_host
        put = self._put(again)
        is_good = put.status is PutStatus.PUT_OK
        return put._replace(response=ResponseCode.SUCCESS if is_good else ResponseCode.SYSTEM_ERROR)

    def _checked(self, message: Message) -> SendTopic | PutResult:
        """The topic, which is created where it has to be; the response to the client if the message is refused."""
        rules, topic = self._rules, message.topic
        invalid = ResponseCode.INVALID_PARAMETER if rules.invalid_parameter_code else ResponseCode.SYSTEM_ERROR
        if self._clock() < self._settings.accepts_from_ms:
            reason = "the broker takes no messages yet (startAcceptSendRequestTimeStamp)"
            return refused(ResponseCode.SYSTEM_ERROR, reason)
        known = self._topics.topics.get(topic)
        if known is not None and known.is_ordered and not self._settings.permission & WRITE:
            return refused(ResponseCode.NO_PERMISSION, "an ordered topic of a broker that may not be written to")
        if reason_of_name := topic_refusal(topic, rules):
            return refused(invalid, reason_of_name)
        if is_kept_from_clients(topic, rules):
            return refused(ResponseCode.NO_PERMISSION, "a system topic that clients may not send to")
        known = known or self._topics.create_for_send(topic)
        if known is None and topic.startswith(RETRY_PREFIX):
            known = self._topics.find_or_create(topic, 1)
        if known is None:
            return refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} does not exist, and the broker makes none")
        queue_count = max(known.read_queue_count, known.write_queue_count)
        if message.queue_id >= queue_count:
            return refused(invalid, f"queue id {message.queue_id} of a topic that has {queue_count} queues")
        return known

    def _send_message(self, message: Message, topic: SendTopic) -> PutResult:
        rules, name = self._rules, message.topic
        properties = self._sent_properties(message)
        if name.startswith(RETRY_PREFIX):
            group = name.removeprefix(RETRY_PREFIX)
            known = self._topics.group(group)
            if known is None:
                return refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"group {group} does not exist")
            if message.reconsume_times >= known.retries_max + rules.dead_letter_above_limit:
                if rules.dead_letter_above_limit:
                    properties[names.DELAY_LEVEL] = "-1"
                message = replace(message, topic=DEAD_LETTER_PREFIX + group, queue_id=0)
                self._topics.find_or_create(message.topic, 1)
        if rules.adds_unique_key and not properties.get(names.UNIQUE_KEY):
            self._unique_keys += 1
            now = datetime.fromtimestamp(self._clock() / 1000, UTC)
            properties[names.UNIQUE_KEY] = create_unique_key(self._settings.store_host[:-4], now, self._unique_keys)
        if rules.lite_topics and (lite_topic := properties.get(names.LITE_TOPIC)):
            properties[names.MULTI_DISPATCH] = f"{LMQ_PREFIX}${name}${lite_topic}"
        if rules.priority:
            message = _by_priority(message, properties, topic)
        if topic.is_compacted and rules.compaction and not properties.get(names.KEYS, "").strip():
            return refused(ResponseCode.MESSAGE_ILLEGAL, "a message without keys for a compacted topic")
        if rules.adds_cluster:
            properties[names.CLUSTER] = self._settings.cluster
        if rules.strips_wait and names.WAIT in properties:
            properties[names.WAIT] = properties.pop(names.WAIT)
        if properties.get(names.TRANSACTION_PREPARED, "").lower() == "true":
            is_retried = message.reconsume_times > 0 and delay_level(replace(message, properties=properties)) > 0
            if not (is_retried and rules.delayed_retry_is_no_half):
                return self._put_half(message, properties)
        text = encode_map(properties, rules)
        return self._answered(replace(message, properties=properties, properties_text=text))

    def _put_half(self, message: Message, properties: dict[str, str]) -> PutResult:
        """Put a message that the producer has not committed yet (`TransactionalMessageBridge`)."""
        if self._settings.rejects_transactions:
            return refused(ResponseCode.NO_PERMISSION, "the broker takes no transactions (rejectTransactionMessage)")
        if self._rules.half_transaction_id and (key := properties.get(names.UNIQUE_KEY)):
            properties[names.TRANSACTION_ID] = key
        properties[names.REAL_TOPIC] = message.topic
        properties[names.REAL_QUEUE_ID] = str(message.queue_id)
        half = replace(
            message,
            topic=names.HALF_TOPIC,
            queue_id=0,
            sys_flag=message.sys_flag & ~system_flag.TRANSACTION_MASK,
            properties=properties,
            properties_text=encode_map(properties, self._rules),
            is_internal=True,
        )
        return self._answered(half)

    def _send_batch(self, batch: MessageBatch, topic: SendTopic) -> PutResult:
        shared = batch.shared
        if len(shared.topic) > TOPIC_LENGTH_MAX:
            return refused(
                ResponseCode.MESSAGE_ILLEGAL, f"a batch to a topic of more than {TOPIC_LENGTH_MAX} characters"
            )
        if shared.topic.startswith(RETRY_PREFIX) and not self._rules.batch_to_retry_topic:
            return refused(ResponseCode.MESSAGE_ILLEGAL, "a batch to a retry topic")
        properties = self._sent_properties(shared)
        if self._rules.adds_cluster:
            properties[names.CLUSTER] = self._settings.cluster
        is_inner = self._rules.inner_batch and topic.is_batch and names.UNIQUE_KEY in properties
        if is_inner:
            properties[names.INNER_COUNT] = str(len(batch.parts))
        text = encode_map(properties, self._rules)
        shared = replace(shared, properties=properties, properties_text=text)
        return self._answered(replace(batch, shared=shared, is_inner=is_inner))

    def _answered(self, message: Message | MessageBatch) -> PutResult:
        put = self._put(message)
        return put._replace(response=response_to(put))

    def _sent_properties(self, message: Message) -> dict[str, str]:
        """Properties as the broker has them from the client, with those that it adds itself."""
        text = message.properties_text
        if text is None:
            order = hash_map_order(message.properties, CLIENT_MAP_CAPACITY)
            text = encode_properties({name: message.properties[name] for name in order}, trailing_separator=True)
        properties = ordered(self._rules.property_decoder.decode(text), self._rules)
        if self._rules.adds_region:
            properties[names.MSG_REGION] = self._settings.region
            properties[names.TRACE_ON] = _WORDS[not self._settings.traces]
            properties = ordered(properties, self._rules)
        if self._rules.drops_pop_checkpoint:
            properties.pop(names.POP_CHECKPOINT, None)
        return properties


def _by_priority(message: Message, properties: dict[str, str], topic: SendTopic) -> Message:
    """A message in the queue of its priority; one of another kind loses the property (`Message#getPriority`)."""
    text = properties.get(names.PRIORITY, "")
    if not text.removeprefix("+").isdecimal() or not text.isascii() or int(text) >= 1 << 31:
        return message
    kinds = (names.DELAY_LEVEL, *names.TIMER_DELIVERY, names.SHARDING_KEY)
    is_half = properties.get(names.TRANSACTION_PREPARED, "").lower() == "true"
    if is_half or any(name in properties for name in kinds):
        del properties[names.PRIORITY]
        return message
    return replace(message, queue_id=min(int(text), topic.write_queue_count - 1))


def open_front_door(
    root: Path,
    writer: StoreWriter,
    look: Callable[[], Store],
    settings: ClientSettings,
    clock: Callable[[], int] = clock_ms,
    seed: int = 0,
) -> tuple[FrontDoor, TransactionEnds]:
    """A broker's answers on a store that is being written.

    Args:
        look: surveys the store.
        seed: of the queues that the broker chooses.
    """

    def read(physical_offset: int) -> tuple[Record, bytes] | None:
        writer.write_out()
        with open_reader(look(), writer.rules) as reader:
            record = read_record(reader.log, physical_offset)
            return None if record is None else (record, record.body(record.body_length))

    def write(path: str, content: bytes) -> None:
        with DirectorySink(root) as sink:
            sink.replace(path, content)

    view = look().view
    topics = SendTopics(writer.rules, settings, read_config(view, TOPICS), read_config(view, GROUPS), write)
    chance = random.Random(seed)  # noqa: S311
    door = FrontDoor(writer.rules, settings, topics, writer.put, read, clock, chance)
    return door, TransactionEnds(writer.rules, settings, writer.put, read, clock)

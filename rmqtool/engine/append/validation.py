"""Check a message against the broker's limits, in the order of its version.

Broker: `DefaultMessageStore#checkMessage` (4.x), `HookUtils#checkBeforePutMessage` and `#checkInnerBatch` (5.x),
`TopicValidator#validateTopic`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import DEAD_LETTER_PREFIX, RETRY_PREFIX, VALID_NAME
from rmqtool.formats import properties as names
from rmqtool.formats import system_flag
from rmqtool.formats.java_text import java_length
from rmqtool.formats.queue_name import QueueName

TOPIC_LENGTH_MAX: Final = 127
RETRY_TOPIC_LENGTH_MAX: Final = 255
DIRECTORY_NAME_MAX: Final = 255
"""Bytes of a name that file systems take."""
_SYSTEM_TOPICS: Final = frozenset(
    {
        names.SCHEDULE_TOPIC,
        names.HALF_TOPIC,
        names.OPERATION_TOPIC,
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_ROCKSDB_TOPICS: Final = frozenset({names.ROCKSDB_HALF_TOPIC, names.ROCKSDB_OPERATION_TOPIC})


def refusal(message: Message, text: bytes, rules: BrokerRules, config: WriterConfig) -> str | None:
    """Why the broker answers MESSAGE_ILLEGAL before it encodes anything; None if it does not.

    Args:
        text: the encoded properties.
    """
    if reason := queue_refusal(message, config) or _no_directory(message.topic) or _too_long(message.topic, rules):
        return reason
    if rules.properties_limit_in_characters and java_length(text.decode("utf-8", "replace")) > 32767:
        return "properties of more than 32767 characters"
    if message.is_final or not rules.inner_batch:
        return None
    is_inner = bool(message.sys_flag & system_flag.INNER_BATCH)
    if names.INNER_COUNT in message.properties and not is_inner:
        return "INNER_NUM without the inner-batch flag"
    if is_inner and message.topic not in config.batch_topics:
        return "an inner batch for a topic whose queues are not batch queues"
    return None


def batch_refusal(batch: MessageBatch, body_length: int, rules: BrokerRules, config: WriterConfig) -> str | None:
    """Why a classic batch is refused as a whole."""
    shared = batch.shared
    if shared.sys_flag & system_flag.TRANSACTION_MASK:
        return "a batch in a transaction"
    if delay_level(shared) > 0:
        return "a batch with a delay level"
    if body_length > config.message_size_max:
        return f"a batch of more than {config.message_size_max} bytes"
    return queue_refusal(shared, config) or _no_directory(shared.topic) or _too_long(shared.topic, rules)


def queue_refusal(message: Message, config: WriterConfig) -> str | None:
    """Why a broker's request processor does not take a queue id from a client; the store itself takes any number.

    A record that was dumped may be in a queue that its topic had once; for a negative number a broker chooses one.
    """
    if message.queue_id < 0:
        return f"queue id {message.queue_id}, which is negative"
    queues = config.queue_counts.get(message.topic)
    if queues is not None and message.queue_id >= queues and not message.is_final:
        return f"queue id {message.queue_id} of a topic that has {queues} queues to write to (config/topics.json)"
    return None


def further_refusal(queues: Iterable[QueueName | None]) -> str | None:
    """Why a message is refused for the further queues that it names."""
    topics = [queue[0] for queue in queues if queue is not None]
    return next((f"a further queue of {reason}" for reason in map(_no_directory, topics) if reason), None)


def topic_refusal(topic: str, rules: BrokerRules) -> str | None:
    """Why a broker's request processor takes a topic's name from no client; the store has no such rules."""
    if not rules.validates_sent_topics:
        return "the topic that new topics are made after" if topic == "TBW102" else None
    longer = rules.long_retry_topics and topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    limit = RETRY_TOPIC_LENGTH_MAX if longer else TOPIC_LENGTH_MAX
    if not topic.strip():
        return "a blank topic"
    if VALID_NAME.match(topic) is None:
        return "a topic with characters other than %|-_a-zA-Z0-9"
    return f"a topic of more than {limit} characters" if len(topic) > limit else None


def is_kept_from_clients(topic: str, rules: BrokerRules) -> bool:
    """True if a topic is the broker's own, which no client may send to (`TopicValidator#isNotAllowedSendTopic`)."""
    own = _SYSTEM_TOPICS | (_ROCKSDB_TOPICS if rules.rocksdb_side_store else frozenset())
    return rules.refuses_system_topics and topic in own


def delay_level(message: Message) -> int:
    """The delay level that a message asks for; 0 for none."""
    text = message.properties.get(names.DELAY_LEVEL)
    return int(text) if text is not None and re.fullmatch(r"[+-]?\d{1,10}", text, re.ASCII) else 0


def _no_directory(topic: str) -> str | None:
    """Refusal of a topic whose queues would lie outside the store, or nowhere; a broker's store takes any topic."""
    if "/" in topic or "\0" in topic or topic in ("", ".", ".."):
        return "a topic that cannot be the name of a directory"
    if len(topic.encode("utf-8", "surrogatepass")) > DIRECTORY_NAME_MAX:
        return f"a topic of more than {DIRECTORY_NAME_MAX} bytes, which cannot be the name of a directory"
    return None


def _too_long(topic: str, rules: BrokerRules) -> str | None:
    size, characters = len(topic.encode("utf-8", "surrogatepass")), java_length(topic)
    if rules.topic_limit_in_bytes:
        if size > TOPIC_LENGTH_MAX and not topic.startswith(RETRY_PREFIX):
            return f"a topic of more than {TOPIC_LENGTH_MAX} bytes"
    elif characters > TOPIC_LENGTH_MAX:
        return f"a topic of more than {TOPIC_LENGTH_MAX} characters"
    if rules.topic_length_max is not None and size > rules.topic_length_max:
        return f"a topic of more than {rules.topic_length_max} bytes"
    if size > TOPIC_LENGTH_MAX and not (rules.reads_v2 and characters > TOPIC_LENGTH_MAX):
        # Its length is written into one byte: dispatch skips the record, a start cuts the log there.
        return f"a topic of {size} bytes in {characters} characters, which a broker takes and cannot read again"
    return None

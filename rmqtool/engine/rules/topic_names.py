"""Names of topics and groups: which ones can be created and deleted, and which are the broker's own.

Broker: `TopicConfigManager`'s constructor, `TopicValidator`, `AdminBrokerProcessor#deleteTopic`,
`SubscriptionGroupManager#init`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from rmqtool.formats import properties
from rmqtool.formats.pop import REVIVE_TOPIC
from rmqtool.formats.properties import SCHEDULE_TOPIC

LMQ_PREFIX: Final = "%LMQ%"
"""Of the light queues that a record names beside its own queue."""
RETRY_PREFIX: Final = "%RETRY%"
"""Of the topic of messages that a group failed to consume; its consumers make it when they connect."""
DEAD_LETTER_PREFIX: Final = "%DLQ%"
"""Of the topic of messages that a group failed to consume too often."""
_OWN: Final = frozenset({SCHEDULE_TOPIC, "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT"})
_OWN_GROUPS: Final = frozenset(
    {
        "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
    }
)  # fmt: skip


class Delivery(StrEnum):
    """What the record of a message is for, by the topic that it lies in."""

    NORMAL = "normal"
    """A message that consumers of its topic get, also one that was delayed, or committed, before."""
    HALF = "half"
    """Of a transaction: it waits for its end."""
    OPERATION = "op"
    """Of a transaction: its half message has ended."""
    DELAYED = "delayed"
    TIMER = "timer"
    RETRY = "retry"
    DEAD_LETTER = "dead-letter"
    TRACE = "trace"
    POP = "pop"
    """Progress of consumers that pop."""
    SYSTEM = "system"


_DELIVERIES: Final = {
    properties.HALF_TOPIC: Delivery.HALF,
    properties.ROCKSDB_HALF_TOPIC: Delivery.HALF,
    properties.OPERATION_TOPIC: Delivery.OPERATION,
    properties.ROCKSDB_OPERATION_TOPIC: Delivery.OPERATION,
    properties.TRACE_TOPIC: Delivery.TRACE,
    SCHEDULE_TOPIC: Delivery.DELAYED,
    properties.TIMER_TOPIC: Delivery.TIMER,
}
VALID_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z", re.ASCII)
"""Names that brokers accept for a topic."""


def is_deletable(topic: str) -> bool:
    """True if a client can have created a topic of this name, and deleted it."""
    return VALID_NAME.match(topic) is not None and not is_broker_topic(topic)


def is_deleted(topic: str, whole_topics: frozenset[str] | None) -> bool:
    """True if a topic was deleted, as far as the configuration shows.

    Args:
        whole_topics: all topics that are configured; None where no whole configuration tells.
    """
    return whole_topics is not None and topic not in whole_topics and is_deletable(topic)


def may_be_deleted(topic: str, shown_topics: frozenset[str] | None) -> bool:
    """True if a topic may have been deleted, because the files that would show it cannot be read.

    Args:
        shown_topics: see `rmqtool.engine.queues.kinds`.
    """
    return shown_topics is not None and topic not in shown_topics and is_deletable(topic)


def is_broker_topic(topic: str) -> bool:
    """True if a topic is the broker's own, or a light queue, of which no file lists the names."""
    return topic in _OWN or topic.lower().startswith("rmq_sys_") or topic.startswith(LMQ_PREFIX)


def delivery_of(topic: str) -> Delivery:
    """What records in a topic are for.

    Broker: `TransactionalMessageBridge`, `ScheduleMessageService`, `TimerMessageStore`, `SendMessageProcessor`,
    `PopMessageProcessor`.
    """
    if topic.startswith(RETRY_PREFIX):
        return Delivery.RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return Delivery.DEAD_LETTER
    if topic.startswith(REVIVE_TOPIC):
        return Delivery.POP
    is_own = is_broker_topic(topic) and not topic.startswith(LMQ_PREFIX)
    return _DELIVERIES.get(topic, Delivery.SYSTEM if is_own else Delivery.NORMAL)


def is_broker_group(group: str) -> bool:
    """True if a group is the broker's own, or one of a light queue."""
    return group in _OWN_GROUPS or group.startswith(("CID_RMQ_SYS_", LMQ_PREFIX))


def is_kept_out(topic: str, patterns: Iterable[str]) -> bool:
    """True if a topic is one of those that a version keeps out of multi-dispatch; in patterns `*` is any text."""
    return any(fnmatchcase(topic, pattern) for pattern in patterns)

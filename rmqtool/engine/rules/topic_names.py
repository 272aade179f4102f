"""Names of topics: which ones can be created and deleted, and which are the broker's own.

Broker: `TopicConfigManager`'s constructor, `TopicValidator`, `AdminBrokerProcessor#deleteTopic`.
"""

from __future__ import annotations

import re
from typing import Final

from rmqtool.engine.rules.multi_dispatch import LMQ_PREFIX
from rmqtool.formats.properties import SCHEDULE_TOPIC

_OWN: Final = frozenset({SCHEDULE_TOPIC, "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT"})
VALID_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z", re.ASCII)
"""What brokers take for the name of a topic."""


def is_deletable(topic: str) -> bool:
    """Whether somebody can have created a topic of this name, and deleted it."""
    return VALID_NAME.match(topic) is not None and not is_broker_topic(topic)


def is_broker_topic(topic: str) -> bool:
    """Whether a topic is the broker's own, or a light queue, of which no file lists the names."""
    return topic in _OWN or topic.lower().startswith("rmq_sys_") or topic.startswith(LMQ_PREFIX)

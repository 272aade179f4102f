"""The topics and groups that a broker knows while clients send to it, and those that it makes on their first use.

Broker: `TopicConfigManager#init`, `#createTopicInSendMessageMethod`, `#createTopicInSendMessageBackMethod`,
`SubscriptionGroupManager#findSubscriptionGroupConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.engine.append.client_settings import ClientSettings
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import VALID_NAME
from rmqtool.errors import UnsupportedError
from rmqtool.formats import properties as names
from rmqtool.store.config.config_json import (
    BATCH_QUEUE,
    COMPACTION,
    ConfigFile,
    config_bytes,
    next_version,
    table_of,
    topic_entry,
)
from rmqtool.store.config.config_kinds import TOPICS

READ, WRITE, INHERIT = 4, 2, 1
MODEL_TOPIC: Final = "TBW102"
"""New topics are made after it."""
CLIENT_QUEUE_COUNT: Final = 4
"""Queues that a producer asks for (`DefaultMQProducer#defaultTopicQueueNums`)."""
RETRIES_MAX: Final = 16
_DEFAULT_QUEUES: Final = 16


@dataclass(frozen=True)
class SendTopic:
    """Attributes of a topic that a broker checks when a message arrives."""

    read_queue_count: int
    write_queue_count: int
    permission: int = READ | WRITE
    is_ordered: bool = False
    has_several_tags: bool = False
    is_batch: bool = False
    is_compacted: bool = False


@dataclass(frozen=True)
class Group:
    """Attributes of a group that a broker checks when its consumer sends a message back."""

    retry_queue_count: int = 1
    retries_max: int = RETRIES_MAX


class SendTopics:
    """Topics by name. A topic that is made is written to `config/topics.json` at once, as a broker does.

    What makes a topic raises UnsupportedError where topics are in RocksDB, and WriteError where it cannot be written.

    Args:
        config: `config/topics.json` as it was read.
        groups: `config/subscriptionGroup.json` as it was read.
        write: replaces a file of the store, by path.
    """

    def __init__(
        self,
        rules: BrokerRules,
        settings: ClientSettings,
        config: ConfigFile,
        groups: ConfigFile,
        write: Callable[[str, bytes], None],
    ) -> None:
        self._rules = rules
        self._settings = settings
        self._config = config
        self._value: Mapping[Any, Any] = config.value or {}
        self._write = write
        self.topics = _own_topics(rules, settings)
        self.topics |= {str(name): _topic(entry) for name, entry in table_of(config, "topicConfigTable").items()}
        self._groups = {}
        for name, row in table_of(groups, "subscriptionGroupTable").items():
            entry = row if isinstance(row, dict) else {}
            retries_max = _integer(entry, "retryMaxTimes", RETRIES_MAX)
            self._groups[str(name)] = Group(_integer(entry, "retryQueueNums", 1), retries_max)

    def create_for_send(self, topic: str) -> SendTopic | None:
        """Make a topic that a producer sent to, after the model; None where the model is not there to be inherited."""
        model = self.topics.get(MODEL_TOPIC)
        if model is None or not self._settings.creates_topics or not model.permission & INHERIT:
            return None
        queue_count = max(0, min(CLIENT_QUEUE_COUNT, model.write_queue_count))
        return self._create(topic, queue_count, model.permission & ~INHERIT)

    def find_or_create(self, topic: str, queue_count: int) -> SendTopic:
        """A retry or dead letter topic, or one of transactions, which a broker makes for itself."""
        return self.topics.get(topic) or self._create(topic, queue_count, READ | WRITE)

    def group(self, name: str) -> Group | None:
        """A group; one that nobody knew is made, if the broker makes groups of this name."""
        known = self._groups.get(name)
        if known is not None or not self._settings.creates_groups:
            return known
        limit = self._rules.group_length_max
        if limit is not None and not (name.strip() and VALID_NAME.match(name) and len(name) <= limit):
            return None
        return self._groups.setdefault(name, Group())

    def _create(self, topic: str, queue_count: int, permission: int) -> SendTopic:
        if self._config.is_database:
            raise UnsupportedError(
                f"{self._config.read_path}: the topics are in RocksDB, where rmqtool makes none; create {topic!r} with "
                "mqadmin updateTopic once the broker runs"
            )
        entry = topic_entry(topic, queue_count, {} if self._rules.batch_queues else None)
        entry["perm"] = permission
        table = self._value.get("topicConfigTable")
        self._value = {
            **self._value,
            "dataVersion": next_version(self._value.get("dataVersion")),
            "topicConfigTable": {**(table if isinstance(table, dict) else {}), topic: entry},
        }
        self._write(TOPICS, config_bytes(self._value, indent="\t"))
        created = self.topics[topic] = _topic(entry)
        return created


def _own_topics(rules: BrokerRules, settings: ClientSettings) -> dict[str, SendTopic]:
    """Topics that a broker has from its start, without those that clients cannot send to and that it never checks."""

    def named(has_own: bool, queue_count: int) -> SendTopic:
        return SendTopic(queue_count, queue_count, INHERIT | (READ | WRITE if has_own else 0))

    topics = {
        "BenchmarkTest": SendTopic(1024, 1024),
        settings.cluster: named(settings.has_cluster_topic, _DEFAULT_QUEUES),
        f"{settings.cluster}_REPLY_TOPIC": SendTopic(1, 1),
        names.SCHEDULE_TOPIC: SendTopic(18, 18),
        "SELF_TEST_TOPIC": SendTopic(1, 1),
        "OFFSET_MOVED_EVENT": SendTopic(1, 1),
    }
    if settings.broker is not None:
        topics[settings.broker] = named(settings.has_broker_topic, 1)
    if settings.creates_topics:
        count = settings.default_queue_count
        topics[MODEL_TOPIC] = SendTopic(count, count, READ | WRITE | INHERIT)
    if rules.pop:
        topics[f"rmq_sys_REVIVE_LOG_{settings.cluster}"] = SendTopic(8, 8)
    return topics


def _topic(entry: object) -> SendTopic:
    """An entry of `topics.json`; missing or malformed fields are as in a new `TopicConfig`."""
    entry = entry if isinstance(entry, dict) else {}
    attributes = entry.get("attributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    return SendTopic(
        _integer(entry, "readQueueNums", _DEFAULT_QUEUES),
        _integer(entry, "writeQueueNums", _DEFAULT_QUEUES),
        _integer(entry, "perm", READ | WRITE),
        entry.get("order") is True,
        entry.get("topicFilterType") == "MULTI_TAG",
        attributes.get("queue.type") == BATCH_QUEUE,
        attributes.get("cleanup.policy") == COMPACTION,
    )


def _integer(entry: Mapping[Any, Any], name: str, default: int) -> int:
    value = entry.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31 else default

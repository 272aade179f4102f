"""The topics that a store shows where its configuration does not tell whether others were deleted.

A broker deletes the queues of a topic and its entry in the configuration. Where that cannot be read and a topic has no
queue, one who sees only the log cannot tell a deletion from damage. Broker: `AdminBrokerProcessor#deleteTopic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rmqtool.engine.queues.kinds import queue_names
from rmqtool.engine.rules.topic_names import is_broker_group
from rmqtool.store.config.config_json import (
    GROUPS,
    OWN_TOPIC,
    TOPICS,
    ConfigFile,
    ConfigState,
    are_topics_lost,
    group_names,
    has_broker_config,
    named_topics,
    topics,
    whole_topics,
)
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import Store


def shown_topics(store: Store, configs: StoreConfigs | None = None) -> frozenset[str] | None:
    """The topics that have queues, or that the configuration names; None where nobody doubts the others.

    A copy is older than the file: a topic that it names may have been deleted after it.

    Nobody does where the configuration is whole, or no broker wrote one. Without a queue of any topic a start enters
    all messages again, deleted or not.

    Args:
        configs: its configuration files, where they may have been read.
    """
    with_queues = frozenset(topic for topic, _ in queue_names(store))
    configs = StoreConfigs(store.view) if configs is None else configs
    known = configs.of(TOPICS)[TOPICS] if with_queues else None
    if known is None or whole_topics(known) is not None:
        return None
    if known.state is ConfigState.READ:
        is_lost = known.is_database or is_of_broker(configs.of(TOPICS, GROUPS)) or has_broker_config(store.files)
    else:
        is_lost = known.state is not ConfigState.ABSENT or known.is_backup or are_topics_lost(store.files)
    own = replace(known, value=None) if known.is_backup else known
    return with_queues | named_topics(own) if is_lost else None


def is_of_broker(configs: Mapping[str, ConfigFile]) -> bool:
    """Whether a broker wrote the configuration: it has its own topic and groups in it, beside those of clients."""
    known = configs.get(TOPICS)
    groups = group_names(configs[GROUPS]) if GROUPS in configs else frozenset[str]()
    has_topics = known is not None and (known.is_database or OWN_TOPIC in topics(known))
    return has_topics or any(map(is_broker_group, groups))

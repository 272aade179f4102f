"""Topics that a person names and the store does not have, with the nearest names."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from rmqtool.report.names import nearest
from rmqtool.store.config.config_json import topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store


def known_topics(store: Store) -> tuple[str, ...]:
    """Topics with queues or in `topics.json`, sorted; the log may have messages of others."""
    from rmqtool.engine.queues.kinds import queue_names  # here, for most dumps name no topic and need no queue

    configured = topics(read_config(store.view, TOPICS))
    return tuple(sorted({*configured, *(topic for topic, _ in queue_names(store))}))


def absent_topics(stores: Iterable[Store], patterns: Iterable[str]) -> tuple[str, ...]:
    """What is asked for, by names or glob patterns, and exists in no store, as sentences."""
    known = sorted({topic for store in stores for topic in known_topics(store)})
    return tuple(
        f"there is no topic {pattern} in the store{nearest(pattern, known)}"
        for pattern in patterns
        if not any(fnmatch.fnmatchcase(topic, pattern) for topic in known)
    )

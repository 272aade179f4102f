"""Checks whether a broker's configuration has lost its topics; names of files tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rmqtool.store.config_json import TOPICS
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding

_GROUPS: Final = "config/subscriptionGroup.json"
_LIGHT: Final = "%LMQ%"


def lost_topics(store: Store) -> Iterator[Finding]:
    """The finding of a broker's configuration that has lost its topics: a broker writes them beside its groups."""
    paths = {entry.path for entry in store.files.get(FileKind.CONFIG, ())}
    if _GROUPS not in paths or {TOPICS, f"{TOPICS}.bak"} & paths or store.files.get(FileKind.CONFIG_ROCKSDB):
        return
    names = {topic for topic, _ in (*store.queues, *store.batch_queues) if not topic.startswith(_LIGHT)}
    if names:
        text = f"absent, and so is its copy: the settings and permissions of {len(names)} topics with queues are lost"
        yield finding("config.unreadable", TOPICS, text)

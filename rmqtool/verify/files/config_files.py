"""Checks the configuration: whether it is there, can be read, and what it says of queues that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from rmqtool.engine.queues.kinds import queue_names
from rmqtool.engine.rules.multi_dispatch import LMQ_PREFIX
from rmqtool.formats.queue_name import QueueKey, topic_text
from rmqtool.store.config.config_json import (
    DELAY_OFFSETS,
    STORED,
    TOPICS,
    ConfigFile,
    ConfigState,
    are_topics_lost,
    topics,
)
from rmqtool.store.config.read_config import read_configs
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.catalog.finding import REBUILD_DELAYS, REBUILD_TOPICS, Finding
from rmqtool.verify.catalog.registry import finding
from rmqtool.verify.files.consumers import consumer_findings
from rmqtool.verify.survey.context import QueueEnd, VerifyContext
from rmqtool.verify.survey.result import SplitResult

if TYPE_CHECKING:
    from rmqtool.verify.survey.queue_map import QueueMap


_REPAIRS: Final = {DELAY_OFFSETS: REBUILD_DELAYS, TOPICS: REBUILD_TOPICS}
CREATED_TOPICS_ONLY: Final = "config/rdb"
"""A database without the topics that every broker creates for itself."""
SYSTEM_TOPICS: Final = ("rmq_sys_", "schedule_topic_xxxx", "%retry%", "%dlq%")


def read_store_configs(store: Store) -> dict[str, ConfigFile]:
    """All JSON files of the configuration that are there, or of which a copy or a database of RocksDB is."""
    paths = set(STORED) if store.files.get(FileKind.CONFIG_ROCKSDB) else set()
    paths |= {entry.path.removesuffix(".tmp").removesuffix(".bak") for entry in store.files.get(FileKind.CONFIG, ())}
    return read_configs(store.view, sorted(path for path in paths if path.endswith(".json")))


def config_findings(
    context: VerifyContext, configs: Mapping[str, ConfigFile], log: SplitResult | None
) -> Iterator[Finding]:
    """What only a backup has, and what contradicts the queues.

    Args:
        log: the merged result of all splits, which knows of messages that are in no queue yet; None where not all of
            the log was scanned.
    """
    queues = context.queues
    for path, config in configs.items():
        if config.state is not ConfigState.READ and config.is_backup:
            yield finding("config.backup-better", path, f"{config.state.value}, its backup can be read")
    yield from consumer_findings(context, configs, queue_ends(queues, log), is_whole=log is not None)
    known = configs.get(TOPICS)
    if known is not None and known.value is not None:
        names = topics(known)
        place = known.read_path or TOPICS
        for topic in sorted({topic_text(name) for name, _ in queues} - set(names)):
            is_own = place == CREATED_TOPICS_ONLY and topic.lower().startswith(SYSTEM_TOPICS)
            if not (topic.startswith(LMQ_PREFIX) or is_own):
                text = f"{place} does not contain it"
                yield finding("config.queue-without-topic", f"consumequeue/{topic}", text, topic=topic)
        for topic in sorted({topic_text(name) for name, _ in context.batch_queues} - set(names)):
            text = f"{place} does not contain it, so that a broker expects no batch queues"
            yield finding("config.batch-queue-without-topic", f"batchconsumequeue/{topic}", text, topic=topic)


def queue_ends(queues: Mapping[QueueKey, QueueMap], log: SplitResult | None) -> QueueEnd:
    """What tells the end of a plain queue, once what the log has for it is dispatched; None where there is no queue."""
    missing_ends: dict[QueueKey, int] = {}
    for topic, queue_id, is_batch, first, count, *_ in log.missing if log is not None else ():
        if not is_batch:
            missing_ends[topic, queue_id] = max(missing_ends.get((topic, queue_id), 0), first + count)

    def end_of(name: QueueKey) -> int | None:
        queue, missing_end = queues.get(name), missing_ends.get(name)
        return missing_end if queue is None else max(queue.end, missing_end or 0)

    return end_of


def lost_configs(store: Store, configs: Mapping[str, ConfigFile]) -> Iterator[Finding]:
    """Files of a broker's configuration that neither they nor their copies can be read from."""
    yield from _lost_topics(store)
    for path, config in configs.items():
        if config.state not in (ConfigState.READ, ConfigState.ABSENT) and not config.is_backup:
            repair = None if config.is_database else _REPAIRS.get(path)
            text = "; ".join(config.problems) or config.state.value
            yield finding("config.unreadable", config.read_path or path, text, repair=repair)


def _lost_topics(store: Store) -> Iterator[Finding]:
    """The finding of a broker's configuration that has lost its topics."""
    names = {topic for topic, _ in queue_names(store) if not topic.startswith(LMQ_PREFIX)}
    if names and are_topics_lost(store.files):
        text = f"absent, and so is its copy: the settings and permissions of {len(names)} topics with queues are lost"
        yield finding("config.topics-missing", TOPICS, text)

"""Checks the configuration: whether it is there, can be read, and what it says of queues that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rmqtool.formats.queue_name import QueueKey, topic_text
from rmqtool.store.config.config_json import (
    STORED,
    TOPICS,
    ConfigFile,
    ConfigState,
    topics,
)
from rmqtool.store.config.read_config import read_configs
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding
from rmqtool.verify.files.consumers import consumer_findings
from rmqtool.verify.survey.context import QueueEnd, VerifyContext
from rmqtool.verify.survey.result import SplitResult

if TYPE_CHECKING:
    from rmqtool.verify.survey.queue_map import QueueMap


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
        names, place = topics(known), known.read_path or TOPICS
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

"""Checks the configuration: presence, readability, and agreement with the existing queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.findings.finding import Finding
from rmqtool.findings.registry import finding
from rmqtool.formats.queue_name import QueueKey, queue_key, topic_text
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.config.config_json import (
    ConfigFile,
    ConfigState,
    blocked_offsets,
    consumer_offsets,
    group_names,
    topics,
)
from rmqtool.store.config.config_kinds import (
    CONSUMER_OFFSETS,
    GROUPS,
    LMQ_CONSUMER_OFFSETS,
    ORDERED_CONSUMPTION,
    STORED,
    TOPICS,
)
from rmqtool.store.config.read_config import read_configs
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.survey.context import QueueEnd, VerifyContext
from rmqtool.verify.survey.result import SplitResult

if TYPE_CHECKING:
    from rmqtool.verify.survey.queue_map import QueueMap

_OWN_GROUPS: Final = "CID_RMQ_SYS_"
"""Prefix of the names of a broker's own groups; it creates them when it needs them."""


def read_store_configs(store: Store) -> dict[str, ConfigFile]:
    """All JSON files of the configuration that are there, or of which a copy or a database of RocksDB is."""
    paths = set(STORED) if store.files.get(FileKind.CONFIG_ROCKSDB) else set()
    paths |= {entry.path.removesuffix(".tmp").removesuffix(".bak") for entry in store.files.get(FileKind.CONFIG, ())}
    return read_configs(store.view, sorted(path for path in paths if path.endswith(".json")))


def config_findings(
    context: VerifyContext, configs: Mapping[str, ConfigFile], log: SplitResult | None
) -> Iterator[Finding]:
    """Findings about configuration that only a backup has, or that contradicts the queues; the merged result of all
    splits knows of messages that are in no queue yet, where all of the log was scanned.
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
    """A function for the end of a plain queue once the log is dispatched; it returns None where there is no queue."""
    missing_ends: dict[QueueKey, int] = {}
    for topic, queue_id, is_batch, first, count, *_ in log.missing if log is not None else ():
        if not is_batch:
            missing_ends[topic, queue_id] = max(missing_ends.get((topic, queue_id), 0), first + count)

    def end_of(name: QueueKey) -> int | None:
        queue, missing_end = queues.get(name), missing_ends.get(name)
        return missing_end if queue is None else max(queue.end, missing_end or 0)

    return end_of


def consumer_findings(
    context: VerifyContext, configs: Mapping[str, ConfigFile], end_of: QueueEnd, *, is_whole: bool
) -> Iterator[Finding]:
    """Findings about the offsets of consumer groups, their groups, and the queues that their members block. `end_of` is
    None where there is no queue, which has no message if all of the log was scanned.
    """
    known, groups = configs.get(TOPICS), configs.get(GROUPS)
    names = frozenset(topics(known)) if known is not None and known.value is not None else None
    log_start, batch_queues = context.store.log_start, frozenset(context.batch_queues)

    @cache
    def begin_of(name: QueueKey) -> int | None:
        """First unit that leads into the log, or the end where all lead below it; None without a unit."""
        queue = context.queues.get(name)
        if queue is None:
            return None
        count, first = queue.count_in(context.open_file, log_start, JAVA_LONG_MAX)
        if count:
            return first
        return queue.end if queue.count_in(context.open_file, -1, log_start)[0] else None

    for path in (CONSUMER_OFFSETS, LMQ_CONSUMER_OFFSETS):
        config = configs.get(path)
        if config is None:
            continue
        offsets = consumer_offsets(config)
        place = config.read_path or path
        without_settings: dict[str, list[str]] = {}
        """The topics of groups that have offsets and no settings."""
        group_settings = group_names(groups) if groups is not None and groups.state is ConfigState.READ else None
        for (topic, group), by_queue in sorted(offsets.items()):
            before, missing = [], []
            for queue_id, queue_offset in sorted(by_queue.items()):
                name = queue_key(topic, queue_id)
                end = end_of(name)
                if end is None:
                    if queue_offset > 0 and name not in batch_queues:
                        missing.append(queue_id)
                elif queue_offset > end:
                    yield finding(
                        "config.consumer-offset-beyond-queue",
                        place,
                        f"group {group} is at {queue_offset}, past the end of the queue at {end}",
                        topic=topic,
                        queue_id=queue_id,
                        queue_offset=queue_offset,
                        expected=f"at most {end}",
                        found=str(queue_offset),
                    )
                elif queue_offset >= 0 and not group.startswith(_OWN_GROUPS):
                    begin = begin_of(name)
                    if begin is not None and queue_offset < begin:
                        before.append((queue_id, queue_offset, begin))
            if before:
                queue_id, queue_offset, begin = before[0]
                count = sum(first - at for _, at, first in before)
                yield finding(
                    "config.consumer-offset-before-queue",
                    place,
                    f"{count} messages were deleted before group {group} received them; queue {queue_id} begins at "
                    f"{begin}",
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    count=len(before),
                    expected=f"at least {begin}",
                )
            if missing and is_whole:
                is_known = names is None or topic in names or topic.startswith(LMQ_PREFIX)
                what = "a queue that is not there" if is_known else "a topic that does not exist"
                yield finding(
                    "config.consumer-offset-without-queue" if is_known else "config.consumer-offset-without-topic",
                    place,
                    f"group {group} has consumed messages of {what}",
                    topic=topic,
                    queue_id=missing[0],
                    queue_offset=by_queue[missing[0]],
                    count=len(missing),
                )
            is_own = group.startswith((_OWN_GROUPS, LMQ_PREFIX))
            if group_settings is not None and group not in group_settings and not is_own:
                without_settings.setdefault(group, []).append(topic)
        for group, of_group in without_settings.items():
            text = f"group {group} has offsets, and {GROUPS} does not contain it"
            yield finding("config.consumer-offset-without-group", place, text, topic=of_group[0], count=len(of_group))
    config, other = configs.get(CONSUMER_OFFSETS), configs.get(LMQ_CONSUMER_OFFSETS)
    if config is not None and other is not None and config.value is not None and other.value is not None:
        # The broker's setting says which of the two files it reads.
        ours, theirs = consumer_offsets(config), consumer_offsets(other)
        differing = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        if differing:
            text = f"{len(differing)} groups of topics have other offsets in it than in {CONSUMER_OFFSETS}"
            topic = differing[0][0]
            yield finding("config.two-offset-files", LMQ_CONSUMER_OFFSETS, text, count=len(differing), topic=topic)
    ordered = configs.get(ORDERED_CONSUMPTION)
    if ordered is None:
        return
    for (topic, group), held_by_queue in sorted(blocked_offsets(ordered).items()):
        for queue_id, held in sorted(held_by_queue.items()):
            end = end_of(queue_key(topic, queue_id))
            if end is not None and max(held) >= end:  # a message that consumers hold in order
                yield finding(
                    "config.ordered-message-beyond-queue",
                    ordered.read_path or ordered.path,
                    f"group {group} holds message {max(held)}, and the queue ends at {end}",
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=max(held),
                    expected=f"below {end}",
                )

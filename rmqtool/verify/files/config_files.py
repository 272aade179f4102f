"""Checks the configuration: whether it is there, can be read, and what it says of queues that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from rmqtool.engine.rules.topic_names import LMQ_PREFIX
from rmqtool.formats.queue_name import QueueKey, queue_key, topic_text
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.config.config_json import (
    CONSUMER_OFFSETS,
    GROUPS,
    LMQ_CONSUMER_OFFSETS,
    ORDERED_CONSUMPTION,
    STORED,
    TOPICS,
    ConfigFile,
    ConfigState,
    blocked_offsets,
    consumer_offsets,
    group_names,
    topics,
)
from rmqtool.store.config.read_config import read_configs
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import finding
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


# Checks what consumer groups have in the configuration: offsets and blocked queues against queues, topics and groups.


_OWN_GROUPS: Final = "CID_RMQ_SYS_"
"""What the names of a broker's own groups begin with; it creates them when it needs them."""
Offsets = Mapping[tuple[str, str], Mapping[int, int]]


@dataclass(frozen=True)
class _Queues:
    """What the offsets are compared with.

    Attributes:
        end_of: end of a plain queue; None where there is no queue.
        begin_of: queue offset of the first unit that leads into the log, or the end where all lead below it; None where
            there is no unit.
        known: names of the topics that are configured; None where nobody knows.
        others: queues of batches, whose offsets are not compared.
    """

    end_of: QueueEnd
    begin_of: Callable[[QueueKey], int | None]
    known: frozenset[str] | None
    others: frozenset[QueueKey]


def consumer_findings(
    context: VerifyContext, configs: Mapping[str, ConfigFile], end_of: QueueEnd, *, is_whole: bool
) -> Iterator[Finding]:
    """Findings about the offsets of consumer groups, their groups, and the queues that their members block.

    Args:
        end_of: end of a plain queue; None where there is no queue.
        is_whole: whether all of the log was scanned, so that a queue that is not there has no message.
    """
    known = configs.get(TOPICS)
    names = frozenset(topics(known)) if known is not None and known.value is not None else None
    queues = _Queues(end_of, _begins(context), names, frozenset(context.batch_queues))
    groups = configs.get(GROUPS)
    for path in (CONSUMER_OFFSETS, LMQ_CONSUMER_OFFSETS):
        config = configs.get(path)
        if config is None:
            continue
        offsets = consumer_offsets(config)
        place = config.read_path or path
        for (topic, group), by_queue in sorted(offsets.items()):
            yield from _against_queues(place, topic, group, by_queue, queues, is_whole=is_whole)
        if groups is not None and groups.state is ConfigState.READ:
            yield from _without_group(place, offsets, group_names(groups))
    yield from _of_other_file(configs)
    ordered = configs.get(ORDERED_CONSUMPTION)
    if ordered is not None:
        yield from _blocked(ordered, queues)


def _begins(context: VerifyContext) -> Callable[[QueueKey], int | None]:
    minimum = context.store.log_start

    @cache
    def begin_of(name: QueueKey) -> int | None:
        queue = context.queues.get(name)
        if queue is None:
            return None
        count, first = queue.count_in(context.open_file, minimum, JAVA_LONG_MAX)
        if count:
            return first
        return queue.end if queue.count_in(context.open_file, -1, minimum)[0] else None

    return begin_of


def _against_queues(
    place: str, topic: str, group: str, by_queue: Mapping[int, int], queues: _Queues, *, is_whole: bool
) -> Iterator[Finding]:
    """The offsets of one group in one topic; those before a queue or without one in one finding each."""
    before, missing = [], []
    for queue_id, queue_offset in sorted(by_queue.items()):
        name = queue_key(topic, queue_id)
        end = queues.end_of(name)
        if end is None:
            missing += [queue_id] if queue_offset > 0 and name not in queues.others else []
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
            begin = queues.begin_of(name)
            before += [(queue_id, queue_offset, begin)] if begin is not None and queue_offset < begin else []
    if before:
        queue_id, queue_offset, begin = before[0]
        count = sum(first - at for _, at, first in before)
        yield finding(
            "config.consumer-offset-before-queue",
            place,
            f"{count} messages were deleted before group {group} received them; queue {queue_id} begins at {begin}",
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            count=len(before),
            expected=f"at least {begin}",
        )
    if missing and is_whole:
        is_known = queues.known is None or topic in queues.known or topic.startswith(LMQ_PREFIX)
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


def _without_group(place: str, by_name: Offsets, known: frozenset[str]) -> Iterator[Finding]:
    """Groups that have offsets and no settings."""
    by_group: dict[str, list[str]] = {}
    for topic, group in sorted(by_name):
        if group not in known and not group.startswith((_OWN_GROUPS, LMQ_PREFIX)):
            by_group.setdefault(group, []).append(topic)
    for group, names in by_group.items():
        text = f"group {group} has offsets, and {GROUPS} does not contain it"
        yield finding("config.consumer-offset-without-group", place, text, topic=names[0], count=len(names))


def _of_other_file(configs: Mapping[str, ConfigFile]) -> Iterator[Finding]:
    """Groups whose offsets in the two files differ: the broker's setting says which file it reads."""
    config, other = configs.get(CONSUMER_OFFSETS), configs.get(LMQ_CONSUMER_OFFSETS)
    if config is None or other is None or config.value is None or other.value is None:
        return
    ours, theirs = consumer_offsets(config), consumer_offsets(other)
    names = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    if names:
        text = f"{len(names)} groups of topics have other offsets in it than in {CONSUMER_OFFSETS}"
        yield finding("config.two-offset-files", LMQ_CONSUMER_OFFSETS, text, count=len(names), topic=names[0][0])


def _blocked(config: ConfigFile, queues: _Queues) -> Iterator[Finding]:
    """Messages that consumers hold in order, past the end of their queue."""
    for (topic, group), by_queue in sorted(blocked_offsets(config).items()):
        for queue_id, held in sorted(by_queue.items()):
            end = queues.end_of(queue_key(topic, queue_id))
            if end is not None and max(held) >= end:
                yield finding(
                    "config.ordered-message-beyond-queue",
                    config.read_path or config.path,
                    f"group {group} holds message {max(held)}, and the queue ends at {end}",
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=max(held),
                    expected=f"below {end}",
                )

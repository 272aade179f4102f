"""Finds what a broker's configuration has lost: topics that have queues, the progress of consumers, their groups.

Broker: `ConfigManager#load`, `TopicConfigManager`, `ConsumerOffsetManager`, `SubscriptionGroupManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from rmqtool.engine.queues.kinds import is_of_broker, queue_names
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import (
    DEAD_LETTER_PREFIX,
    LMQ_PREFIX,
    RETRY_PREFIX,
    is_broker_group,
    is_broker_topic,
)
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.findings.finding import REBUILD_TOPICS, RECOVER, Finding, Severity
from rmqtool.findings.registry import finding
from rmqtool.report.text import counted
from rmqtool.store.config.config_json import (
    ConfigFile,
    ConfigState,
    are_topics_lost,
    changed_at,
    consumer_offsets,
    group_names,
    misnamed_topics,
    topics,
    whole_topics,
)
from rmqtool.store.config.config_kinds import (
    CONFIG_KINDS,
    CONSUMER_FILTERS,
    CONSUMER_OFFSETS,
    GROUPS,
    LMQ_CONSUMER_OFFSETS,
    TOPICS,
)
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.verify.files.config_files import read_store_configs

_REPAIRS: Final = {kind.path: kind.rebuild for kind in CONFIG_KINDS if kind.rebuild is not None}
CREATED_TOPICS_ONLY: Final = "config/rdb"
"""A database without the topics that every broker creates for itself."""
LAG_MS: Final = 60_000
"""By so much messages may be newer than the topics of a slave: it asks its master for them every ten seconds."""
NAMED_MAX: Final = 5
"""Groups that a finding names."""


def lost_configs(
    store: Store, rules: BrokerRules, configs: Mapping[str, ConfigFile] | None = None
) -> Iterator[Finding]:
    """Configuration that cannot be read, or that lacks entries though the store shows them; all files of it are read if
    they are not given.
    """
    configs = read_store_configs(store) if configs is None else configs
    missing = [*_lost_offsets(store, rules, configs), *_lost_groups(configs)] if is_of_broker(configs) else []
    yield from missing
    for path, config in configs.items():
        is_absent = config.state is ConfigState.ABSENT and not config.is_backup_broken
        is_told = any(one.file == path for one in missing)
        if config.state is not ConfigState.READ and not is_absent and not config.is_backup and not is_told:
            blocks = RECOVER if config.is_backup_broken else None
            repair = None if config.is_database else _REPAIRS.get(path, blocks)
            text = "; ".join(config.problems) or config.state.value
            yield finding("config.unreadable", config.read_path or path, text, repair=repair)
    known = configs.get(TOPICS)
    # Clients find no topic under such an entry; in RocksDB a broker names them itself.
    if known is not None and not known.is_database:
        for topic, name in misnamed_topics(known).items():
            text = f"the entry of topic {topic} has {'no topicName' if name is None else f'the topicName {name}'}"
            yield finding("config.topic-misnamed", known.read_path or TOPICS, text, topic=topic)
    names = {topic for topic, _ in queue_names(store) if not topic.startswith(LMQ_PREFIX)}
    if names and are_topics_lost(store.files):
        of_topics = "1 topic with queues" if len(names) == 1 else f"{len(names)} topics with queues"
        text = f"absent, and so is its copy: the settings and permissions of {of_topics} are lost"
        yield finding("config.topics-missing", TOPICS, text)
    elif known is not None:
        findings = _topics_without_entry(store, rules, known, configs)
        yield from (one for one in findings if one.severity is not Severity.NOTE)


def topics_of_nobody(store: Store, rules: BrokerRules, configs: Mapping[str, ConfigFile]) -> Iterator[Finding]:
    """The topics without an entry of which nothing shows a loss: notes.

    After a deletion a start enters the messages again of which the units are gone, and the topic has queues once more.
    """
    if (known := configs.get(TOPICS)) is not None:
        findings = _topics_without_entry(store, rules, known, configs)
        yield from (one for one in findings if one.severity is Severity.NOTE)


def topics_without_entry(store: Store, known: ConfigFile) -> list[str]:
    """Topics that have plain queues and no entry, but for those of which no client needs one.

    A consumer makes the topic for its retries when it connects, and the broker makes its own topics at each start.
    """
    names = {topic for topic, _ in queue_names(store)} - {topic for topic, _ in store.batch_queues}
    names -= topics(known).keys()
    own = (RETRY_PREFIX, DEAD_LETTER_PREFIX) if known.read_path == CREATED_TOPICS_ONLY else (RETRY_PREFIX,)
    return sorted(topic for topic in names if not (is_broker_topic(topic) or topic.startswith(own)))


def _topics_without_entry(
    store: Store, rules: BrokerRules, known: ConfigFile, configs: Mapping[str, ConfigFile]
) -> Iterator[Finding]:
    """Findings about topics without an entry: no more than a note where somebody may have deleted the topic.

    One was lost where a broker wrote the configuration and what is left is not whole, and where a message was stored
    after the last change of the file, which a deletion is. A clock that was set back can look like the latter, so that
    a person decides.
    """
    if known.value is None:
        return
    place = known.read_path or TOPICS
    names = topics_without_entry(store, known)
    by_topic = _messages_by_topic(store, rules, names)
    is_whole = whole_topics(known) is not None
    changed_ms = changed_at(known) if is_whole else None
    newest_ms = _newest_by_topic(store, rules, names) if changed_ms is not None else {}
    copy = read_config(store.view, f"{TOPICS}.bak")
    in_copy = topics(copy) if known.state is ConfigState.READ and copy.state is ConfigState.READ else {}
    for topic, count in by_topic.items():
        if is_whole and not count:
            continue
        text = f"{place} does not contain it, and clients get no route to its {counted(count, 'message')}"
        if known.is_backup:
            text += f"; {TOPICS} is {known.state.value}, so the topic may be newer than the backup"
        elif is_whole:
            add = "mqadmin updateTopic" if known.is_database else "rebuild --topic"
            text += f"; it was deleted, or the file is older than it: then {add} adds it"
        if topic in in_copy:
            text += f"; {TOPICS}.bak contains it"
        is_older = changed_ms is not None and newest_ms.get(topic, 0) - changed_ms > LAG_MS
        if is_older:
            text += f"; it was changed at {changed_ms}, and a message of the topic was stored at {newest_ms[topic]}"
        shows_loss = is_older or (not is_whole and is_of_broker(configs))
        repair = None if known.is_database or is_whole or not shows_loss else REBUILD_TOPICS
        name = f"consumequeue/{topic}"
        one = finding("config.queue-without-topic", name, text, topic=topic, count=max(1, count), repair=repair)
        yield one if shows_loss else replace(one, severity=Severity.NOTE)


def _lost_offsets(store: Store, rules: BrokerRules, configs: Mapping[str, ConfigFile]) -> Iterator[Finding]:
    """Finding that the progress of the consumers is lost, where the store shows that there were some.

    Broker: `BrokerController`, which makes a `LmqConsumerOffsetManager` with `enableLmq=true`.
    """
    config = configs.get(CONSUMER_OFFSETS) or read_config(store.view, CONSUMER_OFFSETS)
    other = configs.get(LMQ_CONSUMER_OFFSETS)
    by_group, in_copy = (consumer_offsets(other) if other is not None else {}), set[tuple[str, str]]()
    has_light_queues = store.settings.has_light_queues
    is_file_read = has_light_queues is False or (has_light_queues is None and store.settings.defaults_hold)
    reads_other = config.state is ConfigState.ABSENT and other is not None and not is_file_read
    if reads_other and not all(is_broker_group(group) for _, group in by_group):
        return  # with `enableLmq=true` a broker has this file only
    configured = group_names(configs[GROUPS]) if GROUPS in configs else frozenset[str]()
    if config.state is ConfigState.READ or config.is_backup or config.is_database:
        known = {group for _, group in consumer_offsets(config) if not is_broker_group(group)}
        groups = set[str]() if known else _groups_with_retries(store, rules, configured)
        copy = read_config(store.view, f"{CONSUMER_OFFSETS}.bak")
        if not known and not config.is_backup and copy.state is ConfigState.READ:
            # With a topic that is deleted, brokers since 5.0 delete its offsets.
            whole = whole_topics(configs[TOPICS]) if TOPICS in configs else None
            in_copy = {(topic, group) for topic, group in consumer_offsets(copy) if whole is None or topic in whole}
            groups |= {group for _, group in in_copy}
        text = "contains no offset of a consumer group"
    elif reads_other:
        groups = _groups_with_retries(store, rules, configured)
        text = f"absent, and {LMQ_CONSUMER_OFFSETS} contains no offset of a consumer group"
    elif config.state is not ConfigState.UNREADABLE and not config.is_backup_broken:
        groups = _groups_with_retries(store, rules, configured)
        if config.state is not ConfigState.ABSENT or CONSUMER_FILTERS in configs:
            groups |= configured  # a broker that runs for less than ten seconds has written neither of the two files
        text = f"{config.state.value}, and so is its copy"
    else:
        return
    groups = {group for group in groups if not is_broker_group(group)}
    if not groups:
        return
    names = sorted({topic for topic, _ in queue_names(store) if not (is_broker_topic(topic) or topic.startswith("%"))})
    by_topic = _messages_by_topic(store, rules, names)
    count = sum(by_topic.values())
    named = ", ".join(sorted(groups)[:NAMED_MAX]) + ("" if len(groups) <= NAMED_MAX else ", ...")
    text += (
        f": the progress of {counted(len(groups), 'consumer group')} ({named}) is lost, and each skips or gets again "
        f"up to {counted(count, 'message')}"
    )
    shown = {group for _, group in by_group} & groups
    if shown:
        text += f"; {LMQ_CONSUMER_OFFSETS} has offsets of {counted(len(shown), 'group')}"
    of_group: Counter[str] = Counter()
    for topic, group in {*by_group, *in_copy}:
        of_group[group] += by_topic.get(topic, 0) if group in groups else 0
    if told := [f"{group} {number}" for group, number in sorted(of_group.items()) if number]:
        text += f"; messages of the topics of which other files have offsets: {', '.join(told[:NAMED_MAX])}"
        text += "" if len(told) <= NAMED_MAX else ", ..."
    yield finding("config.consumer-offsets-missing", CONSUMER_OFFSETS, text, count=len(groups))


def _lost_groups(configs: Mapping[str, ConfigFile]) -> Iterator[Finding]:
    """Finding that settings of consumer groups are lost: each group that has offsets was configured."""
    groups, offsets = configs.get(GROUPS), configs.get(CONSUMER_OFFSETS)
    is_there = groups is not None and (groups.value is not None or groups.is_backup_broken)
    if is_there or offsets is None:
        return
    names = {group for _, group in consumer_offsets(offsets) if not is_broker_group(group)}
    if names:
        state = ConfigState.ABSENT if groups is None else groups.state
        named = ", ".join(sorted(names)[:NAMED_MAX]) + ("" if len(names) <= NAMED_MAX else ", ...")
        text = f"{state.value}, and so is its copy: the settings of {counted(len(names), 'consumer group')} ({named})"
        yield finding("config.groups-missing", GROUPS, f"{text} are lost", count=len(names))


def _groups_with_retries(store: Store, rules: BrokerRules, configured: Collection[str]) -> set[str]:
    """Groups that failed to consume a message: a broker has put it into a topic that is named for them.

    A pop consumer's is named for its topic too.
    """
    names = {topic for topic, _ in queue_names(store) if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))}
    by_topic = _messages_by_topic(store, rules, sorted(names))
    used = [topic for topic, count in by_topic.items() if count]
    owners = {topic.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX) for topic in used}
    named = {group for group in configured for owner in owners if owner.startswith(group)}
    return named | {owner for owner in owners if not any(owner.startswith(group) for group in named)}


def _newest_by_topic(store: Store, rules: BrokerRules, names: Collection[str]) -> dict[str, int]:
    """Store time of the last message of topics, in ms, as far as their queues can be read."""
    newest: dict[str, int] = {}
    with suppress(UnreadableError, UnsupportedError), open_reader(store, rules, quickly=True) as reader:
        for name in queue_names(store):
            place = reader.queue(*name).last_record() if name[0] in names else None
            message = reader.message_at(place[0]) if place is not None else None
            record = message.record if message is not None else None
            if record is not None and record.topic == name[0] and record.body_crc_ok:
                newest[name[0]] = max(record.store_timestamp_ms, newest.get(name[0], 0))
    return newest


def _messages_by_topic(store: Store, rules: BrokerRules, names: Collection[str]) -> dict[str, int]:
    counts = dict.fromkeys(names, 0)
    queues = [(topic, queue_id) for topic, queue_id in queue_names(store) if topic in counts]
    if queues:
        # What cannot be read has a finding of its own.
        with suppress(UnreadableError, UnsupportedError), open_reader(store, rules, quickly=True) as reader:
            for topic, queue_id in queues:
                queue = reader.queue(topic, queue_id)
                counts[topic] += max(0, queue.max_queue_offset - max(0, queue.min_queue_offset))
    return counts

"""Plans `config/topics.json` again: topics that have queues in the store and are missing in the file are added to it.

What a store does not hold is a guess, and each guess is a note: the permission, and the number of queues, for a queue
without a message has no file. Broker: `TopicConfigManager#load`; the type is that of `TopicMessageType`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from rmqtool.engine.queues.kinds import queue_names
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.record import Record
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import is_broker_topic
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.formats.properties import REAL_TOPIC, SHARDING_KEY, TIMER_OUT_MS
from rmqtool.formats.system_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from rmqtool.repair.machine.plan import PlannedRepair, view_over
from rmqtool.repair.machine.steps import create_file, replace_file
from rmqtool.store.config import config_json
from rmqtool.store.config.config_json import ConfigFile, ConfigState
from rmqtool.store.config.config_kinds import CONSUMER_OFFSETS, TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store, survey
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import Literal

QUEUE_ID_MAX: Final = 65_535
"""A larger one is no topic's: its number of queues would keep every client busy."""
QUEUES_READ, MESSAGES_READ = 16, 8
"""Of each topic, and of each of these queues: the newest messages, which show the type."""
_WHY: Final = "adds the topics that have queues and are missing in it"
_PROPERTY_OF_TYPE: Final = ((REAL_TOPIC, "DELAY"), (TIMER_OUT_MS, "DELAY"), (SHARDING_KEY, "FIFO"))
_NORMAL: Final = "NORMAL"


def plan_topics(store: Store, rules: BrokerRules, restored: frozenset[str] | None = frozenset()) -> PlannedRepair:
    """Find the topics that are missing; a step where there are some.

    A whole file lacks a topic because somebody deleted it, as far as anything shows: it is added for a person who wants
    it, or where batch queues keep a broker from starting without it.

    Args:
        restored: topics that a person wants back; None: all of them.

    Raises:
        UnsupportedError: the topics are in RocksDB, or there are no queues, or they are in RocksDB and the library
            that reads it is missing.
    """
    config = read_config(store.view, TOPICS)
    if config.is_database:
        text = "rmqtool does not change it: create the topics with mqadmin updateTopic once the broker runs"
        raise UnsupportedError(f"{config.read_path}: the topics are in RocksDB, and {text}")
    if config.state is ConfigState.UNREADABLE:
        raise UnreadableError("; ".join(config.problems))
    value, named = _with_right_entries(config)
    table = config_json.table_of(replace(config, value=value), "topicConfigTable")
    known, whole = config_json.topics(replace(config, value=value)), config_json.whole_topics(config)
    compacted = {entry.path.split("/")[2] for entry in store.files.get(FileKind.COMPACTION_LOG, ())}
    needed = {topic for topic, _ in store.batch_queues} if rules.batch_queues else set[str]()
    entries, notes = dict[str, Any](), list(named)
    with open_reader(store, rules) as reader:
        for topic, queue_ids in _queues_by_topic(reader, known):
            if whole is not None and restored is not None and topic not in {*needed, *restored}:
                notes.append(
                    f"topic {topic}: not added, for {config.read_path} is whole; rebuild --topic with its name adds it"
                )
                continue
            count = max(queue_ids) + 1
            attributes, note = _attributes(reader, topic, queue_ids, compacted) if rules.batch_queues else (None, "")
            entries[topic] = config_json.topic_entry(topic, count, attributes)
            queues = "1 queue" if count == 1 else f"{count} queues"
            notes.append(f"topic {topic}: guessed {queues} (the highest queue id is {count - 1}), perm 6{note}")
        if not reader.queues():
            raise UnsupportedError(
                "the store has no consume queues, which show the topics: run rmqtool recover first, then rebuild the "
                "topics"
            )
    if not entries and not named:
        return PlannedRepair(notes=tuple(notes) or (f"{config.read_path} has all topics that have queues",))
    if entries:
        notes.append("correct a guess with mqadmin updateTopic or updateTopicPerm once the broker runs")
    content = {
        **value,
        "dataVersion": config_json.next_version(value.get("dataVersion")),
        "topicConfigTable": {**table, **entries},
    }
    make = create_file if config.state is ConfigState.ABSENT else replace_file
    why = _WHY if entries else "corrects its entries"
    step = make(store.view, TOPICS, Literal(config_json.config_bytes(content)), why)
    return PlannedRepair((step,), tuple(notes))


def _with_right_entries(config: ConfigFile) -> tuple[dict[Any, Any], list[str]]:
    """Entries of a topics file, each with its key as its name, and a note for each that was not right.

    Of a file that a broker refuses because of some entries, the others are newer than the copy.
    """
    sound, value = config_json.sound_entries(config), dict(config.value or config.refused or {})
    value["topicConfigTable"] = table = {**config_json.table_of(config, "topicConfigTable"), **sound}
    notes = []
    if config.refused is not None:
        refused = replace(config, value=None)
        of_sound = replace(refused, refused={"topicConfigTable": sound})
        odd = config_json.named_topics(refused) - config_json.named_topics(of_sound)
        notes = [f"topic {topic}: its entry is not that of a topic" for topic in sorted(odd)]
        notes.append(f"the other entries of the file stay: {len(sound)}")
    misnamed = config_json.misnamed_topics(replace(config, value=value))
    for key in [key for key in table if str(key) in misnamed]:
        name = misnamed[str(key)]
        table[key] = {**table[key], "topicName": str(key)}
        notes.append(f"topic {key}: its entry had {'no topicName' if name is None else f'the topicName {name}'}")
    return value, notes


def with_restored_topics(
    store: Store, rules: BrokerRules, planned: PlannedRepair, restored: frozenset[str] | None
) -> PlannedRepair:
    """A plan with the entries of deleted topics that have queues, or whose queues it brings back."""
    whole = config_json.whole_topics(read_config(store.view, TOPICS))
    planned = replace(planned, restored=restored)
    if whole is None or (restored is not None and restored <= whole):
        return planned
    after = survey(view_over(store.view, planned.steps), store.settings)
    if not any(restored is None or topic in restored for topic, _ in queue_names(after) if topic not in whole):
        return planned
    try:
        entries = plan_topics(after, rules, restored)
    except UnsupportedError as error:
        return replace(planned, notes=(*planned.notes, f"not configured: {error}"))
    return replace(planned, steps=(*planned.steps, *entries.steps), notes=(*planned.notes, *entries.notes))


def _queues_by_topic(reader: Reader, known: Collection[str]) -> Iterator[tuple[str, list[int]]]:
    """The missing topics with the ids of their queues, also of queues that only consumers know."""
    queues: dict[str, set[int]] = {}
    for topic, queue_id in reader.queues():
        if topic not in known and not is_broker_topic(topic) and 0 <= queue_id <= QUEUE_ID_MAX:
            queues.setdefault(topic, set()).add(queue_id)
    for (topic, _), offsets in config_json.consumer_offsets(read_config(reader.store.view, CONSUMER_OFFSETS)).items():
        if topic in queues:
            queues[topic].update(queue_id for queue_id in offsets if 0 <= queue_id <= QUEUE_ID_MAX)
    for topic, queue_ids in sorted(queues.items()):
        yield topic, sorted(queue_ids)


def _attributes(
    reader: Reader, topic: str, queue_ids: Iterable[int], compacted: Collection[str]
) -> tuple[dict[str, str], str]:
    """Attributes of a topic from the files and the newest messages, and the note about it."""
    attributes = {}
    if any(name == topic for name, _ in reader.store.batch_queues):
        attributes["queue.type"] = "BatchCQ"
    if topic in compacted:
        attributes["cleanup.policy"] = config_json.COMPACTION
    note = "".join(f", {name} {value} (shown by its files)" for name, value in attributes.items())
    if topic.startswith("%"):
        return attributes, note  # of a group, for retries
    types = sorted({_type_of(record) for record in _newest(reader, topic, queue_ids)})
    if len(types) > 1:
        return attributes, f"{note}, no message.type, for the newest messages are {' and '.join(types)}"
    if types and types[0] != _NORMAL:
        attributes["message.type"] = types[0]
    return attributes, f"{note}, message.type {types[0] if types else _NORMAL}"


def _newest(reader: Reader, topic: str, queue_ids: Iterable[int]) -> Iterator[Record]:
    for queue_id in [number for number in queue_ids if (topic, number) in reader.queues()][:QUEUES_READ]:
        queue = reader.queue(topic, queue_id)
        first = max(queue.min_queue_offset, queue.max_queue_offset - MESSAGES_READ)
        for unit in islice(queue.units_from(first) or (), MESSAGES_READ):
            message = reader.message_at(unit.physical_offset)
            if message is not None and message.record is not None:
                yield message.record


def _type_of(record: Record) -> str:
    """Type of a message in its own topic, where delays and transactions have ended."""
    if record.sys_flag & TRANSACTION_MASK == TRANSACTION_COMMIT:
        return "TRANSACTION"
    return next((kind for name, kind in _PROPERTY_OF_TYPE if name in record.properties), _NORMAL)

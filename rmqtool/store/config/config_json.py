"""Reads `config/*.json` as brokers really write them, with the copy beside each where the file itself is no good.

Where the broker keeps it in RocksDB, the content is the same; the directory of the database is where it was read.

Broker: `ConfigManager#load`, `TopicConfigManager`, `ConsumerOffsetManager`, `ScheduleMessageService`. What each file
means to a later start is decided above; here it is only read. The files are in `config_kinds`, a relaxed grammar in
`relaxed_json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from rmqtool.errors import UnreadableError
from rmqtool.quantities import JAVA_INT_MAX, JAVA_LONG_MAX
from rmqtool.store.config.config_kinds import (
    CONFIG_KINDS,
    CONSUMER_OFFSETS,
    DATABASES,
    LMQ_CONSUMER_OFFSETS,
    TIMER_METRICS,
    TOPICS,
)
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry, StoreView

SIZE_MAX: Final = 64 << 20
"""Bytes of a configuration file that are read; a large fleet's consumer offsets have some tens of megabytes."""
_WITHOUT_BROKER: Final = {kind.path for kind in CONFIG_KINDS if kind.without_broker}
OWN_TOPIC: Final = "SELF_TEST_TOPIC"
BATCH_QUEUE: Final = "BatchCQ"
COMPACTION: Final = "COMPACTION"
_OF_CONSUMERS: Final = (CONSUMER_OFFSETS, LMQ_CONSUMER_OFFSETS)
_NUMBERS_OF_TOPIC: Final = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
_TRUTHS: Final = ("true", "false", "")
"""Texts that a broker takes for a truth value or for none."""
_HALF: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of surrogate pairs that stand for no byte."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def config_bytes(document: Mapping[Any, Any], *, indent: str | None = None) -> bytes:
    """A configuration file's content; names that are no UTF-8 stay the bytes that they are.

    The half of a surrogate pair, which no bytes stand for, is escaped: JSON has it, and so has Java.
    """
    text = json.dumps(document, ensure_ascii=False, indent=indent, separators=(",", ":"))
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text).encode("utf-8", "surrogateescape")


class ConfigState(Enum):
    """Result of reading a file; absent, empty, broken and unreadable are four different things to an operator."""

    READ = "read"
    ABSENT = "absent"
    EMPTY = "empty"
    BROKEN = "broken"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class ConfigFile:
    """One configuration file as it could be read."""

    path: str
    """The file that was asked for."""
    read_path: str | None
    """Where the value came from: the file itself, its `.bak`, the directory of a database, or none."""
    state: ConfigState
    """Of the file that was asked for, whatever its `.bak` is."""
    value: dict[Any, Any] | None = None
    problems: tuple[str, ...] = ()
    is_backup_broken: bool = False
    """True if the backup was read too and is broken as well; a broker does not start with it."""
    refused: dict[Any, Any] | None = None
    """Value that is valid JSON but that a broker rejects, from the file or else from the backup."""

    @property
    def is_backup(self) -> bool:
        """True if the value comes from the backup."""
        return self.read_path == f"{self.path}.bak"

    @property
    def is_database(self) -> bool:
        """True if the value comes from a database."""
        return self.read_path in DATABASES


@dataclass(frozen=True)
class TopicConfig:
    """A topic in `topics.json`; None for what is not set."""

    name: str
    read_queue_count: int | None
    write_queue_count: int | None
    queue_type: str
    """`SimpleCQ` or `BatchCQ` (attribute `queue.type`; `QueueTypeUtils#getCQType`)."""
    cleanup_policy: str
    """`DELETE` or `COMPACTION` (attribute `cleanup.policy`; `CleanupPolicyUtils#getDeletePolicy`)."""


def read_config_file(view: StoreView, path: str) -> ConfigFile:
    """Read a file or, where it is absent, empty or broken, its `.bak`, as `ConfigManager#load` does. Never raises."""
    state, value, problem = _read(view, path)
    if state is ConfigState.READ:
        return ConfigFile(path, path, state, value)
    backup = f"{path}.bak"
    backup_state, backup_value, backup_problem = _read(view, backup)
    problems = tuple(sentence for sentence in (problem, backup_problem) if sentence)
    is_backup_read = backup_state is ConfigState.READ
    return ConfigFile(
        path,
        backup if is_backup_read else None,
        state,
        backup_value if is_backup_read else None,
        problems,
        backup_state is ConfigState.BROKEN,
        value if is_backup_read or value is not None else backup_value,
    )


def topics(config: ConfigFile) -> dict[str, TopicConfig]:
    """Topics by name (`TopicConfigSerializeWrapper`); entries of another shape are left out."""
    topics_by_name: dict[str, TopicConfig] = {}
    for key, entry in table_of(config, "topicConfigTable").items():
        if not isinstance(entry, dict):
            continue
        attributes = entry.get("attributes")
        attributes = attributes if isinstance(attributes, dict) else {}
        name = _text(key)
        topics_by_name[name] = TopicConfig(
            name,
            _integer(entry.get("readQueueNums")),
            _integer(entry.get("writeQueueNums")),
            _text(attributes.get("queue.type", "SimpleCQ")),
            _text(attributes.get("cleanup.policy", "DELETE")),
        )
    return topics_by_name


def named_topics(config: ConfigFile) -> frozenset[str]:
    """The names of all topics of which there is an entry, of whatever shape."""
    return frozenset(map(_text, {**table_of(config, "topicConfigTable"), **_table(config.refused, "topicConfigTable")}))


def sound_entries(config: ConfigFile) -> dict[Any, Any]:
    """The entries that a broker would take of a file of topics that it refuses because of others."""
    table = _table(config.refused, "topicConfigTable")
    return {name: entry for name, entry in table.items() if _is_topic(entry)}


def misnamed_topics(config: ConfigFile) -> dict[str, str | None]:
    """The topics whose entry has another `topicName` than its key, and that name; None where it has none."""
    names = {
        _text(key): _text(entry["topicName"]) if entry.get("topicName") is not None else None
        for key, entry in table_of(config, "topicConfigTable").items()
        if isinstance(entry, dict)
    }
    return {key: name for key, name in names.items() if name != key}


def whole_topics(config: ConfigFile) -> frozenset[str] | None:
    """The names of all topics, beside which a broker served no other; None where nothing tells them all.

    A copy is older than the file, and a file that a broker wrote has a topic of its own, which every version creates.
    """
    is_sound = config.state is ConfigState.READ and not config.is_backup
    names = frozenset(topics(config)) if is_sound else frozenset[str]()
    if names != named_topics(config):
        return None  # an entry of another shape
    return names if names and (config.is_database or OWN_TOPIC in names) else None


def are_topics_lost(files: Mapping[FileKind, Sequence[Entry]]) -> bool:
    """True if a broker wrote its configuration here, and both its topics and their backup are gone.

    Args:
        files: of the store, by kind. What the message store writes without a broker tells nothing.
    """
    paths = {entry.path for entry in files.get(FileKind.CONFIG, ())}
    if {TOPICS, f"{TOPICS}.bak"} & paths or files.get(FileKind.CONFIG_ROCKSDB):
        return False
    written = _written(paths)
    # A broker of which only the timer has written is a slave that has no topics yet; but batch queues come from topics.
    by_timer = TIMER_METRICS in written or bool(files.get(FileKind.TIMER_CHECK))
    return bool(written - _WITHOUT_BROKER) or (by_timer and bool(files.get(FileKind.BATCH_CONSUMEQUEUE)))


def has_broker_config(files: Mapping[FileKind, Sequence[Entry]]) -> bool:
    """True if there are files, apart from the topics file, that only a broker writes."""
    paths = {entry.path for entry in files.get(FileKind.CONFIG, ())}
    return bool(_written(paths) - {*_WITHOUT_BROKER, TOPICS})


def _written(paths: Iterable[str]) -> set[str]:
    return {path.removesuffix(".bak").removesuffix(".tmp") for path in paths}


def topic_entry(name: str, queue_count: int, attributes: Mapping[str, str] | None) -> dict[str, Any]:
    """An entry of `topicConfigTable` as a broker writes it; brokers before 5.0 write no attributes."""
    return {
        **({"attributes": dict(attributes)} if attributes is not None else {}),
        "order": False,
        "perm": 6,
        "readQueueNums": queue_count,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queue_count,
    }


def changed_at(config: ConfigFile) -> int | None:
    """Time of the broker's last change of a file's content, in ms; None where it has none (`DataVersion`)."""
    version = config.value.get("dataVersion") if config.value else None
    return _integer(version.get("timestamp")) if isinstance(version, dict) else None


def next_version(version: object) -> dict[Any, Any]:
    """A slave takes over the topics of a master only if the version is another than its own (`DataVersion`)."""
    version = version if isinstance(version, dict) else {"counter": 0, "timestamp": 0}
    counter = version.get("counter")
    return {**version, "counter": counter + 1 if isinstance(counter, int) else 1}


def table_of(config: ConfigFile, name: str) -> dict[Any, Any]:
    """One table of a configuration file; empty where there is none."""
    return _table(config.value, name)


def batch_topics(known: Mapping[str, TopicConfig], directories: Iterable[str]) -> frozenset[str]:
    """The topics with batch queues: the configuration decides, and the files where it does not know a topic.

    Args:
        known: what `topics` gives.
        directories: topics that have batch queues in the store.
    """
    configured = {topic.name for topic in known.values() if topic.queue_type == BATCH_QUEUE}
    return frozenset(configured | {topic for topic in directories if topic not in known})


def compacted_topics(known: Mapping[str, TopicConfig]) -> frozenset[str]:
    """The topics whose messages are also in `compaction/`, the newest of each key, and need not be in a queue."""
    return frozenset(topic.name for topic in known.values() if topic.cleanup_policy == COMPACTION)


def consumer_offsets(config: ConfigFile) -> dict[tuple[str, str], dict[int, int]]:
    """Consumed queue offsets by (topic, group) and queue id (`ConsumerOffsetManager`, key `topic@group`)."""
    offsets = _by_group(config, "offsetTable")
    for key, queue_offset in table_of(config, "lmqOffsetTable").items():
        topic, separator, group = _text(key).partition("@")
        if separator:
            offsets.setdefault((topic, group), {})[0] = queue_offset
    return {name: _integers(queues) for name, queues in offsets.items()}


def blocked_offsets(config: ConfigFile) -> dict[tuple[str, str], dict[int, tuple[int, ...]]]:
    """Queue offsets of the messages that members of a group hold in order, by (topic, group) and queue id.

    Broker: `OrderInfo`, whose list `o` has the first offset, and of the others the distance from it.
    """
    blocked: dict[tuple[str, str], dict[int, tuple[int, ...]]] = {}
    for name, queues in _by_group(config, "table").items():
        for key, order in queues.items():
            queue_id, held = _integer(key), order.get("o") if isinstance(order, dict) else None
            numbers = [_integer(value) for value in held] if isinstance(held, list) else []
            whole = [number for number in numbers if number is not None]
            if queue_id is not None and whole and len(whole) == len(numbers):
                offsets = (whole[0], *(whole[0] + difference for difference in whole[1:]))
                blocked.setdefault(name, {})[queue_id] = offsets
    return blocked


def group_names(config: ConfigFile) -> frozenset[str]:
    """The consumer groups that are configured (`SubscriptionGroupManager`)."""
    return frozenset(map(_text, table_of(config, "subscriptionGroupTable")))


def delay_offsets(config: ConfigFile) -> dict[int, int]:
    """Delivered queue offsets by delay level (`DelayOffsetSerializeWrapper`); the queue is the level less one."""
    return _integers(table_of(config, "offsetTable"))


def _text(value: Any) -> str:
    """As Java writes it: a file can name half of a surrogate pair, which no encoding has."""
    return str(value).encode("utf-8", "replace").decode()


def _read(view: StoreView, path: str) -> tuple[ConfigState, dict[Any, Any] | None, str | None]:
    try:
        if view.stat(path) is None:
            return ConfigState.ABSENT, None, None
        with closing(view.open(path)) as source:
            if source.size > SIZE_MAX:
                return ConfigState.BROKEN, None, f"{path}: {source.size} bytes, too large for such a file"
            content = read_range(source, 0, source.size)
    except UnreadableError as error:
        return ConfigState.UNREADABLE, None, str(error)
    content = content.rstrip(b"\0") or content  # as a power failure leaves it; a broker reads what is before them
    if not content.strip():
        return ConfigState.EMPTY, None, f"{path}: empty"
    try:
        # The names in it are compared with names of directories, so odd bytes are kept as the file system keeps them.
        value = parse_relaxed_json(content.decode("utf-8-sig", "surrogateescape"))
    except JsonError as error:
        return ConfigState.BROKEN, None, f"{path}: {error}"
    value = {} if value is None else value
    if not isinstance(value, dict):
        return ConfigState.BROKEN, None, f"{path}: not a JSON object"
    if path.removesuffix(".bak") in _OF_CONSUMERS and not _are_offsets(value.get("offsetTable")):
        return ConfigState.BROKEN, value, f"{path}: offsetTable has something else than offsets"
    if path.removesuffix(".bak") != TOPICS:
        return ConfigState.READ, value, None
    # A broker refuses a file of topics because of a single entry. Versions differ in lists and objects where a number
    # belongs, and 4.x does not read attributes: what one of them refuses is refused here.
    table = value.get("topicConfigTable", {})
    if not isinstance(value.get("dataVersion", {}), dict | None):
        return ConfigState.BROKEN, value, f"{path}: dataVersion is not an object"
    if not isinstance(table, dict):
        return ConfigState.BROKEN, value, f"{path}: topicConfigTable is not an object"
    for name, entry in table.items():
        if not _is_topic(entry):
            text = f"{path}: the entry {_text(name)} of topicConfigTable is not that of a topic"
            return ConfigState.BROKEN, value, text
    return ConfigState.READ, value, None


def _is_topic(entry: object) -> bool:
    """True if a broker accepts an entry of the topic table, whatever it lacks."""
    if not isinstance(entry, dict) or not isinstance(entry.get("attributes"), dict | None):
        return False
    order = entry.get("order")
    has_order = order.lower() in _TRUTHS if isinstance(order, str) else isinstance(order, bool | int | None)
    for value in (entry.get(name) for name in _NUMBERS_OF_TOPIC):
        if value is None or value == "" or isinstance(value, bool | float):
            continue
        number = _integer(value)
        if number is None or not -JAVA_INT_MAX - 1 <= number <= JAVA_INT_MAX:
            return False
    return has_order


def _are_offsets(table: object) -> bool:
    """True if a broker accepts a table of consumer offsets; one value of another type makes it refuse the file."""
    if table is None:
        return True
    if not isinstance(table, dict) or not all(isinstance(queues, dict) for queues in table.values()):
        return False
    queues: list[dict[Any, Any]] = list(table.values())
    ids = (_integer(queue_id) for queue in queues for queue_id in queue)
    offsets = (_integer(queue_offset) for queue in queues for queue_offset in queue.values())
    return all(number is not None and -JAVA_INT_MAX - 1 <= number <= JAVA_INT_MAX for number in ids) and all(
        number is not None and -JAVA_LONG_MAX - 1 <= number <= JAVA_LONG_MAX for number in offsets
    )


def _table(value: Mapping[Any, Any] | None, name: str) -> dict[Any, Any]:
    table = value.get(name) if value else None
    return table if isinstance(table, dict) else {}


def _by_group(config: ConfigFile, table: str) -> dict[tuple[str, str], dict[Any, Any]]:
    """The objects of a table whose keys are `topic@group`."""
    names = ((_text(key).partition("@"), queues) for key, queues in table_of(config, table).items())
    return {
        (topic, group): dict(queues)
        for (topic, separator, group), queues in names
        if separator and isinstance(queues, dict)
    }


def _integers(table: dict[Any, Any]) -> dict[int, int]:
    """The entries whose key and value are integers, quoted or not: both forms are found, and the broker reads both."""
    pairs = ((_integer(key), _integer(value)) for key, value in table.items())
    return {key: value for key, value in pairs if key is not None and value is not None}


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        digits = value.replace(",", "")
        return int(digits) if _INTEGER.fullmatch(digits) else None
    if isinstance(value, float):
        return int(value) if abs(value) < JAVA_LONG_MAX else None
    return value if isinstance(value, int) else None

"""What a comparison looks at besides the log: ends of queues, tables of configuration files, digests of other files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rmqtool.compare.other_files import READ, other_files
from rmqtool.engine.reading.summary import QueueSummary, summarize
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.formats.controller import EPOCHS, agreed_end
from rmqtool.formats.queue_name import QueueName
from rmqtool.sides.controller import BACKUP, read_epochs
from rmqtool.store.config.config_json import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS, ConfigState
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store

_EPOCHS: Final = "epochs"
_NUMBERS: Final = re.compile(r"-?[0-9]{1,19} -?[0-9]{1,19}", re.ASCII)
CONFIG_FILES: Final = (TOPICS, GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS)
VALUE_MAX: Final = 2000
"""Characters of a configuration entry up to which it is kept as it is; a longer one is kept as its digest."""
_VERSION: Final = "dataVersion"
"""Counts changes by the clock of the machine: different where nothing else is."""

ConfigKey = tuple[str, str, str]
"""File, table and entry."""


class QueueDifference(NamedTuple):
    """A queue's first and next queue offset on both sides; None where there is no queue, or it cannot be read."""

    topic: str
    queue_id: int
    a: tuple[int | None, int | None] | None
    b: tuple[int | None, int | None] | None


class ConfigDifference(NamedTuple):
    """An entry of a configuration file on both sides, as JSON text; None where there is none."""

    file: str
    table: str
    entry: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class StoreMetadata:
    """The facts of one store.

    Attributes:
        queues: None where they are in RocksDB, and cannot be read.
        config: JSON texts; files that cannot be read have no entry.
        files: digests of the files that are not decoded, by path; None in manifests that have none.
        problems: what could not be read, as sentences.
    """

    queues: dict[QueueName, tuple[int | None, int | None]] | None = None
    config: dict[ConfigKey, str] = field(default_factory=dict)
    files: dict[str, str] | None = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read_metadata(store: Store, rules: BrokerRules) -> StoreMetadata:
    """The facts of a store. Never raises for what is broken in it."""
    summary = summarize(store, rules)
    problems = [
        f"the queue {queue.topic}/{queue.queue_id} cannot be read"
        for queue in summary.queues
        if queue.max_queue_offset is None
    ]
    config: dict[ConfigKey, str] = {}
    config_files = {path: read_config(store.view, path) for path in CONFIG_FILES}
    for path, config_file in config_files.items():
        if config_file.state is ConfigState.UNREADABLE:
            problems += config_file.problems
        config.update(_entries(path, config_file.value or {}))
    try:
        epochs = dict(read_epochs(store.view).used.entries)
    except UnreadableError as error:
        epochs = {}
        problems.append(str(error))
    config.update({(EPOCHS, _EPOCHS, str(epoch)): str(start) for epoch, start in epochs.items()})
    queues = _bounds(summary.queues) if store.are_queues_known else None
    files, unreadable = other_files(store, config_files)
    if epochs:
        files |= {path: READ for path in (EPOCHS, BACKUP) if path in files}
    return StoreMetadata(queues, config, files, tuple(dict.fromkeys((*problems, *unreadable))))


def queue_differences(a: StoreMetadata, b: StoreMetadata) -> list[QueueDifference]:
    """Queues whose ends differ; none where one side's are not known."""
    if a.queues is None or b.queues is None:
        return []
    keys = sorted(a.queues.keys() | b.queues.keys())
    return [
        QueueDifference(*key, a.queues.get(key), b.queues.get(key))
        for key in keys
        if a.queues.get(key) != b.queues.get(key)
    ]


def config_differences(a: StoreMetadata, b: StoreMetadata) -> list[ConfigDifference]:
    """Entries that differ."""
    keys = sorted(a.config.keys() | b.config.keys())
    return [
        ConfigDifference(*key, a.config.get(key), b.config.get(key))
        for key in keys
        if a.config.get(key) != b.config.get(key)
    ]


def epochs_agree(a: StoreMetadata, b: StoreMetadata, a_end: int, b_end: int) -> dict[str, int | None] | None:
    """Up to where the epochs of controller mode say that both logs are one, as JSON; None where a side has none.

    Args:
        a_end, b_end: physical offsets where the logs end.
    """
    epochs = [
        {
            int(epoch): int(text)
            for (file, _, epoch), text in side.config.items()
            if file == EPOCHS and _NUMBERS.fullmatch(f"{epoch} {text}")
        }
        for side in (a, b)
    ]
    return {"physical_offset": agreed_end(epochs[0], a_end, epochs[1], b_end)} if all(epochs) else None


def _bounds(queues: Iterable[QueueSummary]) -> dict[QueueName, tuple[int | None, int | None]]:
    return {(queue.topic, queue.queue_id): (queue.min_queue_offset, queue.max_queue_offset) for queue in queues}


def _entries(path: str, value: Mapping[Any, Any]) -> dict[ConfigKey, str]:
    texts: dict[ConfigKey, str] = {}
    for table, entries in value.items():
        if table == _VERSION:
            continue
        if isinstance(entries, dict):
            texts.update({(path, str(table), str(entry)): _text(entry_value) for entry, entry_value in entries.items()})
        else:
            texts[path, str(table), ""] = _text(entries)
    return texts


def _text(value: Any) -> str:
    text = json.dumps(_with_text_keys(value), sort_keys=True)
    if len(text) <= VALUE_MAX:
        return text
    return json.dumps("sha256:" + hashlib.sha256(text.encode()).hexdigest())


def _with_text_keys(value: Any) -> Any:
    """The value with all keys as text: brokers write some of them as bare numbers."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(part) for key, part in value.items()}
    return [_with_text_keys(part) for part in value] if isinstance(value, list) else value

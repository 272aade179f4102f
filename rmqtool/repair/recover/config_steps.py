"""The steps of `recover` that concern the configuration: copies that are better, consumers beyond a queue's end.

Broker: `ConfigManager#load` (reads `.bak` where the file is no good), `ConsumerOffsetManager`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from typing import Any, Final

from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.findings.finding import BACKUP_BETTER, Finding
from rmqtool.repair.machine.steps import Step, create_file, replace_file
from rmqtool.store.config.config_json import CONSUMER_OFFSETS, TOPICS, ConfigState, config_bytes, named_topics, table_of
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json
from rmqtool.store.source import Literal, read_range

BEYOND = "config.consumer-offset-beyond-queue"
_FROM_BACKUP: Final = "the backup can be read, the file cannot"
_ENTRY: Final = re.compile(r'"(?P<name>[^"\\]+@[^"\\]+)"\s*:\s*\{(?P<queues>[\s0-9:,"]*)\}')
_OFFSET: Final = re.compile(r'"?([0-9]{1,9})"?\s*:\s*"?([0-9]{1,18})"?')


def rescue_steps(
    store: Store, findings: Iterable[Finding], *, clamp: bool, doubtful: Collection[str]
) -> Iterator[Step]:
    """One step for each file.

    Args:
        clamp: set consumer offsets beyond a queue's end to that end.
        doubtful: topics that may have been deleted; a copy that names one is not made the file before a person decides.

    Raises:
        UnreadableError: a file may not be read.
        UnsupportedError: the consumer offsets are in RocksDB.
    """
    beyond, wrong = [], list(findings)
    for finding in wrong:
        if finding.id == BACKUP_BETTER and finding.file == CONSUMER_OFFSETS:
            if not (clamp and any(other.id == BEYOND for other in wrong)):
                yield _newest_offsets(store)
        elif finding.id == BACKUP_BETTER:
            if finding.file == TOPICS and not named_topics(read_config(store.view, TOPICS)).isdisjoint(doubtful):
                continue
            yield _content_step(store, finding.file, _bytes(store, f"{finding.file}.bak"), _FROM_BACKUP)
        elif finding.id == BEYOND:
            beyond.append(finding)
    if clamp and beyond:
        yield _clamped(store, beyond)


def _newest_offsets(store: Store) -> Step:
    """The step that writes the backup of the consumer offsets, with what the broken file has that is newer.

    A cut file still has the offsets before the cut, and a broker writes each file later than its backup.
    """
    config = read_config(store.view, CONSUMER_OFFSETS)
    if config.state is not ConfigState.BROKEN:
        return _content_step(store, CONSUMER_OFFSETS, _bytes(store, f"{CONSUMER_OFFSETS}.bak"), _FROM_BACKUP)
    value = config.value or {}
    table = {key: dict(queues) for key, queues in table_of(config, "offsetTable").items()}
    newer = 0
    for name, queues in offsets_before_cut(_bytes(store, CONSUMER_OFFSETS)).items():
        of_name = table.setdefault(name, {})
        keys = {str(queue_id): queue_id for queue_id in of_name}
        for queue_id, queue_offset in queues.items():
            key = keys.get(str(queue_id), queue_id)
            newer += max(0, queue_offset - int(of_name.get(key, 0)))
            of_name[key] = max(queue_offset, int(of_name.get(key, queue_offset)))
    if not newer:
        return _content_step(store, CONSUMER_OFFSETS, _bytes(store, f"{CONSUMER_OFFSETS}.bak"), _FROM_BACKUP)
    why = f"{_FROM_BACKUP}; what is whole in the file is newer, so consumers get {newer} messages fewer again"
    return _content_step(store, CONSUMER_OFFSETS, config_bytes({**value, "offsetTable": table}), why)


def offsets_before_cut(content: bytes) -> dict[str, dict[int, int]]:
    """The consumer offsets in a file that was cut off: of each topic and group whose entry is whole.

    None of a file that is broken in another way: a wrong offset would let consumers skip messages.
    """
    text = content.decode("utf-8", "surrogateescape")
    begin = text.find('"offsetTable"')
    end = text.find('"pullOffsetTable"', begin)
    entries = [*_ENTRY.finditer(text, begin, len(text) if end < 0 else end)] if begin >= 0 else []
    try:
        parse_relaxed_json(text[: entries[-1].end()] + "}}" if entries else "")
    except JsonError:
        return {}
    return {
        entry["name"]: {int(queue_id): int(queue_offset) for queue_id, queue_offset in _OFFSET.findall(entry["queues"])}
        for entry in entries
    }


def _clamped(store: Store, beyond: list[Finding]) -> Step:
    config = read_config(store.view, CONSUMER_OFFSETS)
    if config.is_database:
        raise UnsupportedError(
            f"{config.read_path}: the consumer offsets are in RocksDB, where rmqtool does not change them: leave out "
            "--clamp-offsets, and set them with mqadmin once the broker runs"
        )
    value = config.value or {}
    ends = {(finding.topic, finding.queue_id, finding.queue_offset): finding.expected for finding in beyond}
    table: dict[Any, Any] = {}
    for key, queues in value.get("offsetTable", {}).items():
        topic = str(key).partition("@")[0]
        table[key] = queues
        if isinstance(queues, dict):
            table[key] = {queue: _limited(ends, topic, queue, consumed) for queue, consumed in queues.items()}
    why = f"{len(beyond)} consumer offsets are past the end of their queue"
    return _content_step(store, CONSUMER_OFFSETS, config_bytes({**value, "offsetTable": table}), why)


def _limited(ends: dict[Any, str | None], topic: str, queue: Any, queue_offset: Any) -> Any:
    try:
        expected = ends.get((topic, int(queue), int(queue_offset)))
    except (TypeError, ValueError):
        return queue_offset
    return int(expected.rpartition(" ")[2]) if expected else queue_offset


def _content_step(store: Store, path: str, content: bytes, why: str) -> Step:
    if read_config(store.view, path).state is ConfigState.ABSENT:
        return create_file(store.view, path, Literal(content), why)
    return replace_file(store.view, path, Literal(content), why)


def _bytes(store: Store, path: str) -> bytes:
    entry = store.view.stat(path)
    if entry is None:
        raise UnreadableError(f"{path}: no longer exists")
    with closing(store.view.open(path)) as source:
        return read_range(source, 0, entry.size)

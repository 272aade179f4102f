"""The steps of `recover` that concern the configuration: copies that are better, consumers beyond a queue's end.

Broker: `ConfigManager#load` (reads `.bak` where the file is no good), `ConsumerOffsetManager`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.repair.machine.steps import Step, create_file, replace_file
from rmqtool.store.config.config_json import CONSUMER_OFFSETS, ConfigState
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.source import Literal, read_range
from rmqtool.verify.catalog.finding import Finding

BACKUP = "config.backup-better"
BEYOND = "config.consumer-offset-beyond-queue"


def rescue_steps(store: Store, findings: Iterable[Finding], *, clamp: bool) -> Iterator[Step]:
    """One step for each file.

    Args:
        clamp: set consumer offsets beyond a queue's end to that end.

    Raises:
        UnreadableError: a file may not be read.
        UnsupportedError: the consumer offsets are in RocksDB.
    """
    beyond = []
    for finding in findings:
        if finding.id == BACKUP and not (clamp and finding.file == CONSUMER_OFFSETS):
            yield _content_step(
                store, finding.file, _bytes(store, f"{finding.file}.bak"), "the backup can be read, the file cannot"
            )
        elif finding.id == BEYOND:
            beyond.append(finding)
    if clamp and beyond:
        yield _clamped(store, beyond)


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
    text = json.dumps({**value, "offsetTable": table}, ensure_ascii=False, separators=(",", ":"))
    why = f"{len(beyond)} consumer offsets are past the end of their queue"
    return _content_step(store, CONSUMER_OFFSETS, text.encode("utf-8", "surrogateescape"), why)


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

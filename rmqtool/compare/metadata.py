"""Parts of a comparison besides the log: ends of queues, tables of configuration files, digests of other files."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rmqtool.engine.reading.summary import summarize
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnreadableError
from rmqtool.formats.controller import EPOCHS, agreed_end
from rmqtool.formats.queue_name import QueueName
from rmqtool.sides.controller import BACKUP, read_epochs
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.config.config_json import ConfigFile, ConfigState
from rmqtool.store.config.config_kinds import CONFIG_KINDS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind, kind_of
from rmqtool.store.source import read_range
from rmqtool.store.view import Entry

_EPOCHS: Final = "epochs"
_NUMBERS: Final = re.compile(r"-?[0-9]{1,19} -?[0-9]{1,19}", re.ASCII)
_COMPARED: Final = [kind for kind in CONFIG_KINDS if kind.is_compared]
CONFIG_FILES: Final = tuple(kind.path for kind in sorted(_COMPARED, key=lambda kind: kind.table == "offsetTable"))
"""Offsets last, as manifests have them."""
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
    """The facts of one store: queues, unless they cannot be read in RocksDB; entries of configuration files that can be
    read, as JSON; digests of files that are not decoded, by path, unless a manifest has none; and problems, as
    sentences.
    """

    queues: dict[QueueName, tuple[int | None, int | None]] | None = None
    config: dict[ConfigKey, str] = field(default_factory=dict)
    files: dict[str, str] | None = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def read_metadata(store: Store, rules: BrokerRules) -> StoreMetadata:
    """The facts of a store. Never raises for damage in it."""
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
    queues = None
    if store.are_queues_known:
        queues = {(one.topic, one.queue_id): (one.min_queue_offset, one.max_queue_offset) for one in summary.queues}
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
    """Up to where the epochs say that both logs, with these ends, are one, as JSON; None where a side has none."""
    epochs = [
        {
            int(epoch): int(text)
            for (file, _, epoch), text in side.config.items()
            if file == EPOCHS and _NUMBERS.fullmatch(f"{epoch} {text}")
        }
        for side in (a, b)
    ]
    return {"physical_offset": agreed_end(epochs[0], a_end, epochs[1], b_end)} if all(epochs) else None


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


# The files that are not decoded: equal byte for byte, or named as not compared. Consume queues, index, checkpoint,
# timer, RocksDB, compaction and the like: a byte that differs says nothing about what brokers would do with it.


_LEFT_ALONE: Final = frozenset({FileKind.LOCK, FileKind.ABORT_BACKUP, FileKind.RMQTOOL, FileKind.UNKNOWN})
"""No broker reads these."""
_STREAMS: Final = frozenset(
    {FileKind.COMMITLOG, FileKind.CONSUMEQUEUE, FileKind.BATCH_CONSUMEQUEUE, FileKind.CONSUMEQUEUE_EXT}
)
"""Their ends are compared: a file that only one store has says no more."""
_LOG: Final = "commitlog/"
_COPIES: Final = (".bak", ".tmp")
_ROCKSDB_DIARY: Final = ("LOG", "LOCK")
"""Files of RocksDB that it does not read."""
_BLOCK: Final = 64 << 10
_DIGEST_SIZE: Final = 16
READ: Final = "read"
"""Instead of a digest: the file was read, and its entries are compared."""


def other_files(store: Store, config: Mapping[str, ConfigFile]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Digests of these files by their paths, and what could not be read, as sentences; `config` are those whose entries
    are compared, as they were read.
    """
    digests: dict[str, str] = {}
    problems = []
    for kind, entries in store.files.items():
        for entry in entries:
            if not _is_used(kind, entry):
                continue
            if kind is FileKind.COMMITLOG:  # its records are compared; wherever it lies
                digests[_LOG + entry.name] = str(entry.size)
                continue
            known = config.get(entry.path)
            if known is not None and known.state is ConfigState.READ and not known.is_database:
                digests[entry.path] = READ
                continue
            try:
                digests[entry.path] = "" if kind is FileKind.ABORT else _digest(store, entry)
            except UnreadableError as error:
                problems.append(str(error))
    return digests, tuple(problems)


def unequal_files(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[UnreadFiles]:
    """Files that differ, or are in one store only, kind by kind."""
    counts: dict[tuple[str, FileKind], Counter[str]] = defaultdict(Counter)
    for path in sorted(a.keys() | b.keys()):
        if a.get(path) == b.get(path):
            continue
        kind = kind_of(path)
        if path in a and path in b:
            what = "{} differ{s}"
        elif kind in _STREAMS:
            continue
        else:
            what = "{} only in A" if path in a else "{} only in B"
        where = path if kind is FileKind.CONFIG else path.partition("/")[0]
        counts[where, kind][what] += 1
    for (where, kind), counted in counts.items():
        parts = (
            what.format(f"{count} file{'' if count == 1 else 's'}", s="s" if count == 1 else "")
            for what, count in sorted(counted.items())
        )
        what = " in length" if kind is FileKind.COMMITLOG else "; only bytes were compared"
        yield UnreadFiles(where, kind.value, f"{', '.join(parts)}{what}")


def _is_used(kind: FileKind, entry: Entry) -> bool:
    if kind in _LEFT_ALONE or not entry.is_file:
        return False
    if kind is FileKind.CONFIG:
        return not entry.name.endswith(_COPIES)
    return "RocksDB" not in kind.value or entry.name.partition(".")[0] not in _ROCKSDB_DIARY


def _digest(store: Store, entry: Entry) -> str:
    """Digest of a file's length and of all blocks that are not zero, so that holes cost nothing."""
    digest = hashlib.blake2b(digest_size=_DIGEST_SIZE)
    with closing(store.view.open(entry.path)) as source:
        digest.update(source.size.to_bytes(8, "little"))
        done = 0
        for start, end in source.extents(0, source.size):
            for position in range(max(done, start // _BLOCK * _BLOCK), end, _BLOCK):
                done = position + _BLOCK
                block = read_range(source, position, min(_BLOCK, source.size - position))
                if block.strip(b"\0"):
                    digest.update(position.to_bytes(8, "little"))
                    digest.update(block)
    return digest.hexdigest()

"""Reads the configuration that a broker keeps in RocksDB, as the JSON files that it replaces.

Broker: `RocksDBTopicConfigManager`, `RocksDBConsumerOffsetManager`, `RocksDBSubscriptionGroupManager`, and those of
`configManagerVersion=v2`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from rmqtool.errors import UnreadableError
from rmqtool.formats.rocksdb.config import GROUPS_TABLE, OFFSETS_TABLE, TOPICS_TABLE, parse_config_row
from rmqtool.store.config.config_json import ConfigFile, ConfigState
from rmqtool.store.config.config_kinds import CONFIG_KINDS, CONSUMER_OFFSETS, DATABASES, GROUPS, STORED, TOPICS
from rmqtool.store.databases.rocksdb import RocksFailure, RocksFamily, RocksReading, unknown_family
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json
from rmqtool.store.view import StoreView

_VERSION_2, _COMMON = DATABASES[:2]
_TABLES: Final = {kind.path: kind.table for kind in CONFIG_KINDS}
_FAMILIES: Final = {
    _COMMON: {path: (names.family, f"{names.family}Version") for path, names in STORED.items()},
    **{names.directory: {path: ("default", "kvDataVersion")} for path, names in STORED.items()},
}
"""The column families of a table and of its version, by directory."""
_TABLE_OF: Final = {OFFSETS_TABLE: CONSUMER_OFFSETS, TOPICS_TABLE: TOPICS, GROUPS_TABLE: GROUPS}


@dataclass
class ConfigDatabase:
    """One database.

    Attributes:
        contents: by the path of the file that they replace, what that file would have.
        problems: rows that are no configuration, as sentences.
        failure: why not everything was read; None where it was.
    """

    directory: str
    contents: dict[str, dict[Any, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    failure: RocksFailure | None = None
    reason: str = ""

    def content(self, path: str) -> dict[Any, Any]:
        """Content of a file according to the database, with at least its empty table."""
        return self.contents.setdefault(path, {_TABLES[path]: {}})


def read_config_databases(view: StoreView) -> tuple[ConfigDatabase, ...]:
    """Every database of configuration that a store has, in the order in which they count. Never raises."""
    databases = []
    for directory in DATABASES:
        try:
            entries = view.list(directory)
        except UnreadableError as error:
            databases.append(ConfigDatabase(directory, failure=RocksFailure.UNREADABLE, reason=str(error)))
            continue
        if not entries:
            continue
        database = ConfigDatabase(directory)
        reading = RocksReading(view, entries)
        names = _FAMILIES.get(directory, {_VERSION_2: ("default",)}).values()
        families = [RocksFamily(name) for pair in names for name in pair]
        with closing(reading.batches(families)) as batches:
            for batch in batches:
                _take(database, batch.family, batch.prefix, batch.values)
        database.failure, database.reason = reading.failure, reading.reason
        unknown = unknown_family(reading.families, ["default"]) if directory == _VERSION_2 else None
        if database.failure is None and unknown is not None:  # the other databases are opened with all that they have
            database.failure, database.reason = RocksFailure.DOES_NOT_OPEN, unknown
        databases.append(database)
    return tuple(databases)


def _take(database: ConfigDatabase, family: str, key: bytes, value: bytes) -> None:
    is_taken = True
    if database.directory == _VERSION_2:
        is_taken = _take_row(database, key, value)
    else:
        for path, (data, version) in _FAMILIES[database.directory].items():
            if family in (data, version):
                parsed = _json(value)
                is_taken = parsed is not None
                if parsed is not None and family == version:
                    database.content(path)["dataVersion"] = parsed
                elif parsed is not None:
                    entry = parsed.get("offsetTable") if path == CONSUMER_OFFSETS else parsed
                    database.content(path)[_TABLES[path]][_text(key)] = entry
    if not is_taken:
        database.problems.append(f"{database.directory}: the row of key {_text(key)[:60]!r} is not configuration")


def _take_row(database: ConfigDatabase, key: bytes, value: bytes) -> bool:
    """Apply a row of `config/rdb`; return True if it has a meaning."""
    row = parse_config_row(key, value)
    path = _TABLE_OF.get(row.table) if row is not None else None
    if row is None or path is None:
        return key[:1] == b"\x01" and path is None and row is not None
    if row.version is not None:
        state_version, timestamp, counter = row.version
        version = {"counter": counter, "stateVersion": state_version, "timestamp": timestamp}
        database.content(path)["dataVersion"] = version
    elif row.topic is not None and row.name is not None:
        queues = database.content(path)[_TABLES[path]].setdefault(f"{_text(row.topic)}@{_text(row.name)}", {})
        queues[str(row.queue_id)] = row.queue_offset
    else:
        parsed = _json(row.json or b"")
        if parsed is None:
            return False
        database.content(path)[_TABLES[path]][_text(row.name or b"")] = parsed
    return True


def _json(value: bytes) -> dict[Any, Any] | None:
    try:
        parsed = parse_relaxed_json(value.decode("utf-8", "surrogateescape"))
    except JsonError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def config_of_database(databases: Sequence[ConfigDatabase], config: ConfigFile) -> ConfigFile:
    """A file's content for the broker: the database has priority, unless the file was changed more often."""
    candidates = [one for one in databases if config.path in _FAMILIES.get(one.directory, STORED)]
    filled = (one for one in candidates if config.path in one.contents or one.failure is not None)
    database = next(filled, candidates[0] if candidates else None)
    if database is None or _counter(config.value) > _counter(database.contents.get(config.path)):
        return config
    state = ConfigState.BROKEN if database.problems or database.failure else ConfigState.READ
    if database.failure in (RocksFailure.NO_LIBRARY, RocksFailure.CRASH):
        state = ConfigState.UNREADABLE
    problems = [*database.problems[:1], *([f"{database.directory}: {database.reason}"] if database.failure else ())]
    return ConfigFile(config.path, database.directory, state, database.contents.get(config.path, {}), tuple(problems))


def _counter(content: Mapping[Any, Any] | None) -> int:
    """How often a file or table was changed, as it says itself (`DataVersion`)."""
    version = content.get("dataVersion") if content else None
    counter = version.get("counter") if isinstance(version, dict) else None
    return counter if isinstance(counter, int) else 0

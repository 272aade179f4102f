"""Reads the configuration of a store from where its broker keeps it: a file, its copy, or a database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock

from rmqtool.errors import UnreadableError
from rmqtool.store.config.config_json import ConfigFile, read_config_file
from rmqtool.store.config.config_kinds import DATABASES, STORED
from rmqtool.store.view import StoreView


def read_config(view: StoreView, path: str) -> ConfigFile:
    """Read a file or, where it is absent, empty or broken, its `.bak`, as `ConfigManager#load` does. Never raises.

    A database of RocksDB goes before both, unless the file was changed more often (`RocksDBTopicConfigManager#merge`).
    """
    return read_configs(view, (path,))[path]


def read_configs(view: StoreView, paths: Iterable[str]) -> dict[str, ConfigFile]:
    """Read several configuration files, keyed by path."""
    configs = {path: read_config_file(view, path) for path in paths}
    stored = [path for path in STORED if path in configs]
    if stored and has_config_database(view):
        # Late, for it brings construct with it, which a store without RocksDB does not need.
        from rmqtool.store.config.config_database import config_of_database, read_config_databases

        databases = read_config_databases(view)
        configs.update({path: config_of_database(databases, configs[path]) for path in stored})
    return configs


@dataclass(eq=False)
class StoreConfigs:
    """The configuration files of a store; each is read when it is asked for, and once."""

    _view: StoreView
    _configs: dict[str, ConfigFile] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def of(self, *paths: str) -> dict[str, ConfigFile]:
        """Files by their paths; see `read_configs`."""
        with self._lock:
            self._configs |= read_configs(self._view, [path for path in paths if path not in self._configs])
            return {path: self._configs[path] for path in paths}


def has_config_database(view: StoreView) -> bool:
    """True if a directory of `DATABASES` has files, or cannot be listed."""
    try:
        directories = {entry.path for entry in view.list("config") if entry.is_directory}
        return any(entry.is_file for path in directories.intersection(DATABASES) for entry in view.list(path))
    except UnreadableError:
        return True

"""File sizes by the broker's settings and by the files themselves: a version may not read the name that gives a size.

A broker that expects another size than the files have does not start, or leaves them and starts from nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.settings import read_settings
from rmqtool.store.config.broker_conf import ANY_VERSION, BrokerConf, setting_of_size
from rmqtool.store.directory import Settings, Store
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE, DEFAULT_QUEUE_FILE_SIZE

_DEFAULTS: Final = {
    "commitlog_file_size": DEFAULT_LOG_FILE_SIZE,
    "consumequeue_file_size": DEFAULT_QUEUE_FILE_SIZE,
}
SIZES: Final = tuple(_DEFAULTS)
"""Fields of `Settings` whose settings have other names in other versions."""


def shown_sizes(store: Store) -> dict[str, int]:
    """The sizes that the files of a store have, whatever its settings say."""
    shown = replace(store, settings=Settings(store.settings.commitlog_directories))
    sizes = {
        "commitlog_file_size": shown.commitlog_file_size if shown.log_file_size.is_shown else 0,
        "consumequeue_file_size": shown.consumequeue_file_size,
    }
    return {name: size for name, size in sizes.items() if size}


def are_sizes_of(sizes: dict[str, int], conf: BrokerConf, rules: BrokerRules) -> bool:
    """Whether a broker with these settings makes files of these sizes."""
    settings = conf.read_as(read_settings(rules)).settings()
    return all((getattr(settings, name) or _DEFAULTS[name]) == size for name, size in sizes.items())


class UnreadSizes(NamedTuple):
    """Sizes whose settings a version does not read."""

    why: str
    way_around: str

    def __str__(self) -> str:
        """Both as a sentence."""
        return f"{self.why}; {self.way_around}"


def unread_sizes(store: Store, conf: BrokerConf | None, rules: BrokerRules) -> UnreadSizes | None:
    """The settings that give the files of a store their size, and that a version does not read.

    A size that a person gives beside the settings goes before them.
    """
    if conf is None:
        return None
    of_any, own = conf.read_as(ANY_VERSION).settings(), conf.settings()
    fields = []
    for name, size in shown_sizes(store).items():
        given = getattr(store.settings, name)
        if getattr(of_any, name) == size and given == getattr(own, name) and (given or _DEFAULTS[name]) != size:
            fields.append(name)
    return renamed_sizes(fields, conf, rules) if fields else None


def renamed_sizes(fields: Sequence[str], conf: BrokerConf, rules: BrokerRules) -> UnreadSizes:
    """What a version makes of sizes, fields of `Settings`, whose names it does not read."""
    unread = [setting_of_size(field, conf.properties) for field in fields]
    known = [setting_of_size(field, read_settings(rules).names or ()) for field in fields]
    expected = [str(getattr(conf.settings(), field) or _DEFAULTS[field]) for field in fields]
    right = [f"{name}={conf.properties[old]}" for name, old in zip(known, unread, strict=True)]
    return UnreadSizes(
        f"{rules.version} does not read {' and '.join(unread)}, which {conf.path} has for the sizes of the files, and "
        f"expects {' and '.join(expected)} bytes",
        f"write {' and '.join(right)} into {conf.path}",
    )

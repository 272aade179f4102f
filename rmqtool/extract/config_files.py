"""The configuration of a new store: topics, consumer groups and consumer offsets of what is in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from rmqtool.store.config.config_json import CONSUMER_OFFSETS, GROUPS, TOPICS, config_bytes
from rmqtool.store.config.read_config import read_config
from rmqtool.store.directory import Store

_TABLES: Final = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable", CONSUMER_OFFSETS: "offsetTable"}

_VERSION: Final = "dataVersion"


def config_files(stores: Sequence[Store], names: Collection[str], *, with_offsets: bool) -> dict[str, bytes]:
    """Contents by path; a file that no store has is left out.

    Where several stores know a topic, the entry with more queues counts; of a group the first one; of the consumer
    offsets of a queue the highest.

    Args:
        names: topics of the new store.
        with_offsets: whether consumers continue where they were.
    """
    joins: dict[str, Callable[[Any, Any], Any]] = {TOPICS: _larger, GROUPS: _first}
    if with_offsets:
        joins[CONSUMER_OFFSETS] = _highest
    contents: dict[str, bytes] = {}
    for path, join in joins.items():
        configs = [config.value for store in stores if (config := read_config(store.view, path)).value is not None]
        table: dict[str, Any] = {}
        for value in configs:
            for key, entry in _table(value, _TABLES[path]).items():
                name = str(key)
                if isinstance(entry, dict) and (path == GROUPS or name.partition("@")[0] in names):
                    table[name] = join(table[name], entry) if name in table else entry
        if configs:
            kept = {name: value for name, value in configs[0].items() if name == _VERSION}
            contents[path] = config_bytes({**kept, _TABLES[path]: table})
    return contents


def _table(value: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    table = value.get(name)
    return table if isinstance(table, dict) else {}


def _first(first: Any, _second: Any) -> Any:
    return first


def _larger(first: Any, second: Any) -> Any:
    return max(first, second, key=_queue_count)


def _queue_count(entry: Mapping[Any, Any]) -> int:
    count = entry.get("writeQueueNums")
    return count if isinstance(count, int) else 0


def _highest(first: Any, second: Any) -> Any:
    joined = {str(queue_id): value for queue_id, value in first.items()}
    for queue_id, value in second.items():
        known = joined.get(str(queue_id))
        if isinstance(value, int) and not (isinstance(known, int) and known > value):
            joined[str(queue_id)] = value
    return joined

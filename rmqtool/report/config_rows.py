"""The configuration of a broker as rows for a table: topic, group and queue in columns of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rmqtool.report.rows import DumpRow

ENTRY_FIELDS: Final = ("file", "table", "topic", "group", "queue_id", "queue_offset", "delay_level", "settings")
"""What an entry has, by its table."""
_OFFSETS: Final = ("offsetTable", "pullOffsetTable", "lmqOffsetTable")
_SETTINGS: Final = {"topicConfigTable": "topic", "subscriptionGroupTable": "group"}
_ORDERED: Final = "table"


def config_entries(row: DumpRow) -> tuple[list[DumpRow], DumpRow | None]:
    """The entries of a configuration row's tables, and the row with what is in none of them; None if nothing is."""
    content = row["content"]
    if not isinstance(content, dict):
        return [], row
    entries: list[DumpRow] = []
    rest = dict(content)
    for name, table in content.items():
        rows = list(_entries(name, table)) if isinstance(table, dict) else []
        if rows:
            entries += [{"file": row["file"], "table": name, **entry} for entry in rows]
            del rest[name]
    return entries, {**row, "content": rest} if rest or not entries else None


def _entries(name: Any, table: Mapping[Any, Any]) -> Iterator[DumpRow]:
    """The rows of a table; none of one that is not known."""
    if name in _SETTINGS:
        for key, settings in table.items():
            yield {"type": f"config-{_SETTINGS[name]}", _SETTINGS[name]: str(key), "settings": _without_name(settings)}
    elif name in _OFFSETS or name == _ORDERED:
        for key, value in table.items():
            topic, separator, group = str(key).partition("@")
            if not separator:
                yield {"type": "config-level", "delay_level": key, "queue_offset": value}
                continue
            place: DumpRow = {"topic": topic, "group": group}
            for queue_id, at in value.items() if isinstance(value, dict) else [(0, value)]:
                if name == _ORDERED:
                    yield {"type": "config-ordered", **place, "queue_id": queue_id, "settings": at}
                else:
                    yield {"type": "config-offset", **place, "queue_id": queue_id, "queue_offset": at}


def _without_name(settings: Any) -> Any:
    """Settings without the name that they repeat."""
    if not isinstance(settings, dict):
        return settings
    return {name: value for name, value in settings.items() if name not in ("topicName", "groupName")}

"""Writes rows as tables while they come: fixed widths, chosen once for the terminal, so that no row is held back.

A table library measures all rows before it draws one; a dump may have millions of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from rmqtool.report.bodies import BODY_FIELDS, DECODED_FIELDS
from rmqtool.report.body_lines import body_lines, decoded_lines, shows_body
from rmqtool.report.columns import TABLES, Column, cell_text, chosen_columns, fitted, line_of
from rmqtool.report.rows import DumpRow, RowBlock
from rmqtool.report.text import escaped, field_lines, padded

WIDTH_MIN: Final = 40
"""A table is never drawn for less; on a narrower terminal its lines wrap."""
WIDE: Final = 120
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"
_MARGIN: Final = "    | "
_BESIDE: Final = frozenset({*BODY_FIELDS, *DECODED_FIELDS, "properties_raw", "bytes"})
"""Fields that stand under a row, not in it."""


class TableWriter:
    """Rows of one kind under one heading; a new heading where the kind changes. Without a width there is no terminal:
    no column is left out, no text cropped. Without fields they are those of the row's kind.
    """

    def __init__(
        self, stream: TextIO, width: int | None, *, color: bool = False, fields: Sequence[str] | None = None
    ) -> None:
        self._stream = stream
        self._width = None if width is None else max(width, WIDTH_MIN)
        self._gap = 2 if width is None or width >= WIDE else 1
        self._kinds: dict[str, tuple[Column, ...] | None] = {}
        self._colour = color
        self._fields = fields
        self._columns: tuple[Column, ...] = ()
        self._heading: tuple[Column, ...] | None = None
        self._begun = False

    def write(self, row: DumpRow) -> None:
        if row["type"] == "config" and self._fields is None:
            entries, rest = config_entries(row)
            if rest is not None:
                self._list(rest)
            for entry in entries:
                self.write(entry)
            return
        columns = self._columns_of(row)
        if columns is not None:
            self._head(columns)
            self._line(line_of(row, self._columns, self._gap, crops=self._width is not None))
        elif row["type"] in ("bad", "blank"):
            self._range(row)
        else:
            self._list(row)
        self._beneath(row)

    def write_block(self, block: RowBlock) -> None:
        for row in block.rows():
            self.write(row)

    def close(self) -> None:
        """Nothing is held back."""

    def _columns_of(self, row: DumpRow) -> tuple[Column, ...] | None:
        """Columns of a row: the requested ones, else those of its kind that it has."""
        kind = row["type"]
        if kind not in self._kinds:
            if self._fields is not None:
                self._kinds[kind] = chosen_columns(self._fields)
            else:
                known = TABLES.get(kind)
                self._kinds[kind] = known and tuple(column for column in known if column.field in row)
        return self._kinds[kind]

    def _head(self, columns: tuple[Column, ...]) -> None:
        if columns == self._heading:
            return
        if self._begun:
            self._line("")
        self._heading = columns
        self._columns = fitted(columns, self._width, self._gap)
        titles = (padded(column.field, column.width, right=column.right) for column in self._columns)
        self._line((" " * self._gap).join(titles).rstrip(), _BOLD)

    def _range(self, row: DumpRow) -> None:
        """A bad range or a blank: its place in the columns of its table, then its kind."""
        if "physical_offset" in row:
            if self._heading is None:
                self._head(TABLES["message"])
            place = f"{row['physical_offset']:>15}{' ' * self._gap}"
        else:
            file = f"{row['file']} " if row.get("file") else ""
            place = f"{escaped(file)}byte {row['file_position']}: "
        text = f"bad: {row['finding']}" if row["type"] == "bad" else "blank to the end of the file"
        self._line(f"{place}{text}, {row['size']} bytes", _RED if row["type"] == "bad" else "")

    def _list(self, row: DumpRow) -> None:
        if self._begun:
            self._line("")
        self._heading = None
        shown = {name: value for name, value in row.items() if name not in {"type", "content"} | _BESIDE}
        width = max(map(len, shown), default=0)
        for name, value in shown.items():
            number = f" ({value})" if name.endswith("_timestamp_ms") else ""
            is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
            text = ", ".join(value) if is_words else cell_text(name, value)
            for line in field_lines(name, f"{escaped(text) or '-'}{number}", width, self._width):
                self._line(line)
        if "content" in row:
            for line in json.dumps(row["content"], indent=2, ensure_ascii=False).split("\n"):
                self._line(escaped(line))

    def _beneath(self, row: DumpRow) -> None:
        """Body, property block and bytes of a row, on lines of their own."""
        if self._fields is not None:
            return
        if "body" in row:
            lines = decoded_lines(row) if "decoder" in row else []
            for line in (*lines, *(body_lines(row) if shows_body(row) else ())):
                self._line(_MARGIN + escaped(line))
        if "properties_raw" in row:
            self._line(f"{_MARGIN}properties: {escaped(row['properties_raw'])}")
        for line in row.get("bytes_text", ()):
            self._line(line)

    def _line(self, text: str, style: str = "") -> None:
        self._begun = True
        self._stream.write(f"{style}{text}{_PLAIN}\n" if style and self._colour else f"{text}\n")


# The configuration of a broker as rows for a table: topic, group and queue in columns of their own.


ENTRY_FIELDS: Final = ("file", "table", "topic", "group", "queue_id", "queue_offset", "delay_level", "settings")
"""Fields of an entry, by its table."""
_OFFSETS: Final = ("offsetTable", "pullOffsetTable", "lmqOffsetTable")
_SETTINGS: Final = {"topicConfigTable": "topic", "subscriptionGroupTable": "group"}
_ORDERED: Final = "table"


def config_entries(row: DumpRow) -> tuple[list[DumpRow], DumpRow | None]:
    """The entries of a configuration row's tables, and the row with all other values; None without any."""
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
    """Rows of a table; none for an unknown one."""
    if name in _SETTINGS:
        for key, settings in table.items():
            if isinstance(settings, dict):  # without the name that they repeat
                shown = {own: settings[own] for own in settings if own not in ("topicName", "groupName")}
            else:
                shown = settings
            yield {"type": f"config-{_SETTINGS[name]}", _SETTINGS[name]: str(key), "settings": shown}
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

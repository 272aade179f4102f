"""The rows that commands give out, with the names, types and order that scripts rely on; messages are made here only.

A row is a dictionary of what JSON can say. The contract is docs/schema/dump.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from rmqtool.formats.java_text import decode_java_utf8
from rmqtool.report import fields
from rmqtool.report.bodies import BodyChoice, StoredBody, body_fields

DumpRow = dict[str, Any]
Buffer = bytes | memoryview

MESSAGE_FIELDS: Final = tuple(field.name for field in fields.MESSAGE_ROW)
"""Fields of a message row, in order."""


def message_fields(body: BodyChoice) -> tuple[str, ...]:
    """The fields of a message row where bodies are asked for like this."""
    return (*MESSAGE_FIELDS, *body.fields, *((fields.PROPERTY_BLOCK.name,) if body.raw else ()))


@dataclass(frozen=True)
class RowBlock:
    """Rows of one kind by their columns, which are made when a writer asks for them; values are texts, numbers, and
    lists and maps of texts, unless `holds_json`.

    `json_parts`, unless it is made of the columns, gives the JSON text of all rows in parts, each valid until the next
    one; it is told the fields, what stands between two rows, and whether the stream carries every character.
    """

    count: int
    fields: tuple[str, ...]
    column: Callable[[str], Sequence[Any]]
    holds_json: bool = False
    json_parts: Callable[[Sequence[str], bytes, bool], Iterator[Buffer]] | None = None

    def rows(self) -> Iterator[DumpRow]:
        return (dict(zip(self.fields, values, strict=True)) for values in zip(*self.columns(), strict=True))

    def columns(self) -> list[Sequence[Any]]:
        return [self.column(name) for name in self.fields]

    def head(self, count: int) -> RowBlock:
        if count >= self.count:
            return self
        return replace(self, count=count, column=lambda name: self.column(name)[:count], json_parts=None)

    def with_fields(self, fields: Sequence[str]) -> RowBlock:
        """The rows with these fields only; one that they do not have is null."""
        own = frozenset(self.fields)
        nothing = [None] * self.count
        return replace(self, fields=tuple(fields), column=lambda name: self.column(name) if name in own else nothing)


def single_rows(rows: Iterable[DumpRow | RowBlock | None]) -> Iterator[DumpRow]:
    """Rows one by one, of blocks too; nothing for None."""
    for row in rows:
        if isinstance(row, RowBlock):
            yield from row.rows()
        elif row is not None:
            yield row


class DecodedRecord(StoredBody, Protocol):
    """Fields of a decoded record that a row needs beside its plain ones (`engine.reading.record.Record` has all)."""

    @property
    def physical_offset(self) -> int: ...
    @property
    def properties_raw(self) -> bytes: ...


def message_row(
    record: DecodedRecord,
    body: BodyChoice,
    *,
    row_type: str = "message",
    finding: str | None = None,
    physical_offset: int,
    body_crc_ok: bool | None = None,
) -> DumpRow:
    """The row of one message; "stale" is one after the end of the commit log, `finding` the id of what is wrong with
    it.

    It may lie elsewhere than it says of itself. Where nobody knows whether its CRC is right, the body is read for it:
    UnreadableError if the disk does not give it.
    """
    row: DumpRow = {"type": row_type, "physical_offset": physical_offset, "finding": finding}
    if body_crc_ok is not None:
        row["body_crc_ok"] = body_crc_ok
    row = {name: row[name] if name in row else message_value(record, name) for name in MESSAGE_FIELDS}
    row |= {"keys": list(row["keys"]), "properties": dict(row["properties"])} | body_fields(record, body)
    if body.raw:
        row[fields.PROPERTY_BLOCK.name] = decode_java_utf8(record.properties_raw)
    return row


def message_value(record: DecodedRecord, name: str) -> Any:
    """The value of a record's field, as its source in `report.fields` says."""
    match fields.MESSAGE_FIELDS[name].source:
        case fields.Code(column, value_of):
            return value_of(getattr(record, column))
        case fields.Number(column):
            return getattr(record, column)
        case fields.Property(key):
            return record.properties.get(key)
        case _:
            return getattr(record, name)


def blank_row(physical_offset: int, size: int) -> DumpRow:
    """The row of a blank that ends a file."""
    return {"type": "blank", "physical_offset": physical_offset, "size": size, "finding": None}


def bad_row(physical_offset: int, size: int, finding: str) -> DumpRow:
    """The row of a range of the log that is no record."""
    return {"type": "bad", "physical_offset": physical_offset, "size": size, "finding": finding}

"""Writes rows in the form that was asked for: table, JSON array, JSON lines or CSV, one row at a time.

A spreadsheet runs a cell of CSV that starts as a formula does, and bodies, keys and topics are text of strangers. So
`csv` has an apostrophe before such text; `csv-raw` has the text as it is. Where the output goes makes no difference: a
pipe may end in a file that somebody opens.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, Protocol, TextIO

from rmqtool.report.rows import Buffer, DumpRow, RowBlock
from rmqtool.report.text import escaped, json_escaped

FOR_PEOPLE: Final = frozenset({"bytes_text"})
"""Fields that only a table shows."""
_GUARDED: Final = re.compile(r"['=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
"""Start of text that a spreadsheet may run, in full width too, or that could be taken for guarded text."""
_NUMBER: Final = re.compile(r"[+-]?\d{1,20}(\.\d{1,20})?", re.ASCII)
"""Text that a spreadsheet takes for a number, which is harmless."""


class OutputFormat(StrEnum):
    """Output format of rows."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    CSV_RAW = "csv-raw"

    @property
    def is_separated(self) -> bool:
        """True if a row is a line of cells, which holds nothing but text and numbers."""
        return self.value not in (*ObjectFormat,)


class ObjectFormat(StrEnum):
    """Output format of a result that is one object and has no rows."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class RowWriter(Protocol):
    """Takes rows one by one, or many of a kind at once, and holds none of them."""

    def write(self, row: DumpRow) -> None:
        """Write one row."""

    def write_block(self, block: RowBlock) -> None:
        """Write many rows."""

    def close(self) -> None:
        """Write the end of the output; without it a JSON array is not finished."""


class JsonWriter:
    """JSON, an object a line: lines of their own, or one array."""

    def __init__(self, stream: TextIO, *, is_array: bool = False) -> None:
        self._stream, self._is_array = stream, is_array
        self._unicode = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")
        self._begun = False

    def write(self, row: DumpRow) -> None:
        self._between_rows()
        self._stream.write(json_text(row, unicode=self._unicode) + ("" if self._is_array else "\n"))

    def write_block(self, block: RowBlock) -> None:
        self._between_rows()
        for part in json_parts(block, b",\n" if self._is_array else b"\n", unicode=self._unicode):
            write_utf8(self._stream, part)
        self._stream.write("" if self._is_array else "\n")

    def close(self) -> None:
        if self._is_array:
            self._stream.write("\n]\n" if self._begun else "[]\n")

    def _between_rows(self) -> None:
        if self._is_array:
            self._stream.write(",\n" if self._begun else "[\n")
            self._begun = True


class CsvWriter:
    """Comma-separated values with a header; lists and objects are JSON text, unprintable characters are escaped.

    Raw ones leave text as it is that a spreadsheet would run.
    """

    def __init__(self, stream: TextIO, fields: Sequence[str], *, is_raw: bool = False) -> None:
        self._fields = tuple(fields)
        self._cell = _csv_cell if is_raw else _guarded_cell
        self._writer = csv.writer(stream, lineterminator="\n")
        self._writer.writerow(self._fields)

    def write(self, row: DumpRow) -> None:
        self._writer.writerow([self._cell(row.get(field)) for field in self._fields])

    def write_block(self, block: RowBlock) -> None:
        block = block.with_fields(self._fields)
        cell = self._cell
        columns = ([value if type(value) is int else cell(value) for value in column] for column in block.columns())
        self._writer.writerows(zip(*columns, strict=True))

    def close(self) -> None:
        """Nothing is held back."""


@dataclass(frozen=True)
class _Selection:
    """Passes on the requested fields; a row that has none of them is skipped."""

    writer: RowWriter
    fields: tuple[str, ...]

    def write(self, row: DumpRow) -> None:
        if any(field in row for field in self.fields):
            self.writer.write({field: row.get(field) for field in self.fields})

    def write_block(self, block: RowBlock) -> None:
        if not set(self.fields).isdisjoint(block.fields):
            self.writer.write_block(block.with_fields(self.fields))

    def close(self) -> None:
        self.writer.close()


def row_writer(
    form: str,
    stream: TextIO,
    all_fields: Sequence[str],
    fields: Sequence[str] | None = None,
    *,
    width: int | None = None,
    color: bool = False,
) -> RowWriter:
    """The writer of a form, with the fields that a person asked for, in this order; CSV's columns are else all that a
    row may have. Without a width there is no terminal.
    """
    if OutputFormat(form).is_separated:
        return CsvWriter(stream, fields or all_fields, is_raw=form == OutputFormat.CSV_RAW)
    if form == "table":
        from rmqtool.report.tables import TableWriter

        return TableWriter(stream, width, color=color, fields=fields)
    writer = JsonWriter(stream, is_array=form == "json")
    return writer if fields is None else _Selection(writer, tuple(dict.fromkeys(fields)))


def json_text(value: Any, *, unicode: bool = True, indent: int | None = None) -> str:
    """JSON text in which nothing but printable characters stands (and line ends, where it is indented); without
    `unicode`, where the stream does not carry every character, all that is not ASCII is escaped.
    """
    if isinstance(value, dict):
        value = {name: part for name, part in value.items() if name not in FOR_PEOPLE}
    text = _encoder(unicode, indent).encode(value)
    return text if not unicode else "\n".join(map(json_escaped, text.split("\n")))


def json_parts(block: RowBlock, separator: bytes, *, unicode: bool) -> Iterator[Buffer]:
    """The rows as `json_text` has them, as parts of UTF-8 text; many at once where their values allow it. The separator
    stands between two rows, with a line end.
    """
    if block.json_parts is not None:
        yield from block.json_parts(block.fields, separator, unicode)
        return
    if not block.holds_json:
        import msgspec

        encoder, buffer, texts = msgspec.json.Encoder(), bytearray(), []
        for row in map(_row_type(block.fields), *block.columns()):
            encoder.encode_into(row, buffer)
            texts.append(msgspec.json.format(buffer, indent=0))
        lines = separator.join(texts)
        if lines.isascii() and b"\x7f" not in lines:
            yield lines
            return
        if unicode:
            yield "\n".join(map(json_escaped, lines.decode("utf-8").split("\n"))).encode("utf-8")
            return
    yield separator.join(json_text(row, unicode=unicode).encode("utf-8") for row in block.rows())


def write_utf8(stream: TextIO, text: Buffer) -> None:
    """Write UTF-8 text, past the stream's encoder where it would make the same bytes of it."""
    binary = getattr(stream, "buffer", None)
    if binary is None or (stream.encoding or "").lower() not in ("utf-8", "utf8"):
        stream.write(str(text, "utf-8"))
        return
    stream.flush()
    rest = memoryview(text)
    while rest:  # a stream without a buffer may take a part only
        rest = rest[binary.write(rest) or 0 :]


@cache
def _row_type(fields: tuple[str, ...]) -> Callable[..., Any]:
    """Type that the library encodes as an object with these fields, faster than a dictionary."""
    import msgspec

    return msgspec.defstruct("Row", fields, gc=False)


@cache
def _encoder(unicode: bool, indent: int | None) -> json.JSONEncoder:
    """One cached encoder of each kind: `json.dumps` makes a new one for every value."""
    return json.JSONEncoder(ensure_ascii=not unicode, indent=indent)


def _guarded_cell(value: Any) -> str | int | None:
    """A cell that no spreadsheet runs; without the apostrophe at its start it equals the result of `_csv_cell`."""
    cell = _csv_cell(value)
    is_guarded = isinstance(value, str) and _GUARDED.match(value) and not _NUMBER.fullmatch(value)
    return f"'{cell}" if is_guarded else cell


def _csv_cell(value: Any) -> str | int | None:
    if isinstance(value, str):
        return value if value.isprintable() else escaped(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    # Numbers, and nothing for None, csv writes by itself.
    return value if value is None or isinstance(value, int) else json_text(value)

"""A table of the data source: what Spark's reader asks of it, and the mode in which it treats what is not sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.errors import RmqtoolError, UnsupportedError
from rmqtool.pipeline.log_parts import log_parts, read_part
from rmqtool.pipeline.message_schema import message_schema
from rmqtool.pipeline.options import SourceOptions
from rmqtool.pipeline.wanted import Wanted


class DamageError(RmqtoolError):
    """A row is not sound, and the mode says that the job ends there."""


class Table(Protocol):
    """One of the tables; everything in it pickles."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def parts(self, filters: Sequence[Wanted]) -> list[Any]:
        """What tasks read, one each; filters are those of the query."""

    def read(self, part: Any, filters: Sequence[Wanted]) -> Iterator[pa.RecordBatch]:
        """The record batches of a part."""


@dataclass(frozen=True)
class Messages:
    """The records of the log."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return message_schema(self.options.profile, self.options.columns)

    def parts(self, filters: Sequence[Wanted]) -> list[Any]:
        wanted = [self.options.wanted, *filters]
        return [part for store in self.options.stores() for part in log_parts(store, wanted, self.options.splitting)]

    def read(self, part: Any, filters: Sequence[Wanted]) -> Iterator[pa.RecordBatch]:
        return read_part(part, with_judgement(self.schema), [self.options.wanted, *filters])


def table_of(options: SourceOptions) -> Table:
    """The table that the options name."""
    if options.table == "messages":
        return Messages(options)
    raise UnsupportedError(f"table {options.table!r} is not there yet")


def with_judgement(schema: pa.Schema) -> pa.Schema:
    """The columns, and those by which a row is told sound, though nobody asks for them."""
    judging = [column for column in message_schema("headers") if column.name in ("finding", "physical_offset", "file")]
    return pa.schema([*schema, *(column for column in judging if column.name not in schema.names)])


def in_mode(batches: Iterator[pa.RecordBatch], schema: pa.Schema, mode: str) -> Iterator[pa.RecordBatch]:
    """The columns of a schema; rows with a finding are kept, left out, or end the job.

    Raises:
        DamageError: such a row, where the mode is `failfast`.
    """
    for batch in batches:
        kept = batch
        if mode != "permissive" and batch["finding"].null_count < batch.num_rows:
            found = pc.is_valid(batch["finding"])
            if mode == "failfast":
                row = batch.filter(found).slice(0, 1).to_pylist()[0]
                place = row.get("physical_offset")
                raise DamageError(f"{row['file']}: {row['finding']}" + (f" at {place}" if place is not None else ""))
            kept = batch.filter(pc.invert(found))
        if kept.num_rows:
            yield kept.select(schema.names)

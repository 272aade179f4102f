"""A table of the data source: what Spark's reader asks of it, and the mode in which it treats what is not sound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.errors import RmqtoolError
from rmqtool.pipeline import findings_table, index_table, queue_table
from rmqtool.pipeline.database_table import DatabaseSplit, database_splits
from rmqtool.pipeline.log_splits import log_splits, read_split
from rmqtool.pipeline.message_schema import chosen, message_schema
from rmqtool.pipeline.options import SourceOptions
from rmqtool.scan.row_filter import RowFilter


class DamageError(RmqtoolError):
    """A row is not sound, and the mode says that the job ends there."""


class Table(Protocol):
    """One of the tables; everything in it pickles."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def parts(self, filters: Sequence[RowFilter]) -> list[Any]:
        """What tasks read, one each; filters are those of the query."""

    def read(self, part: Any, filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
        """The record batches of a part."""


@dataclass(frozen=True)
class MessagesTable:
    """The records of the log."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return message_schema(self.options.profile, self.options.columns)

    def parts(self, filters: Sequence[RowFilter]) -> list[Any]:
        row_filters = [self.options.row_filter, *filters]
        return [
            part for store in self.options.stores() for part in log_splits(store, row_filters, self.options.splitting)
        ]

    def read(self, part: Any, filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
        search, schema = self.options.search, with_judgement(self.schema)
        batches = read_split(
            part, schema if search is None else search.read(schema), [self.options.row_filter, *filters]
        )
        return batches if search is None else search.matches(batches)


@dataclass(frozen=True)
class QueuesTable:
    """The units of consume queues."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return chosen(queue_table.SCHEMA, self.options.columns)

    def parts(self, filters: Sequence[RowFilter]) -> list[Any]:
        row_filters = [self.options.row_filter, *filters]
        return [
            part
            for store in self.options.stores()
            for part in (*queue_table.queue_splits(store, row_filters), *database_splits(store))
        ]

    def read(self, part: Any, filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
        if isinstance(part, DatabaseSplit):
            return part.batches([self.options.row_filter, *filters])
        return queue_table.read_queue_files(part)


@dataclass(frozen=True)
class IndexTable:
    """The entries of index files."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return chosen(index_table.SCHEMA, self.options.columns)

    def parts(self, _filters: Sequence[RowFilter]) -> list[Any]:
        return [part for store in self.options.stores() for part in index_table.index_splits(store)]

    def read(self, part: Any, _filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
        return index_table.read_index_files(part)


@dataclass(frozen=True)
class FindingsTable:
    """What `verify` finds."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return chosen(findings_table.SCHEMA, self.options.columns)

    def parts(self, _filters: Sequence[RowFilter]) -> list[Any]:
        return [findings_table.store_check(store, self.options.broker_version) for store in self.options.stores()]

    def read(self, part: Any, _filters: Sequence[RowFilter]) -> Iterator[pa.RecordBatch]:
        return findings_table.read_findings(part)


def table_of(options: SourceOptions) -> Table:
    """The table that the options name.

    Raises:
        UsageError: another option says nothing about it.
    """
    tables: dict[str, type[MessagesTable | QueuesTable | IndexTable | FindingsTable]] = {
        "messages": MessagesTable,
        "consumequeue": QueuesTable,
        "index": IndexTable,
        "findings": FindingsTable,
    }
    options.check_table()
    return tables[options.table](options)


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
        if mode != "permissive" and "finding" in batch.schema.names and batch["finding"].null_count < batch.num_rows:
            has_finding = pc.is_valid(batch["finding"])
            if mode == "failfast":
                row = batch.filter(has_finding).slice(0, 1).to_pylist()[0]
                place = row.get("physical_offset")
                raise DamageError(f"{row['file']}: {row['finding']}" + (f" at {place}" if place is not None else ""))
            kept = batch.filter(pc.invert(has_finding))
        if kept.num_rows:
            yield kept.select(schema.names)

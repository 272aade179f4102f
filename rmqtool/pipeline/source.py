"""The data source `rocketmq-store`: requests of Spark, each answered by a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rmqtool.errors import UnsupportedError, UsageError
from rmqtool.pipeline.python_worker import keep_what_is_loaded
from rmqtool.pipeline.tables.log_splits import Splitting
from rmqtool.pipeline.tables.options import MESSAGE_TABLES, SourceOptions, own_options
from rmqtool.pipeline.tables.schemas import chosen, commented, options_in
from rmqtool.pipeline.tables.table import Table, in_mode, parts, read_part, table_of, tasks

NAME = "rocketmq-store"


class RocketmqStoreSource(DataSource):
    """Stores of RocketMQ brokers as tables; the options are those of `SourceOptions`.

    Only the columns of the schema that Spark asks for are read, of whatever profile.

    Raises:
        RmqtoolError: an option is wrong, or there is no store.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The table's columns."""
        options = SourceOptions.parse(self.options)
        is_in_catalog = "provider" in self.options
        return commented(table_of(options).schema, options.table, own_options(self.options) if is_in_catalog else None)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reader for the columns of a schema.

        It takes no filters of a query: Spark keeps a reader with its filters for all queries of a data frame
        (`test_a_frame_has_all_rows_after_a_filter_of_it` in tests/pipeline/test_source.py).
        """
        options = SourceOptions.parse(self.options or options_in(schema))
        return TableReader(table_of(replace(options, columns=tuple(schema.names))), schema, options.mode)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        """Stream reader that follows the log.

        Raises:
            UsageError: another table is asked for.
            UnsupportedError: this pyspark cannot bound what a stream reads.
        """
        options = replace(SourceOptions.parse(self.options or options_in(schema)), columns=tuple(schema.names))
        if options.table not in MESSAGE_TABLES:
            raise UsageError(f"the table {options.table} cannot be streamed; {' and '.join(MESSAGE_TABLES)} can")
        try:
            from rmqtool.pipeline.stream import LogStream
        except ImportError as error:
            raise UnsupportedError("streams need pyspark 4.2 or newer") from error
        return LogStream(options, asked_schema(table_of(options), schema))


class TableReader(DataSourceReader):
    """Reads a table that has the columns of a schema."""

    def __init__(self, table: Table, schema: StructType, mode: str) -> None:
        self._table, self._mode = table, mode
        self._schema = asked_schema(table, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task; Spark makes one without a value where there is none."""

        def parts_in(splitting: Splitting) -> list[Any]:
            return parts(table_of(replace(options, splitting=splitting)))

        options = self._table.options
        return [InputPartition(part) for part in tasks(parts_in, options.splitting)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task."""
        for part in partition.value or ():
            yield from in_mode(read_part(self._table, part), self._schema, self._mode)
        keep_what_is_loaded()


def asked_schema(table: Table, schema: StructType) -> pa.Schema:
    """The columns of a schema, as Arrow has them; a schema out of a text says that all may be null.

    Raises:
        UsageError: the table has other types.
    """
    own = chosen(table.schema, tuple(schema.names))
    for given, known in zip(schema.fields, from_arrow_schema(own).fields, strict=True):
        if given.dataType.simpleString() != known.dataType.simpleString():
            raise UsageError(
                f"the column {given.name} is {known.dataType.simpleString()} in the table, not "
                f"{given.dataType.simpleString()}"
            )
    return pa.schema([field.with_nullable(given.nullable) for field, given in zip(own, schema.fields, strict=True)])

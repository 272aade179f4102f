"""The data source `rocketmq-store`: requests of Spark, each answered by a table."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from rmqtool.errors import UnsupportedError, UsageError, WriteError
from rmqtool.pipeline.cluster_sink import ClusterOptions, TaskOfBatch, forget_before, send_rows
from rmqtool.pipeline.python_worker import keep_what_is_loaded
from rmqtool.pipeline.store_sink import SinkOptions, write_store
from rmqtool.pipeline.tables.log_splits import Splitting
from rmqtool.pipeline.tables.options import MESSAGE_TABLES, SourceOptions, own_options
from rmqtool.pipeline.tables.schemas import chosen, commented, options_in
from rmqtool.pipeline.tables.table import Table, in_mode, parts, read_part, table_of, tasks
from rmqtool.store.location import is_url
from rmqtool.store.source import reason

NAME = "rocketmq-store"
WRITE = "write"
"""Names the runs of frames that are sent with one state."""
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""Properties by which Spark tells its tasks what they belong to (`StreamExecution`, `MicroBatchExecution`)."""


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
        options = SourceOptions.parse({**options_in(schema), **own_options(self.options)})
        return TableReader(table_of(replace(options, columns=tuple(schema.names))), schema, options.mode)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        """Stream reader that follows the log.

        Raises:
            UsageError: another table is asked for.
            UnsupportedError: this pyspark cannot bound what a stream reads.
        """
        options = SourceOptions.parse({**options_in(schema), **own_options(self.options)})
        options = replace(options, columns=tuple(schema.names))
        if options.table not in MESSAGE_TABLES:
            raise UsageError(f"the table {options.table} cannot be streamed; {' and '.join(MESSAGE_TABLES)} can")
        try:
            from rmqtool.pipeline.stream import LogStream
        except ImportError as error:
            raise UnsupportedError("streams need pyspark 4.2 or newer") from error
        return LogStream(options, asked_schema(table_of(options), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writer of stores out of frames with columns of the table `messages`; see `store_sink` and `cluster_sink`.

        Raises:
            UsageError: an option is wrong, or the directory is there already.
        """
        del schema, overwrite
        if "to" in self.options:
            return FrameSender(with_state(ClusterOptions.parse(self.options, is_stream=False)))
        return FrameWriter(free_target(self.options), SinkOptions.parse(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSender:  # noqa: N802 - Spark's name
        """Writer of a stream with columns of the table `messages`, into a cluster; see `cluster_sink`.

        Raises:
            UsageError: an option is wrong.
            WriteError: the directory of the state cannot be made.
        """
        del schema, overwrite
        return StreamSender(with_state(ClusterOptions.parse(self.options, is_stream=True)))


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


@dataclass(frozen=True)
class StorePart(WriterCommitMessage):
    """The store that one task has written; None of a task without rows."""

    path: Path | None
    row_count: int = 0


class FrameWriter(DataSourceArrowWriter):
    """Writes a frame as stores, one for each task that has rows; they are where they belong once all are written."""

    def __init__(self, target: Path, options: SinkOptions) -> None:
        self._target, self._options = target, options
        self._staging = target.with_name(f".{target.name}.rmqtool-{uuid.uuid4().hex}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StorePart:
        """Write the rows of a task."""
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        self._staging.mkdir(exist_ok=True)
        staged = self._staging / f"part-{number:05}-{uuid.uuid4().hex}"
        written = write_store(iterator, staged, self._options)
        return StorePart(None) if written is None else StorePart(written.path, written.row_count)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Put the stores into their places: one into the target itself, of several each into a directory of it."""
        parts = [part.path for part in messages if isinstance(part, StorePart) and part.path is not None]
        whole = self._staging / "whole"
        if len(parts) == 1:
            whole = parts[0]
        else:
            whole.mkdir(parents=True)
            for part in parts:
                part.rename(whole / part.name.rpartition("-")[0])
        whole.rename(self._target)
        shutil.rmtree(self._staging, ignore_errors=True)  # what tasks left that failed and were run again

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks have written, those too that were ended."""
        del messages
        shutil.rmtree(self._staging, ignore_errors=True)


class FrameSender(DataSourceArrowWriter):
    """Sends a frame to a cluster; with a state, only what an earlier write with the same one has not sent."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._run = WRITE if options.state is not None else uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of a task."""
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        send_rows(iterator, self._options, TaskOfBatch(self._run, 0, number))
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was sent stays where it is."""


@dataclass(frozen=True)
class SentPart(WriterCommitMessage):
    """What one task has sent, of a query by its id."""

    query: str
    sent: int
    found: int


class StreamSender(DataSourceStreamArrowWriter):
    """Sends each batch; one that is run again, only what no earlier try of it has sent."""

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentPart:
        """Send the rows of a task."""
        context = TaskContext.get()
        assert context is not None, "a stream is sent by tasks"
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None, "a task of a stream knows its query"
        assert batch is not None, "a task of a stream knows its batch"
        rows = send_rows(iterator, self._options, TaskOfBatch(query, int(batch), context.partitionId()))
        return SentPart(query, rows.sent, rows.found)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove what only an earlier batch needed; that of this one stays, for Spark may run it again."""
        for query in {part.query for part in messages if isinstance(part, SentPart)}:
            assert self._options.state is not None, "a stream has one"
            forget_before(self._options.state, query, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """What was sent stays where it is; the next try of the batch finds it."""


def with_state(options: ClusterOptions) -> ClusterOptions:
    """The options, once the directory of their state is there.

    Raises:
        WriteError: it cannot be made.
    """
    if options.state is not None:
        try:
            options.state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(f"{options.state}: {reason(error)}") from error
    return options


def free_target(options: Mapping[str, str]) -> Path:
    """The directory that `save` names, which must not be there yet.

    Raises:
        UsageError: it is there, or is no directory of a file system.
    """
    text = options.get("path", "")
    if not text or (is_url(text) and not text.startswith("file:")):
        raise UsageError("save(path): a directory that all tasks and this program see is expected")
    target = Path(text.removeprefix("file://").removeprefix("file:")).absolute()
    if target.exists():
        raise UsageError(f"{target}: is there already; a store is never written over or appended to")
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent}: no such directory")
    return target

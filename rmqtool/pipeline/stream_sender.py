"""Sends the batches of a stream to a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from rmqtool.pipeline.cluster_sink import ClusterOptions, TaskOfBatch, forget_before, send_rows

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
"""Properties by which Spark tells its tasks what they belong to (`StreamExecution`, `MicroBatchExecution`)."""


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

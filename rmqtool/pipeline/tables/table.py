"""A table of the data source: what Spark's reader asks of it, and the mode in which it treats what is not sound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.engine.rules.topic_names import Delivery
from rmqtool.errors import DamageError, UnreadableError
from rmqtool.pipeline.enums import TableName
from rmqtool.pipeline.tables import findings_table, index_table, queue_table
from rmqtool.pipeline.tables.log_splits import LogSplit, LogTask, Splitting, log_tasks, read_task
from rmqtool.pipeline.tables.options import PLANNING_THREADS, UNREADABLE, SourceOptions, UnreadStore
from rmqtool.pipeline.tables.schemas import arrow_schema, chosen, message_schema
from rmqtool.pipeline.tables.through_queues import QueuesTask, may_be_found, queue_tasks, read_queues_task
from rmqtool.report.fields import INDEX_TABLE, QUEUE_TABLE
from rmqtool.scan.row_filter import RowFilter
from rmqtool.scan.runner import ThreadRunner
from rmqtool.store.directory import Store
from rmqtool.store.view import UnreadPlace


class Table(Protocol):
    """One of the tables; everything in it pickles."""

    @property
    def options(self) -> SourceOptions:
        """Options of the table."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def splits(self, store: Store) -> list[Any]:
        """Splits of a store, one for each task."""

    def unread(self, store: Store) -> list[UnreadPlace]:
        """Parts of a store that cannot be read at all, so that the table lacks their rows: a sentence for each."""

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        """The record batches of a part."""


def parts(table: Table) -> list[Any]:
    """Parts of all stores, one for each task: an `UnreadStore`, or a split of the table.

    Raises:
        NotAStoreError, UnreadableError: no path is a store that can be read.
    """
    ranges = table.options.ranges

    def planned(store: Store | UnreadStore) -> list[Any]:
        if isinstance(store, UnreadStore):
            return [store] if ranges is None else []
        if ranges is not None:
            return table.splits(store) if store.view.label in ranges else []
        unread = [UnreadStore(store.view.label, place.path, UNREADABLE, str(place)) for place in table.unread(store)]
        return [*unread, *table.splits(store)]

    runner = ThreadRunner(PLANNING_THREADS)
    return [part for some in runner.map(planned, table.options.fleet()) for part in some]


def tasks(parts_in: Callable[[Splitting], list[Any]], splitting: Splitting) -> list[list[Any]]:
    """Parts in the groups that a task reads: small files of logs are joined, until they cost as much as a large one.

    Args:
        parts_in: the parts, the log cut as a splitting says; asked again where they are fewer than the minimum.
    """
    parts = parts_in(splitting)
    costs = [_cost(part, splitting.open_bytes) for part in parts]
    most = min(splitting.part_bytes, sum(cost or 0 for cost in costs) // splitting.minimum)
    if splitting.minimum > 1 and splitting.count is None:
        parts = parts_in(replace(splitting, part_bytes=max(1, most)))
        costs = [_cost(part, splitting.open_bytes) for part in parts]
    grouped: list[list[Any]] = []
    left = 0
    for part, cost in zip(parts, costs, strict=True):
        if cost is None or cost > left or splitting.count is not None:
            grouped.append([part])
            left = 0 if cost is None else most - cost
        else:
            grouped[-1].append(part)
            left -= cost
    return grouped


def _cost(part: Any, open_bytes: int) -> int | None:
    """Bytes that a part of a log costs; None of another table, whose parts are joined already."""
    task = part.task if isinstance(part, RangeTask) else part
    if not isinstance(task, tuple) or not all(isinstance(split, LogSplit) for split in task):
        return None
    return sum(split.data_bytes + open_bytes for split in task)


def read_part(table: Table, part: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of a part; a path that is no store is one row."""
    return iter([unread_row(part, table)]) if isinstance(part, UnreadStore) else table.read(part)


def unread_row(unread: UnreadStore, table: Table) -> pa.RecordBatch:
    """The row that says that a path cannot be read; numbers that no row is without are 0."""
    values: dict[str, Any] = {
        "store": unread.store,
        "file": unread.path,
        "finding": unread.finding,
        "id": unread.finding,
        "severity": "warning",
        "message": unread.message,
        "verdict": unread.finding.rpartition(".")[2],
        "type": "bad",
        "count": 1,
        "upstream": [],
    }
    schema = with_judgement(table.schema)
    row = {field.name: values.get(field.name, None if field.nullable else 0) for field in schema}
    return pa.RecordBatch.from_pylist([row], schema)


@dataclass(frozen=True)
class RangeTask:
    """A task that reads only a range of the log of its store."""

    task: LogTask
    between: RowFilter


@dataclass(frozen=True)
class MessagesTable:
    """The records of the log."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return message_schema(self.options.profile, self.options.columns)

    def splits(self, store: Store) -> list[Any]:
        row_filters = [self.options.row_filter]
        ranges = self.options.ranges
        if ranges is None and self.options.through == "queues" and may_be_found(store, row_filters):
            of_queues, behind, after = queue_tasks(store, row_filters, self.options.splitting)
            return [*of_queues, *(RangeTask(task, after) for task in behind)]
        if ranges is None:
            return list(log_tasks(store, row_filters, self.options.splitting))
        low, high = ranges[store.view.label]
        between = RowFilter(from_physical_offset=low, to_physical_offset=high, stale=False)
        tasks = log_tasks(store, [between, *row_filters], self.options.splitting, row_at=low)
        return [RangeTask(task, between) for task in tasks]

    def unread(self, store: Store) -> list[UnreadPlace]:
        directories = store.settings.commitlog_directories or ("commitlog",)
        problems = _problems_in(store, directories)
        if store.is_log_listed or problems:
            return problems
        return [UnreadPlace(directories[0], "the directory of the log cannot be listed")]

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        search, schema = self.options.search, with_judgement(self.schema)
        row_filters = [self.options.row_filter]
        if isinstance(part, RangeTask):
            row_filters, part = [part.between, *row_filters], part.task
        is_business = self.options.table == TableName.BUSINESS_MESSAGES.value
        if is_business:
            schema = with_columns(schema, ("type", "delivery", "transaction"))
        read = read_queues_task if isinstance(part, QueuesTask) else read_task
        batches = read(part, schema if search is None else search.read(schema), row_filters)
        if is_business:
            batches = business_rows(batches)
        return batches if search is None else search.matches(batches)


@dataclass(frozen=True)
class QueuesTable:
    """The units of consume queues."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return chosen(arrow_schema(QUEUE_TABLE), self.options.columns)

    def splits(self, store: Store) -> list[Any]:
        row_filters = [self.options.row_filter]
        return [*queue_table.queue_splits(store, row_filters), *queue_table.database_splits(store)]

    def unread(self, store: Store) -> list[UnreadPlace]:
        return _problems_in(store, ("consumequeue", "batchconsumequeue"))

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(part, queue_table.DatabaseSplit):
            return queue_table.read_database(part, [self.options.row_filter])
        return queue_table.read_queue_files(part)


@dataclass(frozen=True)
class IndexTable:
    """The entries of index files."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return chosen(arrow_schema(INDEX_TABLE), self.options.columns)

    def splits(self, store: Store) -> list[Any]:
        return list(index_table.index_splits(store))

    def unread(self, store: Store) -> list[UnreadPlace]:
        return _problems_in(store, ("index",))

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        return index_table.read_index_files(part)


@dataclass(frozen=True)
class FindingsTable:
    """Table of the findings of `verify`."""

    options: SourceOptions

    @property
    def schema(self) -> pa.Schema:
        return chosen(findings_table.SCHEMA, self.options.columns)

    def splits(self, store: Store) -> list[Any]:
        return [findings_table.store_check(store, self.options.broker_version)]

    def unread(self, _store: Store) -> list[UnreadPlace]:
        return []  # these are findings

    def read(self, part: Any) -> Iterator[pa.RecordBatch]:
        try:
            yield from findings_table.read_findings(part)
        except UnreadableError as error:
            label = part.store.view.label
            yield unread_row(UnreadStore(label, "", UNREADABLE, str(error)), self)


def _problems_in(store: Store, directories: Sequence[str]) -> list[UnreadPlace]:
    """Paths in some of a store's directories that could not be read."""
    return [place for place in store.unread_places if place.path.startswith(tuple(directories))]


def table_of(options: SourceOptions) -> Table:
    """The table that the options name.

    Raises:
        UsageError: another option says nothing about it.
    """
    tables: dict[str, type[MessagesTable | QueuesTable | IndexTable | FindingsTable]] = {
        "messages": MessagesTable,
        "business_messages": MessagesTable,
        "consumequeue": QueuesTable,
        "index": IndexTable,
        "findings": FindingsTable,
    }
    options.check_table()
    return tables[options.table](options)


def with_columns(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """The columns of messages, and others, even if not requested."""
    lacking = tuple(name for name in names if name not in schema.names)
    return pa.schema([*schema, *message_schema("headers", lacking)]) if lacking else schema


def with_judgement(schema: pa.Schema) -> pa.Schema:
    """The columns of messages, and those that show if a row is intact, even if not requested."""
    return with_columns(schema, ("file", "physical_offset", "finding"))


def business_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each message that consumers of its topic get, as it was sent, and what is not sound: it may hide one.

    Left out are records that wait (half messages, delays, timers), that came again after a consumer failed, and the
    broker's own.
    """
    for batch in batches:
        is_ended = pc.is_in(batch["transaction"], pa.array(["none", "commit"]))
        is_sent = pc.and_(pc.equal(batch["delivery"], Delivery.NORMAL.value), is_ended)
        is_sent = pc.and_(is_sent, pc.equal(batch["type"], "message"))
        yield batch.filter(pc.or_(pc.fill_null(is_sent, fill_value=False), pc.is_valid(batch["finding"])))


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
            yield pa.RecordBatch.from_arrays([kept[name] for name in schema.names], schema=schema)

"""Findings of many stores in one job: tasks check slices of the log of a large store, and their results are joined.

A slice is that of `verify --slice`: some of the log's files. Its task reads all queues and the index of the store,
because each record is compared with them. What only all slices together show (a message without a unit, the end of
the log, the checkpoint) is judged by one task for each store, which gets their results and does not read the log.
These results go from task to task, never through the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from rmqtool.errors import UnreadableError
from rmqtool.pipeline.python_worker import keep_what_is_loaded
from rmqtool.pipeline.tables.column_comments import commented
from rmqtool.pipeline.tables.findings_table import StoreCheck, finding_row
from rmqtool.pipeline.tables.options import UNREADABLE, SourceOptions, UnreadStore
from rmqtool.pipeline.tables.table import Table, parts, table_of, unread_row
from rmqtool.scan.runner import Item, Result
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.match.split_check import SplitFile
from rmqtool.verify.run import verify_store
from rmqtool.verify.survey.context import VerifyOptions
from rmqtool.verify.survey.result import SplitResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOINS_PER_CORE: Final = 32
"""Tasks, at most, that join results of stores, for each core of the cluster."""
Row = dict[str, Any]


@dataclass(frozen=True)
class SliceCheck:
    """The check of one slice of a store's log, or of the whole store if there is no other slice.

    Attributes:
        store_number: of the store in its job.
        store: what is checked; a path that is no store is one row.
        number: of the slice, from 1.
    """

    store_number: int
    store: StoreCheck | UnreadStore
    number: int = 1
    count: int = 1


@dataclass(frozen=True)
class CheckedSlice:
    """What the check of a slice yields: the rows of a whole store, or the results of the slice."""

    done: SliceCheck
    rows: tuple[Row, ...] = ()
    results: tuple[SplitResult, ...] = ()


def findings_frame(session: SparkSession, options: SourceOptions) -> DataFrame:
    """The table `findings`, made by a job of two stages; the rows are those of `verify`.

    Raises:
        UsageError: an option is wrong.
        NotAStoreError, UnreadableError: no path is a store that can be read.
    """
    table = table_of(options)
    checks = slice_checks(table)
    context = session.sparkContext
    join_count = min(checks[-1].store_number + 1, JOINS_PER_CORE * context.defaultParallelism)
    checked = context.parallelize(checks, len(checks)).map(partial(_keyed, table)).groupByKey(join_count)
    rows = checked.flatMap(partial(_values, table))
    return session.createDataFrame(rows, commented(table.schema, options.table), verifySchema=False)


def slice_checks(table: Table) -> list[SliceCheck]:
    """The tasks of a job: of each store as many as its log is worth.

    Raises:
        NotAStoreError, UnreadableError: no path is a store that can be read.
    """
    checks = []
    for number, store in enumerate(parts(table, [])):
        count = slice_count(store, table.options.splitting.part_bytes) if isinstance(store, StoreCheck) else 1
        checks += [SliceCheck(number, store, slice_number, count) for slice_number in range(1, count + 1)]
    return checks


def slice_count(check: StoreCheck, slice_bytes: int) -> int:
    """In how many slices a store is checked: each reads at least `slice_bytes` of the log, and all else besides.

    All slices together read less of what is beside the log than the log has. A store that a broker uses is one slice,
    because its slices would see different ends of the log.
    """
    segments = check.store.commitlog
    log_bytes = sum(segment.entry.allocated_bytes or segment.size for segment in segments)
    of_all = sum(entry.allocated_bytes or entry.size for entries in check.store.files.values() for entry in entries)
    beside = max(1, of_all - log_bytes)
    count = min(len(segments), log_bytes // slice_bytes, log_bytes // beside)
    return max(1, count) if not check.is_in_use() else 1


def check_slice(task: SliceCheck, table: Table) -> CheckedSlice:
    """Check one slice."""
    if isinstance(task.store, UnreadStore):
        return CheckedSlice(task, tuple(unread_row(task.store, table).to_pylist()))
    if task.count == 1:
        return CheckedSlice(task, tuple(all_findings(task.store, {}, table)))
    kept = _KeepsResults()
    options = VerifyOptions(threads=1, slice_number=task.number, slice_count=task.count)
    with suppress(UnreadableError):  # the join meets the same, and says so
        verify_store(task.store.store, task.store.chosen_rules(), options, runner=kept)
    return CheckedSlice(task, results=tuple(kept.results))


def all_findings(check: StoreCheck, results: Mapping[str, SplitResult], table: Table) -> list[Row]:
    """The rows of a store, of whose log some files have been checked.

    Args:
        results: of the files, by path.
    """
    findings: list[Finding] = []
    is_in_use = check.is_in_use()
    runner = None if is_in_use or not results else _TakesResults(results)
    try:
        options = VerifyOptions(threads=1, broker_runs=is_in_use)
        verify_store(check.store, check.chosen_rules(), options, findings.append, runner=runner)
    except UnreadableError as error:
        unread = UnreadStore(check.store.view.label, "", UNREADABLE, str(error))
        return [*(finding_row(check.store, one) for one in findings), *unread_row(unread, table).to_pylist()]
    return [finding_row(check.store, one) for one in findings]


def joined(checked: Iterable[CheckedSlice], table: Table) -> list[Row]:
    """The rows of a store, out of what its slices yielded."""
    slices = list(checked)
    rows = [row for one in slices for row in one.rows]
    if slices[0].done.count == 1:
        return rows
    store = slices[0].done.store
    assert isinstance(store, StoreCheck), "what is no store has one slice"
    return all_findings(store, {result.path: result for one in slices for result in one.results}, table)


@dataclass(frozen=True)
class _KeepsResults:
    """Runs the splits of a slice one by one, and keeps what each yields; see `scan.runner.Runner`."""

    results: list[SplitResult] = field(default_factory=list)

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            result = work(item)
            if isinstance(result, SplitResult):
                self.results.append(deepcopy(result))  # whoever takes it says its findings and forgets them
            yield result


@dataclass(frozen=True)
class _TakesResults:
    """Hands out what slices have yielded; a file that is new since then is checked now."""

    results: Mapping[str, SplitResult]

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            result = self.results.get(cast(SplitFile, item)[1])
            yield work(item) if result is None else cast(Result, result)


def _keyed(table: Table, task: SliceCheck) -> tuple[int, CheckedSlice]:
    try:
        return task.store_number, check_slice(task, table)
    finally:
        keep_what_is_loaded()


def _values(table: Table, store: tuple[int, Iterable[CheckedSlice]]) -> Iterator[tuple[Any, ...]]:
    """The rows of a store as Spark takes them."""
    for row in joined(store[1], table):
        yield tuple(row[name] for name in table.schema.names)
    keep_what_is_loaded()

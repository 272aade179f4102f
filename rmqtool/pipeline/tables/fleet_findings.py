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
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import NotAStoreError, UnreadableError
from rmqtool.findings.finding import Finding
from rmqtool.pipeline.python_worker import keep_what_is_loaded
from rmqtool.pipeline.tables.findings_table import StoreCheck, finding_row
from rmqtool.pipeline.tables.options import UNREADABLE, SourceOptions, UnreadStore
from rmqtool.pipeline.tables.schemas import commented
from rmqtool.pipeline.tables.table import Table, parts, table_of, unread_row
from rmqtool.report.json_schemas import JsonRow
from rmqtool.scan.runner import Item, Result
from rmqtool.store.directory import Settings, survey
from rmqtool.store.remote import without_listing
from rmqtool.store.view import StoreView
from rmqtool.verify.match.split_check import SplitFile
from rmqtool.verify.run import OnFinding, verify_store
from rmqtool.verify.survey.context import VerifyOptions
from rmqtool.verify.survey.result import SplitResult, Summary

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

JOINS_PER_CORE: Final = 32
"""Tasks, at most, that join results of stores, for each core of the cluster."""


@dataclass(frozen=True)
class StorePlace:
    """A store that a task lists by itself: with a listing in each, the tasks of a log grow with its files squared."""

    view: StoreView
    settings: Settings
    rules: BrokerRules | None

    @classmethod
    def of(cls, check: StoreCheck) -> StorePlace:
        return cls(without_listing(check.store.view), check.store.settings, check.rules)

    def check(self) -> StoreCheck:
        """The store as it is now.

        Raises:
            NotAStoreError, UnreadableError: it has gone, or may not be read.
        """
        return StoreCheck(survey(self.view, self.settings), self.rules)


@dataclass(frozen=True)
class SliceCheck:
    """The check of one slice of a store's log, or of the whole store if there is no other slice.

    Attributes:
        store_number: of the store in its job.
        store: what is checked; a path that is no store is one row. The first slice of a store has its listing.
        number: of the slice, from 1.
    """

    store_number: int
    store: StoreCheck | StorePlace | UnreadStore
    number: int = 1
    count: int = 1


@dataclass(frozen=True)
class CheckedSlice:
    """Result for a slice: the rows of a whole store, or the results of the slice."""

    done: SliceCheck
    rows: tuple[JsonRow, ...] = ()
    results: tuple[SplitResult, ...] = ()


def findings_frame(session: SparkSession, options: SourceOptions) -> DataFrame:
    """The table `findings`, made by a job of two stages; the rows are those of `verify`.

    Raises:
        UsageError: an option is wrong.
        NotAStoreError, UnreadableError: no path is a store that can be read.
    """
    table = table_of(options)
    rows = checked_rows(session, parts(table), FindingRows(table), options.splitting.part_bytes)
    values = rows.map(partial(_values, table.schema.names))
    return session.createDataFrame(values, commented(table.schema, options.table), verifySchema=False)


def checked_rows(
    session: SparkSession, stores: Sequence[StoreCheck | UnreadStore], maker: StoreRows, slice_bytes: int
) -> RDD[JsonRow]:
    """The rows of all stores, in their order; a job of two stages makes them when they are read.

    Args:
        slice_bytes: of a log that a task checks at least.
    """
    checks = slice_checks(stores, slice_bytes)
    context = session.sparkContext
    join_count = max(1, min(len(stores), JOINS_PER_CORE * context.defaultParallelism))
    checked = context.parallelize(checks, len(checks)).map(partial(_keyed, maker))
    together = partial(_partition_of, len(stores), join_count)
    return checked.repartitionAndSortWithinPartitions(join_count, together).mapPartitions(partial(_joined, maker))


def streamed_rows(rows: RDD[JsonRow]) -> Iterator[JsonRow]:
    """The rows on the driver, which holds one partition at a time; tasks make them first, and keep them on disk."""
    from pyspark import StorageLevel

    kept = rows.persist(StorageLevel.DISK_ONLY)
    try:
        kept.count()  # all partitions at once; the iterator runs a job for each
        yield from kept.toLocalIterator()
    finally:
        kept.unpersist()


def slice_checks(stores: Sequence[StoreCheck | UnreadStore], slice_bytes: int) -> list[SliceCheck]:
    """The tasks of a job: of each store as many as its log is worth."""
    checks = []
    for number, store in enumerate(stores):
        count = slice_count(store, slice_bytes) if isinstance(store, StoreCheck) else 1
        checks.append(SliceCheck(number, store, 1, count))
        if isinstance(store, StoreCheck):
            place = StorePlace.of(store)
            checks += [SliceCheck(number, place, slice_number, count) for slice_number in range(2, count + 1)]
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


def check_slice(task: SliceCheck, maker: StoreRows) -> CheckedSlice:
    """Check one slice."""
    store = task.store
    if isinstance(store, UnreadStore):
        return CheckedSlice(task, tuple(maker.of_unread(store)))
    if isinstance(store, StoreCheck) and task.count == 1:
        return CheckedSlice(task, tuple(maker.of_store(store)))
    kept = _KeepsResults()
    options = replace(maker.verify_options, slice_number=task.number, slice_count=task.count)
    with suppress(NotAStoreError, UnreadableError):  # the join meets the same, and says so
        check = store.check() if isinstance(store, StorePlace) else store
        verify_store(check.store, check.chosen_rules(), options, runner=kept)
    return CheckedSlice(task, results=tuple(kept.results))


def joined(checked: Iterable[CheckedSlice], maker: StoreRows) -> list[JsonRow]:
    """The rows of a store, from the results of its slices."""
    slices = list(checked)
    rows = [row for one in slices for row in one.rows]
    if slices[0].done.count == 1:
        return rows
    store = slices[0].done.store
    assert isinstance(store, StoreCheck), "what is no store has one slice"
    return maker.of_store(store, {result.path: result for one in slices for result in one.results})


class StoreRows(Protocol):
    """Makes rows out of the check of a store; it pickles."""

    @property
    def verify_options(self) -> VerifyOptions:
        """Options for the check of stores."""

    def of_unread(self, unread: UnreadStore) -> list[JsonRow]:
        """The rows of a path that cannot be read as a store."""

    def of_store(self, check: StoreCheck, results: Mapping[str, SplitResult] | None = None) -> list[JsonRow]:
        """The rows of a store; `results` are those of files of its log that have been checked, by path."""


@dataclass(frozen=True)
class FindingRows:
    """The rows of the table `findings`."""

    table: Table
    verify_options: VerifyOptions = field(default_factory=partial(VerifyOptions, threads=1))

    def of_unread(self, unread: UnreadStore) -> list[JsonRow]:
        return cast(list[JsonRow], unread_row(unread, self.table).to_pylist())

    def of_store(self, check: StoreCheck, results: Mapping[str, SplitResult] | None = None) -> list[JsonRow]:
        findings: list[Finding] = []
        unread = []
        try:
            check_store(check, check.chosen_rules(), self.verify_options, results, findings.append)
        except UnreadableError as error:
            unread = self.of_unread(UnreadStore(check.store.view.label, "", UNREADABLE, str(error)))
        return [*(finding_row(check.store, one) for one in findings), *unread]


def check_store(
    check: StoreCheck,
    rules: BrokerRules,
    options: VerifyOptions,
    results: Mapping[str, SplitResult] | None,
    on_finding: OnFinding,
) -> Summary:
    """Check a store, of whose log some files have been checked.

    Args:
        results: of the files, by path.

    Raises:
        UnreadableError: it cannot be read on.
    """
    is_in_use = check.is_in_use()
    runner = None if is_in_use or not results else _TakesResults(results)
    return verify_store(check.store, rules, replace(options, broker_runs=is_in_use), on_finding, runner=runner)


@dataclass(frozen=True)
class _KeepsResults:
    """A `scan.runner.Runner` that runs the splits of a slice one by one, and keeps their results."""

    results: list[SplitResult] = field(default_factory=list)

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            result = work(item)
            if isinstance(result, SplitResult):
                self.results.append(deepcopy(result))  # whoever takes it says its findings and forgets them
            yield result


@dataclass(frozen=True)
class _TakesResults:
    """Returns the results of slices; a file that is new since then is checked now."""

    results: Mapping[str, SplitResult]

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        for item in items:
            result = self.results.get(cast(SplitFile, item)[1])
            yield work(item) if result is None else cast(Result, result)


def _keyed(maker: StoreRows, task: SliceCheck) -> tuple[tuple[int, int], CheckedSlice]:
    try:
        return (task.store_number, task.number), check_slice(task, maker)
    finally:
        keep_what_is_loaded()


def _partition_of(store_count: int, join_count: int, key: tuple[int, int]) -> int:
    """Partition for a store: consecutive stores are joined by one task, so that their order stays."""
    return key[0] * join_count // store_count


def _joined(maker: StoreRows, checked: Iterable[tuple[tuple[int, int], CheckedSlice]]) -> Iterator[JsonRow]:
    for _, of_store in groupby(checked, key=lambda one: one[0][0]):
        yield from joined((done for _, done in of_store), maker)
    keep_what_is_loaded()


def _values(names: Sequence[str], row: JsonRow) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)

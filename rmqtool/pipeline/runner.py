"""Runs splits of work on Spark, in the order of the splits: the other runner beside threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic

from rmqtool.errors import RmqtoolError
from rmqtool.pipeline.python_worker import keep_what_is_loaded
from rmqtool.scan.runner import Item, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAVES: Final = 32
"""Items for each core of the cluster that one job has: few, so that results come while the rest still runs."""


@dataclass(frozen=True)
class SparkRunner:
    """See `scan.runner.Runner`; each item is a task. Where a task dies with its machine, Spark runs it again."""

    session: SparkSession

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Results in the order of the items, a job for some of them at a time.

        Raises:
            RmqtoolError: the one that the work raised.
        """
        context = self.session.sparkContext
        step = max(1, WAVES * context.defaultParallelism)
        for first in range(0, len(items), step):
            some = items[first : first + step]
            for outcome in context.parallelize(some, len(some)).map(_Guarded(work)).collect():
                if isinstance(outcome, RmqtoolError):
                    raise outcome
                yield outcome


@dataclass(frozen=True)
class _Guarded(Generic[Item, Result]):
    """Work whose own errors are results: Spark would repeat it three times, and wrap what it raised."""

    work: Callable[[Item], Result]

    def __call__(self, item: Item) -> Result | RmqtoolError:
        try:
            return self.work(item)
        except RmqtoolError as error:
            return error
        finally:
            keep_what_is_loaded()

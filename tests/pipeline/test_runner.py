"""The work that Spark is given: tasks that are worth their start, in processes that stay quick from task to task."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from rmqtool.errors import UsageError
from rmqtool.pipeline.frames import SPLIT_BYTES_MAX, split_bytes
from rmqtool.pipeline.session import SparkRunner, SparkSettings, spark_session
from rmqtool.pipeline.tables.log_splits import PART_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("log_bytes", "cores", "size"),
    [(0, 2, PART_BYTES), (4 << 30, 1, SPLIT_BYTES_MAX), (4 << 30, 4, 512 << 20), (1 << 40, 10_000, PART_BYTES)],
)
def test_a_task_reads_as_much_as_leaves_work_for_all(log_bytes: int, cores: int, size: int) -> None:
    assert split_bytes(log_bytes, cores) == size


def test_results_come_in_the_order_of_the_items(spark: SparkSession) -> None:
    assert list(SparkRunner(spark).map(lambda item: item * item, range(100))) == [item * item for item in range(100)]


def test_an_error_of_the_work_is_that_error(spark: SparkSession) -> None:
    def work(_item: int) -> int:
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        list(SparkRunner(spark).map(work, [1]))


def test_what_a_worker_has_loaded_is_not_looked_at_after_each_task(spark: SparkSession) -> None:
    counts = [list(SparkRunner(spark).map(lambda _item: gc.get_freeze_count(), range(8))) for _ in range(2)]
    assert max(counts[1]) > 10_000


def test_a_session_that_was_there_before_stays(spark: SparkSession) -> None:
    with spark_session(SparkSettings("local[2]")) as session:
        assert session.range(3).count() == 3
    assert spark.range(3).count() == 3

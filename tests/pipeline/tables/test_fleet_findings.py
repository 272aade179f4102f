"""Findings of stores whose logs are checked in slices are those of a check in one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_rocketmq
from benchmarks.logs import write_log
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.pipeline.frames import table_frame
from rmqtool.pipeline.tables.findings_table import StoreCheck
from rmqtool.pipeline.tables.fleet_findings import FindingRows, SliceCheck, check_slice, joined, slice_checks
from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.table import Table, parts, table_of
from tests.conftest import Unpacked
from tests.golden_stores import names
from tests.pipeline.tables.test_table import table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_SIZE = 1 << 20
LARGE = [name for name, damage in DAMAGES.items() if "many-files" in damage.recipes][::12]
"""Some of the damages of a log of many files."""


def rows_of_slices(store: Path, count: int) -> list[dict[str, Any]]:
    """The rows of a store that is checked in slices, in this process."""
    table: Table = table_of(SourceOptions.parse({"path": str(store), "table": "findings"}))
    [check], maker = parts(table), FindingRows(table)
    return joined([check_slice(SliceCheck(0, check, number, count), maker) for number in range(1, count + 1)], maker)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name.startswith("5.5.0-")])
def test_slices_of_a_golden_store_find_the_same(golden: Unpacked, name: str) -> None:
    path = golden(name)
    expected = table_rows(path, table="findings")
    for count in (2, 5):
        assert rows_of_slices(path, count) == expected


@pytest.mark.parametrize("damage", LARGE)
def test_slices_of_a_damaged_store_find_the_same(tmp_path: Path, damage: str) -> None:
    path, recipe = tmp_path / "store", RECIPES["many-files"]
    make_store(recipe, path, "5.5.0")
    damage_store(DAMAGES[damage], path, 0, recipe.conf.settings())
    assert rows_of_slices(path, 3) == table_rows(path, table="findings")


def test_a_large_log_is_as_many_tasks_as_it_is_worth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path / "large" / "commitlog", 6, FILE_SIZE, 1000)
    write_log(tmp_path / "small" / "commitlog", 1, FILE_SIZE, 1000)
    (tmp_path / "none").mkdir()
    given = {"path": str(tmp_path / "*"), "table": "findings"}

    def counts() -> list[tuple[int, int]]:
        stores = parts(table_of(SourceOptions.parse(given)))
        return [(task.store_number, task.count) for task in slice_checks(stores, 2 * FILE_SIZE)]

    assert counts() == [(0, 3), (0, 3), (0, 3), (1, 1), (2, 1)]
    monkeypatch.setattr(StoreCheck, "is_in_use", lambda _check: True)
    assert counts() == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.spark
def test_a_fleet_is_one_job_without_rows_on_the_driver(spark: SparkSession, golden: Unpacked, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet"
    write_log(fleet / "large" / "commitlog", 6, FILE_SIZE, 1000)
    for name in ("5.5.0-damage-flip-body-middle-file", "5.5.0-clean-basic"):
        (fleet / name).symlink_to(golden(name))
    (fleet / "none").mkdir()
    options = {"path": str(fleet / "*"), "table": "findings", "split_bytes": str(FILE_SIZE)}
    frame = table_frame(spark, options)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    frame.write.parquet(str(tmp_path / "out"))
    [job] = set(tracker.getJobIdsForGroup(None)) - before
    information = tracker.getJobInfo(job)
    assert information is not None
    stages = [tracker.getStageInfo(stage) for stage in information.stageIds]
    assert sorted(stage.numTasks for stage in stages if stage is not None) == [4, 9]
    found = [row.asDict() for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    expected = [
        {name: row[name] for name in frame.columns}  # what cannot be read has one more inside the data source
        for row in table_rows(fleet / "*", table="findings")
    ]
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert {Path(row["store"]).name for row in expected} >= {"large", "none", "5.5.0-damage-flip-body-middle-file"}
    few = pyspark_rocketmq.findings(spark, str(fleet / "*"), columns="id,store")
    assert few.columns == ["id", "store"]
    assert few.count() == len(expected)

"""Every golden and every generated store on Spark: what the same command does in the process, byte for byte.

The rows of the golden stores' tables are compared with their dumps in test_source.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.commands.transcripts import Ran, rmqtool
from tests.conftest import Unpacked
from tests.golden_stores import broker_names, names
from tests.pipeline.stores import contents
from tests.pipeline.test_source import rows_are_the_dump
from tests.repair.golden_repairs import config_of
from tests.test_damage_matrix import STORES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECIPE_STORES = {f"{version}-{name}": (version, name) for version, name in STORES}
DAMAGED = {f"{version}-{name}": (version, name) for version, _ in STORES[:1] for name in DAMAGES}


def same_verdict(run: Callable[..., Ran], store: Path, *options: str) -> None:
    """Findings, the sentence above them and the exit code."""
    for form in ("jsonl", "table"):
        command = ("verify", store, "--format", form, *options)
        local, spark = rmqtool(*command), run(*command)
        assert (spark.code, without_duration(spark.out)) == (local.code, without_duration(local.out)), spark.err


def without_duration(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("Checked "))


def same_rebuild(run: Callable[..., Ran], store: Path, tmp_path: Path, *options: str) -> int:
    """Queues, index and checkpoint that are built from nothing; the exit code."""
    command = ("rebuild", store, "--yes", *options, "--output")
    local, spark = rmqtool(*command, tmp_path / "local"), run(*command, tmp_path / "spark")
    assert spark.code == local.code, spark.err
    if local.code == 0 or (tmp_path / "local").exists():
        assert contents(tmp_path / "spark") == contents(tmp_path / "local")
    return local.code


@pytest.mark.parametrize("name", [*names(), *broker_names()])
def test_a_golden_store_is_verified_and_rebuilt(run: Any, golden: Unpacked, tmp_path: Path, name: str) -> None:
    options = ("--broker-version", config_of(name)[0])
    same_verdict(run, golden(name), *options)
    same_rebuild(run, golden(name), tmp_path, *options)


@pytest.mark.parametrize("name", RECIPE_STORES)
def test_a_generated_store_is_read_verified_and_rebuilt(
    run: Any, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    version, recipe = RECIPE_STORES[name]
    store = tmp_path / recipe
    make_store(RECIPES[recipe], store, version)
    for splits in (1, 2, 7):
        rows_are_the_dump(spark, [store], splits)
    same_verdict(run, store, "--broker-version", version)
    assert same_rebuild(run, store, tmp_path, "--broker-version", version) in (0, 4)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_store_is_read_verified_and_rebuilt(run: Any, spark: SparkSession, tmp_path: Path, name: str) -> None:
    version, damage = DAMAGED[name]
    recipe = next((each for each in DAMAGES[damage].recipes if (version, each) in STORES), None)
    if recipe is None:
        version, recipe = "5.5.0", DAMAGES[damage].recipes[0]
    store = tmp_path / recipe
    make_store(RECIPES[recipe], store, version)
    damage_store(DAMAGES[damage], store, 0, RECIPES[recipe].conf.settings())
    for splits in (1, 2, 7):
        rows_are_the_dump(spark, [store], splits)
    same_verdict(run, store, "--broker-version", version)
    same_rebuild(run, store, tmp_path, "--broker-version", version)

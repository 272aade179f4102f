"""What commands print does not depend on how the log is read: some stores each day, hundreds in the slow run."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.scan import compiled
from rmqtool.scan.row_cache import RowCache
from rmqtool.scan.walk import PlainReader
from tests.broker.toolchain import require_tools
from tests.commands.transcripts import rmqtool
from tests.golden_stores import FOLDER, SUFFIX
from tests.same_results import damaged, differences, fast, golden, judged, plain, small

NAMES = sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob(f"*{SUFFIX}"))
DAMAGED, JUDGED = 450, 275


def test_a_damaged_store_gets_the_same_results(tmp_path: Path) -> None:
    assert [str(each) for sample in damaged(1, 2, tmp_path) for each in differences(sample)] == []


def test_a_stale_tail_is_one_finding_in_however_many_chunks(tmp_path: Path) -> None:
    store, recipe = tmp_path / "store", RECIPES["timer"]
    make_store(recipe, store, "5.5.0")
    damage_store(DAMAGES["log-stale-tail"], store, 47, recipe.conf.settings())
    line = ("verify", "--format", "json", store)
    expected = rmqtool(*line)
    with small():
        assert rmqtool(*line) == expected
    assert expected.out.count('"id": "commitlog.stale-tail"') == 1


def test_the_ways_of_reading_differ(tmp_path: Path) -> None:
    """The plain way loads no kernel and answers nothing from what was read; the fast way does both."""
    for sample in golden(["5.5.0-damage-cq-last-file-zero-last-entry-missing-abort"], tmp_path):
        line = ("recover", "--full", "--dry-run", *sample.options, "--format", "json", sample.path)
        with (
            plain(),
            patch.object(compiled.CompiledReader, "run", side_effect=AssertionError),
            patch.object(RowCache, "_answered", side_effect=AssertionError),
        ):
            slow = rmqtool(*line)
        with fast(), patch.object(PlainReader, "run", side_effect=AssertionError):
            assert rmqtool(*line) == slow
        assert list(differences(sample)) == []


@pytest.mark.slow
def test_golden_stores_get_the_same_results(tmp_path: Path) -> None:
    assert [str(each) for sample in golden(NAMES, tmp_path) for each in differences(sample)] == []


@pytest.mark.slow
def test_damaged_stores_get_the_same_results(tmp_path: Path) -> None:
    assert [str(each) for sample in damaged(DAMAGED, 1, tmp_path) for each in differences(sample)] == []


@pytest.mark.slow
@pytest.mark.broker
def test_stores_of_real_brokers_get_the_same_results(tmp_path: Path) -> None:
    require_tools()
    assert [str(each) for sample in judged(JUDGED, 1, tmp_path) for each in differences(sample)] == []

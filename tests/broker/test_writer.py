"""The writer against real stores: for the same puts the same bytes, on every recipe and in every version."""

from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipes import RECIPES
from tests.broker.broker import Judge
from tests.broker.versions import ROUTINE
from tests.broker.writing import answers_differ, differences, index_names_clashed, judge_topics, put_into_both

JudgeOf = Callable[[str], Judge]
VERSIONS_OFTEN = ("4.9.7", "5.5.0")
RECIPES_OFTEN = ("basic", "batch", "inner-batch", "record-crc", "lmq", "keys-index", "crashed")
"""Recipes that every routine version gets in each run: where versions differ in what they write."""


def held() -> list[ParameterSet]:
    """Every recipe with each version that can hold it; most of it in each run, all of it in a full one."""
    found = []
    for version in ROUTINE:
        for name, recipe in RECIPES.items():
            often = name != "default-size" and (version in VERSIONS_OFTEN or name in RECIPES_OFTEN)
            if recipe.fits(rules_for(version)) and not recipe.has_database:
                found.append(pytest.param(name, version, marks=() if often else pytest.mark.slow))
    return found


ATTEMPTS = 3


@pytest.mark.parametrize(("name", "version"), held())
def test_bytes_are_those_of_the_real_store(judge_of: JudgeOf, tmp_path: Path, name: str, version: str) -> None:
    recipe, rules = RECIPES[name], rules_for(version)
    for attempt in range(ATTEMPTS):
        real, ours = tmp_path / f"real-{attempt}", tmp_path / f"ours-{attempt}"
        runs = recipe.planned_runs(rules, seed=1)
        both = put_into_both(judge_of(version), runs, real, ours, recipe.settings, judge_topics(recipe))
        assert list(answers_differ(both, rules)) == []
        if not index_names_clashed(real, ours):
            break
    assert list(differences(real, ours, recipe.config.commitlog_directories)) == []

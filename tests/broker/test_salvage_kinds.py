"""Salvaged logs in which records of every kind were lost: delayed, transactions, batches, light queues, and so on."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import Recipe
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.repair.derived.result import BuildOptions
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.salvage.plan import SalvageOptions, plan_salvage
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.harm import HealthyStores, examined
from tests.broker.harm import messages as messages_served
from tests.broker.versions import ROUTINE

JudgeOf = Callable[[str], Judge]
KINDS = (
    "batch", "inner-batch", "delay", "transaction", "old-transaction", "retry", "ipv6", "v2", "record-crc", "lmq",
    "cq-ext", "multi-path", "compressed",
)  # fmt: skip
OFTEN = (("delay", "5.5.0"), ("delay", "4.9.7"), ("transaction", "5.3.3"), ("lmq", "5.4.0"), ("record-crc", "5.5.0"))
LOST = 4


@pytest.fixture(scope="module")
def healthy_stores(tmp_path_factory: pytest.TempPathFactory) -> HealthyStores:
    return HealthyStores(tmp_path_factory.mktemp("healthy"))


def kinds() -> list[ParameterSet]:
    return [
        pytest.param(kind, version, marks=() if (kind, version) in OFTEN else pytest.mark.slow)
        for kind in KINDS
        for version in ROUTINE
        if RECIPES[kind].fits(rules_for(version))
    ]


@pytest.mark.parametrize(("kind", "version"), kinds())
def test_records_of_every_kind_may_be_lost(
    judge_of: JudgeOf, healthy_stores: HealthyStores, tmp_path: Path, kind: str, version: str
) -> None:
    recipe, judge = RECIPES[kind], judge_of(version)
    healthy, report = healthy_stores.of(recipe, judge)
    path = copy_store(healthy, tmp_path / "store")
    lost = harmed(path, recipe, report["served"])
    made = salvage(path, recipe, version, tmp_path / "staging")
    assert made.outcome.lost
    found = examined(recipe, path, judge)
    assert "served" in found, found
    assert not [name for name in found["files"]["changed"] if name.startswith(("commitlog", "consumequeue", "index"))]
    before, now = messages_served(report["served"]), messages_served(found["served"])
    wanted = {place: what for place, what in before.items() if what[0] not in lost}
    assert {place: now.get(place) for place in wanted} == wanted
    assert now.keys() <= before.keys()


def harmed(path: Path, recipe: Recipe, served: dict[str, Any]) -> set[int]:
    """Overwrite a few records, those of system topics first; where they were."""
    size, noise = int(recipe.settings["mappedFileSizeCommitLog"]), random.Random(11)
    sizes = {row[0]: row[1] for row in served["commitLog"]}
    first = min(sizes)
    candidates = [row for row in served["records"] if row[0] >= first + size or max(sizes) < first + size]
    special = [row for row in candidates if row[1].startswith(("SCHEDULE", "RMQ_SYS", "%"))]
    chosen = {row[0] for row in noise.sample(special, min(LOST, len(special)))}
    chosen |= {row[0] for row in noise.sample(candidates, LOST)}
    for at in chosen:
        [place] = path.glob(f"commitlog*/{at - at % size:020d}")
        with place.open("r+b") as file:
            file.seek(at % size)
            file.write(noise.randbytes(sizes[at]))
    return chosen


def salvage(path: Path, recipe: Recipe, version: str, staging: Path) -> Any:
    settings = recipe.conf.settings()
    store = survey(open_directory(path), settings)
    places = StorePaths(path, settings.commitlog_directories or ("commitlog",))
    before = fingerprint(places)
    staging.mkdir()
    build = BuildOptions(extension=recipe.conf.has_queue_extension)
    made = plan_salvage(store, rules_for(version), staging, SalvageOptions(build))
    apply_plan(Plan("salvage", before, version, made.steps), places)
    return made

"""Every kind of damage before a real broker: what it makes of the store is what the catalogue says."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from rmqtool.engine.append.store_writer import CHECKPOINT
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import Harm, damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.forecast.forecast import forecast_store
from rmqtool.formats.checkpoint import build_checkpoint, parse_checkpoint
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.harm import HealthyStores, damaged, examined, harm_seen, messages
from tests.broker.versions import ROUTINE

JudgeOf = Callable[[str], Judge]
OFTEN = "5.5.0"
OFTEN_IN_OLD = "4.9.7"
OF_WHOLE_BROKERS = (
    "timer-wheel-short",
    "timer-log-file-short",
    "epochs-empty",
    "compaction-lost",
    "batch-topic-forgotten",
    "topic-nameless",
    "pop-record-odd",
)
"""Only a whole broker has a timer, is in controller mode, reads `topics.json`, or serves pop consumers.

See test_timer.py, test_controller.py, test_compaction.py, test_topics.py, test_odd_topics.py and test_pop.py.
"""


def cases() -> list[ParameterSet]:
    """Every damage with each version; in each run all of them with one version, and a third of them with an old one."""
    found = []
    for version in ROUTINE:
        for number, (name, damage) in enumerate(DAMAGES.items()):
            if name not in OF_WHOLE_BROKERS and RECIPES[damage.recipes[0]].fits(rules_for(version)):
                varies = not isinstance(damage.harm, Harm)
                often = version == OFTEN or (version == OFTEN_IN_OLD and (varies or number % 3 == 0))
                found.append(pytest.param(name, version, marks=() if often else pytest.mark.slow))
    return found


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HealthyStores]:
    folder = tmp_path_factory.mktemp("healthy")
    yield HealthyStores(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(("name", "version"), cases())
def test_a_broker_does_the_harm_that_is_said(
    judge_of: JudgeOf, stores: HealthyStores, tmp_path: Path, name: str, version: str
) -> None:
    damage, judge, rules = DAMAGES[name], judge_of(version), rules_for(version)
    recipe = RECIPES[damage.recipes[0]]
    path, healthy = stores.of(recipe, judge)
    said = damage.harm_to(rules)
    seen = harm_seen(healthy, damaged(damage, recipe, path, tmp_path / "store", judge))
    # What a start after a crash makes of the index depends on the moment as well.
    lenient = {Harm.NOTHING, Harm.KEYS} if "store.abort-present" in damage.findings else set()
    assert seen in ({said} | lenient if said in lenient else {said})


@pytest.mark.parametrize("version", [OFTEN_IN_OLD, OFTEN])
def test_a_healthy_store_comes_to_no_harm(
    judge_of: JudgeOf, stores: HealthyStores, tmp_path: Path, version: str
) -> None:
    recipe = RECIPES["many-files"]
    path, healthy = stores.of(recipe, judge_of(version))
    assert len(messages(healthy["served"])) == 900
    again = examined(recipe, copy_store(path, tmp_path / "store"), judge_of(version))
    assert harm_seen(healthy, again) is Harm.NOTHING


@pytest.mark.parametrize("version", ROUTINE)
def test_recovery_begins_in_front_of_a_file_whose_first_record_has_no_store_time(
    judge_of: JudgeOf, tmp_path: Path, version: str
) -> None:
    judge, recipe = judge_of(version), RECIPES["many-files"]
    make_store(recipe, tmp_path / "store", version)
    checkpoint = tmp_path / "store" / CHECKPOINT
    said = parse_checkpoint(checkpoint.read_bytes())
    late = said.consumequeue_timestamp_ms + 10_000  # so that by its time each file would do
    checkpoint.write_bytes(
        build_checkpoint(replace(said, commitlog_timestamp_ms=late, consumequeue_timestamp_ms=late)).ljust(4096, b"\0")
    )
    (tmp_path / "store/abort").touch()
    begins = []
    for harmed in (False, True):
        directory = copy_store(tmp_path / "store", tmp_path / f"copy-{harmed}")
        if harmed:
            damage_store(DAMAGES["log-first-time-zero"], directory, settings=recipe.conf.settings())
        store = survey(open_directory(directory), recipe.conf.settings())
        examined(recipe, copy_store(directory, tmp_path / f"read-{harmed}"), judge)
        log = judge.program.log.read_text(errors="replace")
        begins.append(re.findall(r"recover from this mapped file \S+/commitlog/(\d{20})", log)[-1])
        assert forecast_store(store, rules_for(version)).scan_start_offset == int(begins[-1])
    files = sorted(path.name for path in (tmp_path / "store/commitlog").iterdir())
    used = [name for name in files if any((tmp_path / "store/commitlog" / name).read_bytes()[:4])]
    assert begins == [used[-1], used[-2]]

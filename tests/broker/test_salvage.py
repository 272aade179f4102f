"""Damaged logs that we salvaged, before real brokers: every intact message is served at its old queue offset.

What the same broker loses without us stands beside it in docs/salvage.md, case by case; `pytest --rewrite` writes it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.broker import salvage_table
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.salvage_cases import (
    CASES,
    LARGE,
    Harm,
    Healthy,
    Place,
    assert_serves,
    hole,
    kept,
    lost_alone,
    salvaged,
    without_queues,
    written,
)
from tests.broker.test_recover import changed, put_to_all
from tests.broker.versions import ROUTINE, VERSIONS

JudgeOf = Callable[[str], Judge]
StoreOf = Callable[[str, bool], Healthy]


@pytest.fixture(scope="module")
def store_of(judge_of: JudgeOf, tmp_path_factory: pytest.TempPathFactory) -> StoreOf:
    made: dict[tuple[str, bool], Healthy] = {}

    def of(version: str, clean: bool) -> Healthy:
        if (version, clean) not in made:
            path = tmp_path_factory.mktemp(f"{version}-{'clean' if clean else 'crashed'}") / "store"
            made[version, clean] = written(judge_of(version), path, clean=clean)
        return made[version, clean]

    return of


def cases() -> list[ParameterSet]:
    """Each case in each run, the versions taking turns; all of both in the long run."""
    return [
        pytest.param(
            case, version, marks=() if (number + turn) % len(ROUTINE) == 0 else pytest.mark.slow, id=f"{case}-{version}"
        )
        for number, case in enumerate(CASES)
        for turn, version in enumerate(ROUTINE)
    ]


@pytest.mark.parametrize(("case", "version"), cases())
def test_all_that_is_intact_is_served(
    judge_of: JudgeOf, store_of: StoreOf, tmp_path: Path, case: str, version: str, pytestconfig: pytest.Config
) -> None:
    judge, cells = judge_of(version), []
    for clean in (False, True):
        healthy = store_of(version, clean)
        harm = CASES[case](healthy)
        folder = tmp_path / ("clean" if clean else "crashed")
        folder.mkdir()
        alone = lost_alone(judge, healthy, harm, folder / "alone")
        assert_salvaged(judge, healthy, harm, folder)
        cells.append("does not start" if alone is None else str(alone))
    salvage_table.check(case, version, cells, rewrite=pytestconfig.getoption("--rewrite"))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["middle record of the middle file", "across a file's end", "a file of zeros"])
@pytest.mark.parametrize("version", [version.name for version in VERSIONS if not version.routine])
def test_other_versions_serve_it_too(
    judge_of: JudgeOf, store_of: StoreOf, tmp_path: Path, case: str, version: str
) -> None:
    healthy = store_of(version, False)
    assert_salvaged(judge_of(version), healthy, CASES[case](healthy), tmp_path)


@pytest.mark.parametrize("version", [pytest.param("4.9.7", marks=pytest.mark.slow), "5.5.0"])
def test_a_hole_of_a_mebibyte(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge = judge_of(version)
    healthy = written(judge, tmp_path / "healthy", clean=False, form=LARGE)
    assert_salvaged(judge, healthy, hole(healthy, 1 << 20), tmp_path)


def assert_salvaged(judge: Judge, healthy: Healthy, harm: Harm, folder: Path) -> None:
    """A copy is damaged and salvaged; the broker serves it, after a crash too, and after it built the queues anew."""
    path, config = copy_store(healthy.path, folder / "store"), healthy.form.config
    harm.apply(path, healthy.form.file_size)
    wanted = kept(healthy, harm, salvaged(path, healthy.form, judge.version, folder / "staging"))
    store = judge.open(path, config)
    assert store.serving, store.opened
    read = store.read()
    assert changed(store) == []
    assert_serves(read, healthy, wanted)
    put_to_all(store, read)
    store.halt()
    again = judge.open(path, config)
    assert again.serving, again.opened
    assert_still_served(again.read(), healthy, wanted)
    again.shutdown()
    without_queues(path)
    rebuilt = judge.open(path, config)
    assert rebuilt.serving, rebuilt.opened
    assert_still_served(rebuilt.read(), healthy, wanted, tombstones=True)
    rebuilt.shutdown()


def assert_still_served(
    read: dict[str, Any], healthy: Healthy, wanted: Mapping[Place, int], *, tombstones: bool = False
) -> None:
    """As before, beside the message that was put into each queue since."""
    for queue in read["queues"]:
        queue["messages"] = [row for row in queue["messages"] if row[0] < queue["max"] - 1]
    assert_serves(read, healthy, wanted, tombstones=tombstones)

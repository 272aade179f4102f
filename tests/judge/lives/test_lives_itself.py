"""The judge of lives is no judge if it sees nothing: what it must notice, and that a life follows from its name."""

from collections import Counter
from pathlib import Path

import pytest

from tests.judge.bases import VERSIONS
from tests.judge.lives import judged
from tests.judge.lives.life import ACTS, live
from tests.judge.lives.plan import CLEAN, DELETES, RUNNING, USES_AGAIN, WRITES, Act, LifePlan, plan_of
from tests.judge.worker import Worker

SIZES = {"mappedFileSizeCommitLog": 16384, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 100, "maxIndexNum": 400}
PLANS = [plan_of(1, number) for number in range(400)]


def plan(*acts: Act) -> LifePlan:
    return LifePlan("life-0-0", "5.5.0", dict(SIZES), frozenset(), acts, "5.5.0", told=True, faults=0)


def test_a_plan_follows_from_its_seed() -> None:
    assert plan_of(1, 7) == plan_of(1, 7)
    assert plan_of(1, 7).acts != plan_of(1, 8).acts != plan_of(2, 8).acts


def test_plans_have_all_acts_all_ends_and_all_versions() -> None:
    acts = Counter(act.name for plan in PLANS for act in plan.acts)
    assert set(acts) == set(ACTS)
    assert {act.end for plan in PLANS for act in plan.acts if act.name == WRITES} > {None, CLEAN, "killed"}
    assert {plan.version for plan in PLANS} == {plan.asked for plan in PLANS} == set(VERSIONS)
    assert {plan.faults for plan in PLANS} == {0, 1, 2}
    assert all(3 <= len(plan.acts) <= 8 for plan in PLANS)


def test_every_run_of_a_broker_ends_before_something_is_done_to_its_files() -> None:
    for plan in PLANS:
        for act, after in zip(plan.acts, (*plan.acts[1:], None), strict=True):
            assert act.name not in RUNNING or act.end or (after is not None and after.name in RUNNING), plan


@pytest.mark.broker
def test_a_deletion_is_remembered(worker: Worker, tmp_path: Path) -> None:
    life = live(
        plan(
            Act(WRITES, {"count": 30, "topics": ["Orders", "T"]}),
            Act(DELETES, {"topic": "Orders"}),
            Act(USES_AGAIN, {"count": 5, "topics": ["Orders"]}, CLEAN),
        ),
        worker.judge_of,
        tmp_path,
    )
    case = judged.life_case(life, tmp_path)
    dead = judged.dead_records(case).keys()
    assert 0 < len(dead) < 30
    assert len(case.truth.places) == 35
    assert len(case.owed) == 35 - len(dead)
    assert not dead & set(case.truth.served.values())
    assert set(case.truth.served.values()) == {at for _, at in case.owed}
    assert "Orders" in (life.path / "config" / "topics.json").read_text()


@pytest.mark.broker
def test_what_is_taken_away_and_what_comes_back_is_noticed(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(
        plan(
            Act(WRITES, {"count": 20, "topics": ["Orders", "T"]}),
            Act(DELETES, {"topic": "Orders"}),
            Act(USES_AGAIN, {"count": 9, "topics": ["Orders"]}, CLEAN),
        ),
        worker.judge_of,
        tmp_path,
    )
    case = judged.life_case(life, tmp_path)
    case.floor = case.truth.served
    judged.check_served(case, case.floor, "nothing", [])
    assert case.disagreements == []
    name, at = next(iter(case.floor.items()))
    judged.check_served(case, {**case.floor, name: at + 1}, "moved", [])
    judged.check_served(case, {place: at for place, at in case.floor.items() if place != name}, "gone", [])
    judged.check_served(case, {**case.floor, ("Orders", 0, 99): min(judged.seen_dead(case))}, "back", [])
    signatures = [row.signature for row in case.disagreements]
    assert signatures == ["moved: below the floor", "gone: below the floor", "back: came back unasked"]

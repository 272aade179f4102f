"""A slice of lives: rmqtool agrees with real brokers about stores to which people did what people do."""

from collections.abc import Iterator
from itertools import count, islice

import pytest

from tests.judge.lives.plan import LifePlan, plan_of
from tests.judge.lives.run import run_life
from tests.judge.worker import Worker

pytestmark = pytest.mark.broker
SEED = 40
LIVES = 40
VERSIONS = {"4.4.0", "4.9.7", "4.9.8", "5.1.4", "5.3.3", "5.5.1"}
"""Few, as each starts a process; a run of `python -m tests.judge --lives` has all."""


def chosen() -> Iterator[LifePlan]:
    plans = (plan_of(SEED, number) for number in count())
    return (plan for plan in plans if versions_of(plan) <= VERSIONS)


def versions_of(plan: LifePlan) -> set[str]:
    return {plan.version, plan.asked, *(act.values["to"] for act in plan.acts if "to" in act.values)}


def test_rmqtool_and_brokers_agree_about_lives(worker: Worker) -> None:
    outcomes = [run_life(worker, plan) for plan in islice(chosen(), LIVES)]
    differing = {outcome.name: (outcome.faults, outcome.disagreements) for outcome in outcomes if outcome.disagreements}
    assert not differing

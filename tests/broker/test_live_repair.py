"""A real broker that is started while a repair runs: the fence or the lock stops it, and no message is the worse."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.campaign.calls import watched
from tests.campaign.command import Outcome, run
from tests.campaign.processes import stopped_at
from tests.campaign.trees import Tree, capture, differences, without_own
from tests.golden_stores import config_and_topics, unpack

STORES = {"4.9.7": "4.9.7-crashed", "5.5.0": "5.5.0-crashed"}
FENCE = "commitlog/rmqtool-repair-in-progress"
OWN_BOOKS = ("rocksdbstore", "lock", "config", "timerwheel", "timerlog", "compaction")
"""What a broker touches though it does not load: its own bookkeeping, nothing of a message."""
MANY_POINTS = 30
DONE, TO_DO, REFUSED = 0, 3, 5


@dataclass(frozen=True)
class Alone:
    """A repair that no broker disturbs."""

    fenced: list[bool]
    """For each of its changing calls, whether the fence stands then."""
    noted: int
    """The call in front of which it notes what the repaired store is: other books of a broker are written since."""
    records: list[Any]
    """What a broker serves afterwards."""

    @property
    def first_fenced(self) -> int:
        return 1 + self.fenced.index(True)

    @property
    def first_open(self) -> int:
        """The first call after the fence is gone."""
        return 1 + len(self.fenced) - self.fenced[::-1].index(True)


def recover(store: Path, version: str) -> Outcome:
    return run("recover", store, "--yes", "--broker-version", version)


def repaired_alone(judge: Judge, folder: Path, version: str) -> Alone:
    store = unpack(STORES[version], folder)
    fenced: list[bool] = []
    records_made: list[int] = []

    def look(call: str, path: str) -> None:
        fenced.append((store / FENCE).exists())
        if call == "open" and path.endswith(".rmqtool/undo/1"):
            records_made.append(len(fenced))

    with watched(store, look):
        assert recover(store, version).code == DONE
    report = judge.examine(store, *config_and_topics(STORES[version]))
    return Alone(fenced, records_made[-1], report["served"]["records"])


@contextmanager
def broker_process(version: str) -> Iterator[Judge]:
    """A broker that ends with its process, as one that cannot start does: until then it keeps the files mapped."""
    judge = Judge(version)
    try:
        yield judge
    finally:
        judge.close()


def without_books(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(OWN_BOOKS)]


def assert_no_harm(judge: Judge, folder: Path, version: str, number: int, alone: Alone) -> None:
    """Start a broker in front of one call of a repair; it ends before the repair goes on."""
    store = unpack(STORES[version], folder / str(number))
    original = without_own(capture(store))
    with stopped_at(number, store, folder, lambda: recover(store, version)) as process:
        assert process is not None
        is_fenced = (store / FENCE).exists()
        before = without_own(capture(store))
        with broker_process(version) as broker:
            report = broker.examine(store, *config_and_topics(STORES[version]))
        after = without_own(capture(store))
        process.go_on()
        outcome = process.outcome()
    if is_fenced:
        assert not report["load"], number
        assert without_books(differences(before, after)) == [], number
        # The repair looks at the store once more right after this call; 5.x changes its own books without a load.
        assert outcome.code in ((DONE, REFUSED) if number == alone.first_fenced else (DONE,)), (number, outcome)
        if outcome.code == DONE and number < alone.noted:
            assert_undone(copy_store(store, folder / f"{number}-undone"), original)
    else:  # it loads, and the lock that the repair holds stops it
        assert report["load"], number
        assert "served" not in report, number
        codes = (DONE, TO_DO) if number >= alone.first_open else (DONE, REFUSED)
        assert outcome.code in codes, (number, outcome)
    assert_well(judge, store, version, alone, outcome, after)


def assert_no_harm_by_one_that_stays(judge: Judge, folder: Path, version: str, number: int, alone: Alone) -> None:
    """A broker loads the store in front of one call, and starts when the repair has ended: the repair gives way."""
    store = unpack(STORES[version], folder / f"{number}-stays")
    with (
        stopped_at(number, store, folder, lambda: recover(store, version)) as process,
        broker_process(version) as broker,
    ):
        assert process is not None
        opened = broker.open(store, *config_and_topics(STORES[version]), start=False)
        assert opened.opened["load"], number
        after = without_own(capture(store))
        process.go_on()
        outcome = process.outcome()
        assert outcome.code == REFUSED, (number, outcome)
        assert not differences(after, without_own(capture(store)), times=False), number
        opened.start()
        assert opened.serving, (number, opened.opened)
        assert opened.read()["records"] == alone.records, number
        opened.shutdown()
    assert_well(judge, store, version, alone, outcome, without_own(capture(store)))


def assert_undone(store: Path, original: Tree) -> None:
    outcome = run("undo", store, "--yes")
    assert outcome.code == DONE, outcome
    assert without_books(differences(original, without_own(capture(store)))) == []
    shutil.rmtree(store)


def assert_well(judge: Judge, store: Path, version: str, alone: Alone, outcome: Outcome, after: Tree) -> None:
    """Nothing of the tool's own is left but the journal, the next repair ends well, a broker serves every message.

    Args:
        after: the store as the broker left it.
    """
    assert not (store / FENCE).exists(), outcome
    if outcome.code == REFUSED:
        assert not (store / ".rmqtool").exists(), outcome
        changed = differences(after, without_own(capture(store)), times=False)
        assert [line for line in changed if line != f"{FENCE}: is gone"] == [], outcome
    else:
        assert [path.name for path in (store / ".rmqtool").iterdir()] == ["undo"], outcome
    again = recover(store, version)
    assert again.code == DONE, (outcome, again)
    report = judge.examine(store, *config_and_topics(STORES[version]))
    assert report["load"], outcome
    assert without_books(report["filesAfter"]["removed"]) == [], outcome
    assert report["served"]["records"] == alone.records, outcome
    shutil.rmtree(store)


@pytest.mark.parametrize("version", STORES)
def test_a_broker_that_starts_during_a_repair(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge = judge_of(version)
    alone = repaired_alone(judge, tmp_path / "alone", version)
    for number in (alone.first_fenced + 1, alone.first_open):
        assert_no_harm(judge, tmp_path, version, number, alone)
    assert_no_harm_by_one_that_stays(judge, tmp_path, version, alone.first_fenced - 1, alone)


@pytest.mark.slow
@pytest.mark.parametrize("version", STORES)
def test_a_broker_that_starts_at_many_points_of_a_repair(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge = judge_of(version)
    alone = repaired_alone(judge, tmp_path / "alone", version)
    count = len(alone.fenced)
    spread = {1 + point * (count - 1) // (MANY_POINTS - 1) for point in range(MANY_POINTS)}
    for number in sorted({*spread, alone.first_fenced, alone.first_open - 1, alone.first_open}):
        assert_no_harm(judge, tmp_path, version, number, alone)
        if number < alone.first_fenced:
            assert_no_harm_by_one_that_stays(judge, tmp_path, version, number, alone)

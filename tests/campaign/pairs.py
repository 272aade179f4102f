"""Two repairs of one store at once: one wins, the other says who is in its way, and no file is missing to either."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.campaign.cases import CASES, Case
from tests.campaign.command import Outcome, run
from tests.campaign.guard import Guard, unclean
from tests.campaign.processes import Running, stopped_at
from tests.campaign.tally import Tally
from tests.campaign.trees import Tree, capture, differences, put_back, without_own

REFUSED: Final = 5
PAIRS: Final = (
    ("recover crashed", "recover", "recover"),
    ("recover crashed", "recover", "undo"),
    ("rebuild no queue", "rebuild", "salvage"),
    ("salvage bad record", "salvage", "salvage"),
)
"""A store, and two commands that repair it."""


def interrupt_everywhere(case: Case, folder: Path, every: int = 1) -> Tally:
    """While a repair or an undo stands in front of a call, each other command is refused and changes nothing."""
    tally = Tally()
    store = folder / "case"
    guard = Guard(case, store)
    others: tuple[Callable[[], Outcome], ...] = (
        lambda: case.undo(store),
        lambda: case.repair(store),
        lambda: run("undo", store / "store", "--discard", "--yes", *_logs(case, store)),
    )
    for is_undo in (False, True):
        number = 1
        while True:
            put_back(guard.repaired if is_undo else guard.original, store)
            first = (lambda: case.undo(store)) if is_undo else (lambda: case.repair(store))
            with stopped_at(number, store, folder, first) as process:
                if process is None:
                    break
                where = f"{'undo of ' if is_undo else ''}{case.name}, stopped at call {number}"
                before = capture(store)
                wrong: list[str] = []
                for other in others:
                    wrong += _not_refused(other(), process.pid)
                wrong += differences(before, capture(store))
                process.go_on()
                wrong += unclean(process.outcome(), 0, 3)
                wrong += guard.not_original() if is_undo else guard.not_repaired()
                tally.check(f"others refused during {'undo' if is_undo else case.command}", wrong, where)
            number += every
    return tally


def _logs(case: Case, folder: Path) -> list[str]:
    return [option.format(folder) for option in case.options]


def _not_refused(outcome: Outcome, pid: int) -> list[str]:
    if outcome.code == 0 and outcome.output.startswith("No repair "):  # there is none as long as the other one plans
        return []
    if outcome.code == REFUSED and f"another rmqtool (pid {pid}, since " in outcome.errors:
        return []
    return [f"not refused with the name of process {pid}: {outcome.said}"]


def start_pairs(folder: Path, count: int, seed: int) -> Tally:
    """Pairs of commands that start at once, in processes of their own."""
    chosen = random.Random(seed)
    tally = Tally()
    for number in range(count):
        name, first, second = PAIRS[number % len(PAIRS)]
        case = CASES[name]
        store = folder / "case"
        known = _ends(case, store, (first, second))
        case.fresh(store)
        delays = [0.0, chosen.random() * 0.05]
        chosen.shuffle(delays)
        works = [
            _later(delay, _work(case, store, command)) for delay, command in zip(delays, (first, second), strict=True)
        ]
        processes = [Running(folder, work) for work in works]
        outcomes = [process.outcome() for process in processes]
        where = f"{first} and {second}, seed {seed}, number {number}, {[outcome.said for outcome in outcomes]}"
        wrong: list[str] = []
        for outcome, other in zip(outcomes, reversed(processes), strict=True):
            wrong += _not_refused(outcome, other.pid) if outcome.code == REFUSED else unclean(outcome, 0, 3)
        if all(outcome.code == REFUSED for outcome in outcomes):
            wrong.append("both lost")
        end = without_own(capture(store))
        if not any(not differences(state, end, times=False) for state in known):
            wrong.append("the store is what neither of them makes, nor one after the other")
        tally.check(f"{first} and {second} at once", wrong, where)
        tally.outcomes[f"one was refused in {first} and {second}"] += any(o.code == REFUSED for o in outcomes)
    return tally


def _work(case: Case, store: Path, command: str) -> Callable[[], Outcome]:
    options = [*case.own, *_logs(case, store)]
    if command == "undo":
        return lambda: case.undo(store)
    return lambda: run(command, store / "store", "--yes", "--accept-loss", *options)


def _later(seconds: float, work: Callable[[], Outcome]) -> Callable[[], Outcome]:
    def waiting() -> Outcome:
        time.sleep(seconds)
        return work()

    return waiting


def _ends(case: Case, store: Path, commands: tuple[str, str]) -> list[Tree]:
    """What the store may be afterwards: each command alone, and both in either order."""
    ends = []
    for line in ((commands[0],), (commands[1],), commands, commands[::-1]):
        case.fresh(store)
        for command in line:
            _work(case, store, command)()
        ends.append(without_own(capture(store)))
    return ends

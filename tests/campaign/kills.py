"""Kills repairs and their undo: in front of every call that changes the disk, and real processes at random moments.

What a kill leaves is what lies on the disk at that moment, so one run shows the states of all its calls: each of them
is put back and has to lead to the original store (undo) and to the repaired one (the same command again).
"""

from __future__ import annotations

import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.campaign.calls import watched
from tests.campaign.cases import Case
from tests.campaign.guard import Guard
from tests.campaign.tally import Tally
from tests.campaign.trees import Tree, capture, put_back

State = tuple[str, Tree]
"""The call that was never made, and the folder in front of it."""


def states_of(folder: Path, work: Callable[[], object]) -> list[State]:
    """The state in front of each call that some work makes; calls between which nothing changed count as one."""
    states: list[State] = []

    def look(call: str, path: str) -> None:
        now = capture(folder)
        if not states or states[-1][1] != now:
            states.append((f"{call} {os.path.relpath(path, folder)}", now))

    with watched(folder, look):
        work()
    return states


def kill_everywhere(case: Case, folder: Path, every: int = 1) -> Tally:
    """Each state of the repair, then each of its undo; of every so many of them."""
    tally = Tally()
    guard = Guard(case, folder)
    put_back(guard.original, folder)
    for number, (call, state) in enumerate(states_of(folder, lambda: case.repair(folder))):
        if number % every == 0:
            _try(tally, guard, state, f"{case.name}, killed at {call}")
    put_back(guard.repaired, folder)
    for number, (call, state) in enumerate(states_of(folder, lambda: case.undo(folder))):
        if number % every == 0:
            _try(tally, guard, state, f"undo of {case.name}, killed at {call}")
    return tally


def _try(tally: Tally, guard: Guard, state: Tree, where: str) -> None:
    what = "kills of undo" if where.startswith("undo") else f"kills of {guard.case.command}"
    tally.check(what, guard.unguarded(state) + guard.not_undone(state) + guard.not_finished(state), where)


def kill_at_random(case: Case, folder: Path, count: int, seed: int) -> Tally:
    """Real processes, ended by SIGKILL after a random time; each second one repairs, the others undo."""
    chosen = random.Random(seed)
    tally = Tally()
    guard = Guard(case, folder)
    starts = {False: guard.original, True: guard.repaired}
    times: dict[bool, float] = {}
    for is_undo, start in starts.items():
        put_back(start, folder)
        begin = time.monotonic()
        _killed_after(None, (lambda: case.undo(folder)) if is_undo else (lambda: case.repair(folder)))
        times[is_undo] = time.monotonic() - begin
    for number in range(count):
        is_undo = number % 2 == 1
        put_back(starts[is_undo], folder)
        work = (lambda: case.undo(folder)) if is_undo else (lambda: case.repair(folder))
        was_killed = _killed_after(chosen.random() * times[is_undo] * 1.1, work)
        state = capture(folder)
        where = f"{'undo of ' if is_undo else ''}{case.name}, seed {seed}, number {number}"
        wrong = guard.unguarded(state) + guard.not_undone(state) + guard.not_finished(state)
        tally.check(f"SIGKILL, {'in' if was_killed else 'after'} the run", wrong, where)
    return tally


def _killed_after(seconds: float | None, work: Callable[[], object]) -> bool:
    """Do something in a process that is killed after a time, or let it end; whether it was killed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking while another test's threads sleep
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)

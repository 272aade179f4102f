"""Errors of the disk: ENOSPC and EIO at every changing call, once or from there on, and a file system that is full.

A command that fails says so and leaves the original store, or the repaired one with the rest of its work for the next
run; where it can do neither, a fence stands and the message says how to go on. Afterwards the disk works again, and
undo gives the original, the command the repaired store.
"""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqtool.store.file_kinds import FENCE_NAME
from tests.campaign.calls import CODES, Calls, watched
from tests.campaign.cases import Case
from tests.campaign.command import Outcome
from tests.campaign.guard import Guard, unclean
from tests.campaign.tally import Tally
from tests.campaign.trees import Tree, capture, put_back

FAILED = 4


def fail_everywhere(case: Case, folder: Path, every: int = 1, shift: int = 0) -> Tally:
    """Each call of the repair and of its undo fails, of every so many of them."""
    tally = Tally()
    guard = Guard(case, folder)
    for is_undo in (False, True):
        start = guard.repaired if is_undo else guard.original
        work = case.undo if is_undo else case.repair
        put_back(start, folder)
        calls = Calls()
        with watched(folder, calls):
            work(folder)
        for number in range(1 + shift % every, len(calls.names) + 1, every):
            for name, code in CODES.items():
                for again in (False, True):
                    put_back(start, folder)
                    with watched(folder, Calls(number, code, again=again)):
                        outcome = work(folder)
                    what = f"{name}, {'from a call on' if again else 'once'}, in {'undo' if is_undo else case.command}"
                    where = f"{case.name}, call {number}, {calls.names[number - 1].replace(str(folder), '')}"
                    _judge(tally, guard, outcome, what, where, is_undo=is_undo)
    return tally


def _judge(tally: Tally, guard: Guard, outcome: Outcome, what: str, where: str, *, is_undo: bool) -> None:
    state = capture(guard.folder)
    wrong = unclean(outcome, *((0, FAILED) if is_undo else (0, 3, FAILED)))
    wrong += _said_wrongly(outcome, state) + guard.unguarded(state)
    wrong += guard.not_undone(state) + guard.not_finished(state)
    tally.check(what, wrong, f"{where}: {outcome.said}" if wrong else where)


def _said_wrongly(outcome: Outcome, state: Tree) -> list[str]:
    """A message about a fence that is not there, and a fence of which nobody was told."""
    has_fence = any(path.rpartition("/")[2] == FENCE_NAME for path in state)
    speaks = "no broker loads" in outcome.errors
    wrong = []
    if speaks and not has_fence:
        wrong.append("the message speaks of a fence, and none stands")
    if has_fence and "rmqtool undo" not in outcome.errors:
        wrong.append("a fence stands, and the message does not say how to go on")
    return wrong


def fill_disk(case: Case, folder: Path, free_bytes: range) -> Tally:
    """The repair, then its undo, on a file system that has only so many bytes left; then with room again.

    Args:
        folder: an empty mounted file system of its own.
    """
    tally = Tally()
    work = folder / "case"
    work.mkdir(exist_ok=True)
    guard = Guard(case, work)
    filler = folder / "filler"
    for is_undo in (False, True):
        start = guard.repaired if is_undo else guard.original
        for free in free_bytes:
            filler.unlink(missing_ok=True)
            put_back(start, work)
            fill_up(filler, folder, free)
            outcome = case.undo(work) if is_undo else case.repair(work)
            # What lies there while the disk is full is looked at, and what can be done once it is not.
            state = capture(work)
            filler.unlink()
            what = f"a full disk, in {'undo' if is_undo else case.command}"
            where = f"{case.name}, {free} bytes free"
            wrong = unclean(outcome, *((0, FAILED) if is_undo else (0, 3, FAILED)))
            wrong += _said_wrongly(outcome, state) + guard.unguarded(state)
            wrong += guard.not_undone(state) + guard.not_finished(state)
            tally.check(what, wrong, f"{where}: {outcome.said}" if wrong else where)
            tally.outcomes[f"{what}: {'done' if outcome.code in (0, 3) else 'given up'}"] += 1
    return tally


def fill_up(filler: Path, folder: Path, free: int) -> None:
    """Write until only so many bytes are free."""
    with filler.open("wb", buffering=0) as file:
        while True:
            found = os.statvfs(folder)
            left = found.f_bavail * found.f_frsize - free
            if left <= 0:
                return
            try:
                if not file.write(bytes(min(left, 1 << 16))):
                    return
            except OSError:
                return


@contextmanager
def small_file_system(folder: Path, kind: str, size: int) -> Iterator[Path | None]:
    """A file system of its own, of a few hundred kilobytes; None where this machine or this user may not mount."""
    place = folder / "small"
    place.mkdir()
    image = folder / "image"
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    else:
        with image.open("wb") as file:
            file.truncate(size)
        if subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=False, capture_output=True
        ).returncode:
            yield None
            return
        command = ["mount", "-o", "loop", str(image), str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        yield None
        return
    try:
        yield place
    finally:
        gc.collect()  # what commands in this process opened there may wait in a cycle of references
        subprocess.run(["umount", str(place)], check=True, capture_output=True)
        image.unlink(missing_ok=True)

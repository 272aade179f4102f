"""A salvage, and its taking back, end or fail at every single change of the disk: the original is always to be had."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import RefusedError, WriteError
from rmqtool.fixtures.recipe import Run, make_store
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.journal import journals
from rmqtool.repair.machine.output import apply_to_copy
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.steps import Create, Remove, Replace, WriteRange
from rmqtool.repair.machine.store_paths import StorePaths, is_fenced
from rmqtool.repair.machine.undo import is_unsettled, settle, undo_latest
from rmqtool.repair.salvage.plan import SalvageOptions, plan_salvage
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.fuzz.tiny_recipes import LOG_FILE_SIZE, TINY
from tests.repair.small_stores import Counting, fail_with, files_of, killed_at
from tests.store_state import FileState
from tests.verify.stores import above_note, verified

VERSION = "5.5.0"
EVERY = [pytest.param(17, id="some"), pytest.param(1, id="every", marks=pytest.mark.slow)]
"""How many changes lie between two points that are tried; a run in between takes a sample."""


def _log(number: int) -> str:
    return f"commitlog/{number * LOG_FILE_SIZE:020d}"


RECIPE = replace(TINY["tiny"], runs=lambda samples: [Run(samples.messages(40, ("orders", "payments"), 2))])


def _damaged(root: Path) -> StorePaths:
    """A crashed store with a hole, a file that is missing, and one that is too long."""
    make_store(RECIPE, root, VERSION)
    with (root / _log(0)).open("r+b") as file:
        file.seek(1000)
        file.write(bytes(700))
    (root / _log(1)).unlink()
    with (root / _log(2)).open("ab") as file:
        file.write(b"x" * 50)
    (root / "abort").write_text("4711")
    (root / "checkpoint").unlink()
    return StorePaths(root)


def _planned(places: StorePaths, staging: Path) -> Plan:
    staging.mkdir()
    made = plan_salvage(survey(open_directory(places.root)), rules_for(VERSION), staging, SalvageOptions(threads=1))
    return Plan("salvage", fingerprint(places), VERSION, made.steps)


class _Trial:
    """A fresh store for each point at which something ends, and the two states it may be left in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        places, plan = self.fresh()
        self.kinds = {type(step) for step in plan.steps}
        self.original = _known(places)
        self.watch = Counting()
        apply_plan(plan, places, disk=Disk(self.watch))
        self.repaired = _known(places)
        self.total = self.watch.count

    def fresh(self) -> tuple[StorePaths, Plan]:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        places = _damaged(folder / "store")
        return places, _planned(places, folder / "staging")


def _known(places: StorePaths) -> dict[str, tuple[int, int, str]]:
    """Files without the tool's own: mode, size, content; times of generated stores are those of their making."""
    found: dict[str, FileState] = files_of(places.root)
    return {
        path: (state.mode, state.size, state.digest)
        for path, state in found.items()
        if not path.startswith(".rmqtool") and state.digest
    }


def _of_the_store(places: StorePaths) -> dict[str, FileState]:
    """All but the tool's own directory, which may stay behind empty where all ended right after it was made."""
    return {path: state for path, state in files_of(places.root).items() if not path.startswith(".rmqtool")}


def test_the_plan_has_steps_of_many_kinds(quick_path: Path) -> None:
    trial = _Trial(quick_path)
    assert trial.kinds >= {WriteRange, Replace, Create, Remove}
    assert trial.total > 40


@pytest.mark.parametrize("every", EVERY)
def test_killed_anywhere_and_undone(quick_path: Path, every: int) -> None:
    trial = _Trial(quick_path)
    for number in range(1, trial.total + 2, every):
        places, plan = trial.fresh()
        before = _of_the_store(places)
        was_killed = killed_at(number, lambda disk, plan=plan, places=places: apply_plan(plan, places, disk=disk))
        assert was_killed == (number <= trial.total)
        assert is_fenced(places) or _known(places) in (trial.original, trial.repaired)
        undo_latest(places)
        assert _of_the_store(places) == before, trial.watch.changes[number - 1]
        assert not journals(places)


@pytest.mark.parametrize("every", EVERY)
def test_killed_anywhere_and_run_again(quick_path: Path, every: int) -> None:
    trial = _Trial(quick_path)
    for number in range(1, trial.total + 1, every):
        places, plan = trial.fresh()
        assert killed_at(number, lambda disk, plan=plan, places=places: apply_plan(plan, places, disk=disk))
        settle(places)
        if _known(places) != trial.repaired:
            apply_plan(_planned(places, places.root.parent / "again"), places)
        assert _known(places) == trial.repaired, trial.watch.changes[number - 1]
        assert above_note(verified(places.root, VERSION)[1]) == {}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("every", EVERY)
def test_one_call_fails_and_all_is_taken_back(quick_path: Path, every: int, code: int) -> None:
    trial = _Trial(quick_path)
    for number in range(1, trial.total + 1, every):
        places, plan = trial.fresh()
        before = files_of(places.root)
        try:
            apply_plan(plan, places, disk=Disk(Counting(number, fail_with(code))))
        except WriteError:
            assert not is_unsettled(places)
            assert files_of(places.root) == before, trial.watch.changes[number - 1]
        else:  # removing left-overs is no reason to fail
            assert _known(places) == trial.repaired


def test_a_copy_is_what_a_repair_in_place_makes(quick_path: Path) -> None:
    trial = _Trial(quick_path)
    places, plan = trial.fresh()
    before = files_of(places.root)
    copy = apply_to_copy(plan, places, quick_path / "copy")
    assert files_of(places.root) == before
    assert _known(copy) == trial.repaired


Change = Callable[[Path], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda root: os.utime(root / _log(0), ns=(1, 1)),
        lambda root: (root / "config" / "new.json").write_text("{}"),
        lambda root: (root / "abort").unlink(),
    ],
    ids=["time", "new-file", "abort"],
)
def test_a_store_that_has_changed_since_is_refused(quick_path: Path, change: Change) -> None:
    places = _damaged(quick_path / "store")
    plan = _planned(places, quick_path / "staging")
    change(places.root)
    before = files_of(places.root)
    with pytest.raises(RefusedError):
        apply_plan(plan, places)
    assert files_of(places.root) == before

"""A repair, and its taking back, end or fail at every single change of the disk: the original is always to be had."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import RefusedError, RmqtoolError, WriteError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.journal import JournalState, journals
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.store_paths import StorePaths, is_fenced
from rmqtool.repair.machine.undo import discard_all, is_unsettled, settle, undo_latest
from tests.repair.small_stores import (
    PLANS,
    Counting,
    another_disk,
    fail_with,
    files_of,
    killed_at,
    small_store,
)
from tests.store_state import FileState

NAMES = list(PLANS)
EVERY = [pytest.param(9, id="ninth"), pytest.param(1, id="every", marks=pytest.mark.slow)]
"""How many changes lie between two points that are tried; a run in between takes a sample."""
State = dict[str, FileState]


class Trial:
    """A fresh store for each point at which something ends, and the two states it may be left in."""

    def __init__(self, folder: Path, name: str, kept: Path | None = None) -> None:
        self._folder = folder
        self._plan = PLANS[name]
        self._count = 0
        self._kept = kept
        places, apply = self.fresh()
        self.original = _without_own(files_of(places.root))
        self.watch = Counting()
        apply(Disk(self.watch))
        self.repaired = _timeless(_without_own(files_of(places.root)))
        self.total = self.watch.count
        undo_latest(places)

    def fresh(self) -> tuple[StorePaths, Callable[[Disk], object]]:
        """A new store, and what applies the plan to it."""
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        places = StorePaths(small_store(folder / "store"), undo_directory=self._kept)
        plan = self._plan(places, folder)
        return places, lambda disk: apply_plan(plan, places, disk=disk)

    def is_original(self, places: StorePaths) -> bool:
        return _without_own(files_of(places.root)) == self.original

    def is_repaired(self, places: StorePaths) -> bool:
        return _timeless(_without_own(files_of(places.root))) == self.repaired

    def assert_guarded(self, places: StorePaths) -> None:
        """Wherever a store is neither the old one nor the new one, brokers are kept out."""
        content = _timeless(_without_own(files_of(places.root)))
        if content not in (self.repaired, _timeless(self.original)):
            assert is_fenced(places)


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", NAMES)
def test_killed_anywhere_and_undone(quick_path: Path, name: str, every: int) -> None:
    trial = Trial(quick_path, name)
    for number in range(1, trial.total + 2, every):
        places, apply = trial.fresh()
        assert killed_at(number, apply) == (number <= trial.total)
        trial.assert_guarded(places)
        undo_latest(places)
        assert trial.is_original(places), trial.watch.changes[number - 1]
        assert not is_unsettled(places)
        assert not journals(places)


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", NAMES)
def test_killed_anywhere_then_settled_and_applied_again(quick_path: Path, name: str, every: int) -> None:
    """What a second run of the command does."""
    trial = Trial(quick_path, name)
    for number in range(1, trial.total + 1, every):
        places, apply = trial.fresh()
        assert killed_at(number, apply)
        if is_unsettled(places):
            with pytest.raises(RefusedError):
                apply(Disk())
        settle(places)
        assert not is_unsettled(places)
        if not trial.is_repaired(places):
            assert trial.is_original(places), trial.watch.changes[number - 1]
            apply_plan(PLANS[name](places, places.root.parent), places)
        assert trial.is_repaired(places)
        assert [journal.state for journal in journals(places)] == [JournalState.DONE]


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", NAMES)
def test_killed_while_it_is_taken_back(quick_path: Path, name: str, every: int) -> None:
    trial = Trial(quick_path, name)
    number, killed = 1 - every, True
    while killed:
        number += every
        places, apply = trial.fresh()
        apply(Disk())
        killed = killed_at(number, lambda disk, places=places: undo_latest(places, disk))
        trial.assert_guarded(places)
        settle(places)
        if journals(places):
            assert trial.is_repaired(places)
            undo_latest(places)
        assert trial.is_original(places)
        assert not is_unsettled(places)
    assert number > 20


def test_killed_while_journals_are_discarded(quick_path: Path) -> None:
    trial = Trial(quick_path, "recovery")
    number, killed = 0, True
    while killed:
        number += 1
        places, apply = trial.fresh()
        apply(Disk())
        killed = killed_at(number, lambda disk, places=places: discard_all(places, disk))
        assert trial.is_repaired(places)
        settle(places)
        discard_all(places)
        assert trial.is_repaired(places)
        assert not journals(places)
        assert not is_unsettled(places)
    assert number > 5


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", NAMES)
def test_one_call_fails_and_all_is_taken_back(quick_path: Path, name: str, every: int, code: int) -> None:
    trial = Trial(quick_path, name)
    for number in range(1, trial.total + 1, every):
        places, apply = trial.fresh()
        try:
            apply(Disk(Counting(number, fail_with(code))))
        except WriteError:
            assert not is_unsettled(places)
            assert trial.is_original(places), trial.watch.changes[number - 1]
        else:  # removing left-overs is no reason to fail
            assert trial.is_repaired(places)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", NAMES)
def test_every_further_call_fails_and_the_store_stays_guarded(
    quick_path: Path, name: str, every: int, code: int
) -> None:
    trial = Trial(quick_path, name)
    for number in range(1, trial.total + 1, every):
        places, apply = trial.fresh()
        said = ""
        try:
            apply(Disk(Counting(number, fail_with(code), again=True)))
        except RmqtoolError as error:
            said = str(error)
        assert not is_fenced(places) or "rmqtool undo" in said
        assert ("no broker loads" in said) == is_fenced(places), trial.watch.changes[number - 1]
        trial.assert_guarded(places)
        undo_latest(places)
        assert trial.is_original(places), trial.watch.changes[number - 1]
        assert not is_unsettled(places)


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", NAMES)
def test_killed_anywhere_with_the_journal_on_another_disk(quick_path: Path, name: str, every: int) -> None:
    with another_disk(quick_path) as disk:
        if disk is None:
            pytest.skip("no second file system to write to")
        trial = Trial(quick_path, name, kept=disk)
        for number in range(1, trial.total + 1, every):
            places, apply = trial.fresh()
            assert killed_at(number, apply)
            trial.assert_guarded(places)
            undo_latest(places)
            assert trial.is_original(places), trial.watch.changes[number - 1]
            assert not is_unsettled(places)


@pytest.mark.parametrize("every", EVERY)
def test_killed_anywhere_on_a_file_system_without_unnamed_files(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """As NFS is one: small files are completed under another name there."""
    real = os.open

    def without_unnamed(path: str, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", without_unnamed)
    trial = Trial(quick_path, "recovery")
    assert any("in-progress.partial" in change for change in trial.watch.changes)
    for number in range(1, trial.total + 1, every):
        places, apply = trial.fresh()
        assert killed_at(number, apply)
        undo_latest(places)
        assert trial.is_original(places), trial.watch.changes[number - 1]
        assert not is_unsettled(places)


def test_a_fence_whose_journal_is_gone_is_not_lowered(quick_path: Path) -> None:
    trial = Trial(quick_path, "recovery")
    places, apply = trial.fresh()
    assert killed_at(trial.total // 2, apply)
    (places.root / OWN_DIRECTORY).rename(quick_path / "lost")
    for end in (undo_latest, settle):
        with pytest.raises(RefusedError, match="journal"):
            end(places)
    assert is_fenced(places)
    (quick_path / "lost").rename(places.root / OWN_DIRECTORY)
    undo_latest(places)
    assert trial.is_original(places)


def _without_own(state: State) -> State:
    return {path: found for path, found in state.items() if not path.startswith(".rmqtool")}


def _timeless(state: State) -> State:
    """Without the times of directories and of what was made just now."""
    return {
        path: found._replace(
            mtime_ns=0 if path.startswith("consumequeue/TopicB") or not found.digest else found.mtime_ns
        )
        for path, found in state.items()
    }

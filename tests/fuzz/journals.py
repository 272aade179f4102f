"""Fuzzes what a store may carry about repairs: its undo journals, in any state, and plan files that are to be applied.

An input is a small store whose journal was written by a real repair that was killed somewhere, with edits: of one
field, of several, of bytes, of files and directories (links, pipes, other owners, missing parts). Canaries lie beside
and above the store. Whatever the journal says: no canary changes or is read, nothing is opened outside of the store,
and the command ends with a clear error or does its work.
"""

from __future__ import annotations

import os
import random
import signal
import stat
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

import pytest

from rmqtool.commands.repairs import repair_command
from rmqtool.commands.repairs.repair_plan import Planner, RepairRun
from rmqtool.errors import RefusedError
from tests.campaign.cases import CASES, UNDO_KNOWS_DIRECTORIES, Case
from tests.campaign.command import CLEAN_EXITS, Outcome, run
from tests.campaign.kills import states_of
from tests.campaign.trees import OWN, Tree, put_back
from tests.fuzz.journal_edits import Edits, edit_plan, edit_tree

SEED_CASES: Final = ("recover crashed", "recover two logs", "salvage bad record", "salvage missing file",
                     "rebuild no queue", "recover kept elsewhere")  # fmt: skip
STATES_MAX: Final = 14
"""States of each repair, and of each undo, that inputs start from."""
INPUTS_OF_A_STATE: Final = 25
"""Inputs in a row that start from one state, so that most of it can stay where it is."""
SECONDS_MAX: Final = 30
PARTS: Final = ("store", "log-b", "kept")
"""Directories that belong to a case: its store, a part of its log, and where a repair keeps what it replaces."""
SETTLES: Final = "and stops"
"""Ends a command once the earlier repair is settled: planning the next one takes most of its time."""
LINES: Final = (
    (60, ("undo", "--yes")),
    (4, ("undo", "--list")),
    (4, ("undo", "--discard", "--yes")),
    (24, ("recover", "--yes", "--broker-version", "5.5.0", SETTLES)),
    (2, ("recover", "--yes", "--broker-version", "5.5.0")),
    (1, ("salvage", "--yes", "--broker-version", "5.5.0")),
    (1, ("rebuild", "--dry-run", "--broker-version", "5.5.0")),
    (1, ("info",)),
    (1, ("verify",)),
)
"""Command lines that meet a journal, and how often each is run."""


Looked = dict[str, tuple[int, ...]]


@dataclass
class Tally:
    """What the inputs came to: exit codes by command."""

    inputs: int = 0
    runs: int = 0
    settled: int = 0
    """Runs that met an unfinished repair and brought it to an end."""
    outcomes: Counter[str] = field(default_factory=Counter)
    edits: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.runs += other.runs
        self.settled += other.settled
        self.outcomes += other.outcomes
        self.edits += other.edits


@dataclass(frozen=True)
class Seed:
    """A store with a journal, and how it came to it."""

    case: Case
    state: Tree
    name: str


class Yard:
    """A folder with a store in it, and canaries around it that nobody may touch.

    Every canary was never read: its access time lies before its modification time, so that any read changes it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.store = self.work / "store"
        self._opened: list[str] = []
        self._standing: tuple[Tree, Looked] | None = None
        """What was put into the yard last, and what that looked like."""
        self.work.mkdir()
        self.seeds = self._seeds()
        (folder / "plans").mkdir()
        self._plant()
        for name in PARTS:
            (self.work / name).mkdir(exist_ok=True)
        self._canaries = [folder, self.work]
        for victim in (folder / "victim", self.work / "victim"):
            self._canaries += [victim, *sorted(victim.rglob("*"))]
        self._canaries += [folder / "canary", self.work / "canary"]
        self._age()
        self._signature = self._look()
        self._is_watching = False
        sys.addaudithook(self._hear)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Hear no more; a hook of the interpreter cannot be taken away."""
        self._is_watching = False

    def _plant(self) -> None:
        for folder in (self.folder, self.work):
            victim = folder / "victim"
            for path in ("staging/file", "undo/1/manifest", "undo/7/saved", "undo/1/files/0", "files/0", "new/0",
                         "commitlog/00000000000000000000", "0", "ranges", "manifest", "abort"):  # fmt: skip
                (victim / path).parent.mkdir(parents=True, exist_ok=True)
                (victim / path).write_bytes(b"canary " * 9)
            (victim / "empty").mkdir()
            (folder / "canary").write_bytes(b"canary")
            os.mkfifo(victim / "pipe")

    def _seeds(self) -> list[Seed]:
        """Stores in all states that a repair and its undo go through, some of each."""
        seeds: list[Seed] = []
        for name in SEED_CASES:
            case = CASES[name]
            case.fresh(self.work)
            found = states_of(self.work, lambda: case.repair(self.work))  # noqa: B023 - called at once
            found += states_of(self.work, lambda: case.undo(self.work))  # noqa: B023 - likewise
            found = [state for state in found if f"store/{OWN}/undo" in state[1]]
            for number in range(STATES_MAX * 2):
                call, state = found[number * (len(found) - 1) // (STATES_MAX * 2 - 1)]
                seeds.append(Seed(case, state, f"{name} at {call}"))
        return seeds

    def _age(self) -> None:
        for place in self._canaries:
            os.utime(place, ns=(0, 1_700_000_000_000_000_000))

    def fill(self, tree: Tree, links: dict[str, str]) -> None:
        """Put a store and its neighbours into the yard; their own directories stay the same ones.

        Where the last run changed nothing, only what differs is put there.
        """
        if not self._fill_differing(tree):
            self._fill_whole(tree)
        for path in [path for path in links if path not in tree or not tree[path].is_file]:
            del links[path]  # a later edit took the file away
        for path, target in links.items():
            place = self.work / path
            place.unlink(missing_ok=True)
            os.link(target, place)
        if links:
            self._standing = None
            self._signature = self._look()

    def _fill_whole(self, tree: Tree) -> None:
        for top in PARTS:
            inner = {path[len(top) + 1 :]: node for path, node in tree.items() if path.startswith(f"{top}/")}
            put_back({".": tree.get(top, tree["store"]), **inner}, self.work / top)
        self._standing = tree, self.looked()

    def _fill_differing(self, tree: Tree) -> bool:
        """Write the files whose bytes alone differ, if that is all; whether it was."""
        if self._standing is None or self._standing[0].keys() != tree.keys():
            return False
        before = self._standing[0]
        differing = [path for path, node in tree.items() if node is not before[path]]
        if any(replace(before[path], content=b"") != replace(tree[path], content=b"") for path in differing):
            return False
        if any(not tree[path].is_file for path in differing) or self.looked() != self._standing[1]:
            return False
        for path in differing:
            place = self.work / path
            place.write_bytes(tree[path].content)
            os.utime(place, ns=(tree[path].mtime_ns, tree[path].mtime_ns))
        self._standing = tree, self.looked()
        return True

    def run(self, line: tuple[str, ...], options: list[str]) -> Outcome:
        """Run one command line on the store, which must end in time."""
        self._opened.clear()
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(SECONDS_MAX)
        self._is_watching = True
        try:
            with pytest.MonkeyPatch.context() as patch:
                if SETTLES in line:
                    patch.setattr(repair_command, "carry_out", _stop)
                return run(line[0], self.store, *(word for word in line[1:] if word != SETTLES), *options)
        finally:
            self._is_watching = False
            signal.alarm(0)

    def harm(self, edits: Edits) -> list[str]:
        """What happened to a canary, or was opened outside of the store."""
        lines: list[str] = []
        for place, old, new in zip(self._canaries, self._signature, self._look(), strict=True):
            # A second name in the store may be read, and go.
            count = 4 if edits.links and old[-1] > 1 else 5 if edits.leads_away else len(old)
            if old[:count] != new[:count]:
                lines.append(f"{place.relative_to(self.folder)}: {old} became {new}")
        if edits.leads_away:
            return lines
        return [*lines, *(f"{path}: opened" for path in dict.fromkeys(self._opened))]

    def restore(self) -> None:
        """Take hard links to canaries away, whatever they are called by now, and look at them once more."""
        for top in PARTS:
            put_back({}, self.work / top)
        self._standing = None
        self._age()
        self._signature = self._look()

    def is_unchanged(self, tree: Looked) -> bool:
        """Whether the store is as it was when this was looked at."""
        return tree == self.looked()

    def looked(self) -> Looked:
        """All names below the yard's store with what a change would show in."""
        found: Looked = {}
        waiting = [os.fspath(self.work / top) for top in PARTS]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    state = entry.stat(follow_symlinks=False)
                    found[entry.path] = (state.st_ino, state.st_mode, state.st_uid, state.st_size, state.st_ctime_ns)
                    if stat.S_ISDIR(state.st_mode):
                        waiting.append(entry.path)
        return found

    def _look(self) -> list[tuple[int, ...]]:
        looked: list[tuple[int, ...]] = []
        for place in self._canaries:
            try:
                found = os.lstat(place)
            except FileNotFoundError:
                looked.append((0,) * 7)
                continue
            # A directory's names may be looked up and its parent's listing may be read on the way; not a victim's.
            atime = 0 if place in (self.folder, self.work) else found.st_atime_ns
            looked.append((found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns, found.st_ctime_ns, atime,
                           found.st_nlink if stat.S_ISREG(found.st_mode) else 1))  # fmt: skip
        return looked

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not self._is_watching or not isinstance(arguments[0], str):
            return
        path = os.path.normpath(arguments[0])
        allowed = (*(f"{self.work}/{part}" for part in PARTS), f"{self.folder}/plans")
        if path.startswith(f"{self.folder}/") and not path.startswith(allowed) and path != os.fspath(self.work):
            self._opened.append(path)


def check_input(yard: Yard, seed: int) -> Tally:
    """Run one to three command lines on one input.

    Raises:
        AssertionError: a canary was touched, or a command crashed.
    """
    chosen = random.Random(seed)
    start = random.Random(seed // INPUTS_OF_A_STATE).choice(yard.seeds)
    tally = Tally(1)
    if chosen.random() < 0.015:
        _apply(yard, chosen, seed, start, tally)
        return tally
    edits: Edits = edit_tree(chosen, start.state, yard.folder)
    tally.edits.update(edits.kinds)
    yard.fill(edits.tree, edits.links)
    state = yard.looked()
    for line in _lines(chosen):
        outcome = yard.run(line, _options(start.case, yard, line))
        _check(yard, outcome, line, edits, seed, start)
        tally.runs += 1
        tally.outcomes[f"{line[0]}: exit {outcome.code}"] += 1
        tally.settled += "unfinished and has been" in outcome.errors
        if not yard.is_unchanged(state):
            break
    if edits.links or edits.leads_away:
        yard.restore()
    return tally


def _lines(chosen: random.Random) -> list[tuple[str, ...]]:
    weights, lines = zip(*LINES, strict=True)
    return chosen.choices(lines, weights, k=chosen.choice((1, 1, 1, 2)))


def _options(case: Case, yard: Yard, line: tuple[str, ...]) -> list[str]:
    """Where the case keeps parts of its store."""
    options = [option.format(yard.work) for option in case.options]
    repairs = line[0] not in ("info", "verify") and (line[0] != "undo" or UNDO_KNOWS_DIRECTORIES)
    return [part for pair in zip(options[::2], options[1::2], strict=True) for part in pair
             if pair[0] == "--commitlog" or (pair[0] == "--undo-dir" and repairs)]  # fmt: skip


def _apply(yard: Yard, chosen: random.Random, seed: int, start: Seed, tally: Tally) -> None:
    """A plan file with edits, on the store it was made for."""
    case = start.case
    yard.fill(case.original, {})
    plan = yard.folder / "plans" / "plan"
    options = [*case.own, *_options(case, yard, ("info",))]
    saved = run(case.command, yard.store, "--plan", plan, *options)
    assert saved.code == 3, saved.said
    edits = edit_plan(chosen, plan, yard.folder)
    tally.edits.update(edits.kinds)
    before = yard.looked()
    line = (case.command, "--yes", "--accept-loss", "--apply", os.fspath(plan))
    outcome = yard.run(line, options)
    _check(yard, outcome, line, edits, seed, start)
    tally.runs += 1
    tally.outcomes[f"--apply: exit {outcome.code}"] += 1
    assert outcome.code == 0 or yard.is_unchanged(before) or edits.kinds == ["nothing"], (
        "a plan that fails changes files"
    )


def _check(yard: Yard, outcome: Outcome, line: tuple[str, ...], edits: Edits, seed: int, start: Seed) -> None:
    # A repair that is planned now goes where the broker's own directories lead, as a broker does; no journal says so.
    plans = line[0] in ("recover", "salvage") and "--yes" in line and SETTLES not in line
    wrong = [] if edits.leads_away and plans else yard.harm(edits)
    if outcome.code not in CLEAN_EXITS or "Traceback" in outcome.errors:
        wrong.append(outcome.said)
    if wrong:
        shown = "; ".join(wrong[:6])
        raise AssertionError(
            f"seed {seed}, {start.name}, {' '.join(line)}, edits {edits.kinds} {edits.places}: {shown}"
        )


def _stop(_repair: RepairRun, _planner: Planner) -> None:
    raise RefusedError("settled; nothing is planned")


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise AssertionError(f"no end after {SECONDS_MAX} s")

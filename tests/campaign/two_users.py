"""Root repairs a store that belongs to another user, who can undo that and run a broker, whatever root's umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.campaign.cases import Case
from tests.campaign.command import Outcome
from tests.campaign.guard import STAGING, Guard, unclean
from tests.campaign.processes import Running, stopped_at
from tests.campaign.tally import Tally
from tests.campaign.trees import OWN, Tree, capture, put_back

OWNER: Final = 12_345
UMASKS: Final = (0o022, 0o077, 0o000)


class OwnedGuard(Guard):
    """A case whose files all belong to the store's owner."""

    def __init__(self, case: Case, folder: Path) -> None:
        owned = {path: replace(node, owner=(OWNER, OWNER)) for path, node in case.original.items()}
        copy = replace(case)
        copy.__dict__["original"] = owned
        super().__init__(copy, folder)


def two_users(case: Case, folder: Path, points: tuple[float, ...] = (0.5,)) -> Tally:
    """Root repairs and the owner undoes, root is killed and the owner undoes, the owner repairs and root undoes."""
    tally = Tally()
    store = folder / "case"
    store.mkdir()
    folder.chmod(0o755)
    os.chown(store, OWNER, OWNER)
    guard = OwnedGuard(case, store)
    case = guard.case
    repair, undo = (lambda: case.repair(store)), (lambda: case.undo(store))
    for umask in UMASKS:
        said = f"{case.name}, umask {umask:03o}"
        put_back(guard.original, store)
        wrong = unclean(_as(0, umask, folder, repair), 0, 3) + _strange(capture(store)) + guard.not_repaired()
        wrong += _no_broker(folder, store)
        wrong += unclean(_as(OWNER, umask, folder, undo), 0) + guard.not_original()
        tally.check("root repairs, the owner undoes", wrong, said)
        put_back(guard.original, store)
        wrong = unclean(_as(OWNER, umask, folder, repair), 0, 3) + _strange(capture(store))
        wrong += unclean(_as(0, umask, folder, undo), 0) + guard.not_original() + _no_broker(folder, store)
        tally.check("the owner repairs, root undoes", wrong, said)
        for point in points:
            put_back(guard.original, store)
            call = _kill_within(point, umask, folder, store, repair)
            state = capture(store)
            wrong = _strange(state) + unclean(_as(OWNER, umask, folder, undo), 0)
            # What root was building is root's, so that the owner cannot put a link there; root's next run removes it.
            left = (f"store/{OWN}: came", STAGING)
            wrong += [line for line in guard.not_original(state) if not line.startswith(left)]
            wrong += _no_broker(folder, store)
            put_back(state, store)
            wrong += unclean(_as(OWNER, umask, folder, repair), 0, 3) + guard.not_repaired()
            tally.check("root is killed, the owner undoes or repairs", wrong, f"{said}, call {call}")
    return tally


def _kill_within(point: float, umask: int, folder: Path, store: Path, repair: Callable[[], Outcome]) -> int:
    """Kill root's repair in front of one of its calls, after such a share of them; which call it was."""
    before = os.umask(umask)
    try:
        number = 1
        for number in (round(point * 150), round(point * 100), round(point * 60), 1):
            with stopped_at(max(number, 1), store, folder, repair) as process:
                if process is None:
                    continue
                os.kill(process.pid, 9)
                process.outcome()
                return number
    finally:
        os.umask(before)
    return number


def _as(user: int, umask: int, folder: Path, work: Callable[[], Outcome]) -> Outcome:
    """What comes out of a command that another user runs."""

    def become() -> None:
        os.umask(umask)
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)

    return Running(folder, work, become).outcome()


def _strange(state: Tree) -> list[str]:
    """What in a store belongs to somebody else than its owner, or may be read or written by others."""
    lines = [f"{path} belongs to {node.owner}" for path, node in state.items()
             if node.owner != (OWNER, OWNER) and path.rpartition("/")[2] != "lock"]  # fmt: skip
    lines = [line for line in lines if not line.startswith(f"{STAGING}/")]
    own = [path for path in state if f"/{OWN}" in path and not path.startswith(f"{STAGING}/")]
    return lines + [f"{path} has mode {stat.S_IMODE(state[path].mode):o}" for path in own if state[path].mode & 0o022]


def _no_broker(folder: Path, store: Path) -> list[str]:
    """What the owner's broker could not open: it reads and writes every file, and makes files in every directory."""

    def try_all() -> Outcome:
        wrong: list[str] = []
        for place in (store / "store").rglob("*"):
            if str(place).startswith(f"{store}/{STAGING}/"):
                continue
            try:
                if place.is_dir():
                    (place / "probe").write_bytes(b"")
                    (place / "probe").unlink()
                elif place.is_file():
                    os.close(os.open(place, os.O_RDWR))
            except OSError as error:
                wrong.append(f"the owner's broker: {place.relative_to(store)}: {error.strerror}")
        return Outcome(0, "\n".join(wrong), "")

    times = {place: place.stat().st_mtime_ns for place in [store / "store", *(store / "store").rglob("*/")]}
    said = _as(OWNER, 0o022, folder, try_all).output
    for place, mtime_ns in times.items():
        if place.is_dir():
            os.utime(place, ns=(mtime_ns, mtime_ns))
    return said.splitlines()

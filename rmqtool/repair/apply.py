"""Carries a plan out: lock, check, journal, fence, steps, read back, hand over. What fails half-way is taken back."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rmqtool.errors import RefusedError, RmqtoolError, UnsupportedError, UsageError, WriteError
from rmqtool.repair.digest import digest_of
from rmqtool.repair.disk import Disk, Metadata
from rmqtool.repair.fence import is_fenced, lower_fences
from rmqtool.repair.fingerprint import file_states, fingerprint
from rmqtool.repair.interrupt import Interrupt, held_interrupts
from rmqtool.repair.journal import Journal, JournalState, done_record, journals
from rmqtool.repair.places import Places
from rmqtool.repair.plan import ABORT_NAME, Plan
from rmqtool.repair.prepare import Change, Prepared, check_undo_directory, prepare
from rmqtool.repair.restore import remove_empty, reopen, take_back
from rmqtool.repair.steps import Create, Remove, Replace, WriteRange
from rmqtool.store.hold import StoreLock
from rmqtool.store.source import FileSource

FILE_MODE: Final = 0o644
"""Of a new file that has no neighbour to be like."""


@dataclass(frozen=True)
class Applied:
    """A repair that is done."""

    plan: Plan
    undo: Path
    """Its journal."""

    def to_json(self, verify: dict[str, Any] | None = None) -> dict[str, Any]:
        """The plan's JSON and what became of it; `verify` is the summary of a verification afterwards."""
        return {**self.plan.to_json(), "applied": True, "undo": str(self.undo), "verify": verify}


def apply_plan(plan: Plan, places: Places, *, disk: Disk | None = None, undo_directory: Path | None = None) -> Applied:
    """Carry a plan out in place.

    Args:
        plan: not an empty one.
        places: the store it was made for.
        disk: makes the changes; another one in a test.
        undo_directory: where saved files go, if not into the store itself.

    Raises:
        RefusedError: a broker holds the store, it has changed since it was planned, or a repair is unfinished.
        UsageError: the plan contradicts itself.
        UnsupportedError: the store has no directory of the log.
        WriteError: something cannot be written; all is taken back, or the text says that it is not.
        UnreadableError: something cannot be read; likewise.
        KeyboardInterrupt: asked for during a step; all is taken back.
    """
    plan.check(places.log_directories)
    if plan.is_empty:
        raise UsageError("the plan has no steps")
    check_undo_directory(places, undo_directory)
    demand_log(places)
    disk = disk or Disk()
    with StoreLock(places.root, places.outer_logs), held_interrupts() as interrupt:
        demand_settled(places)
        demand_unchanged(plan, places)
        journal = carry_out(plan, places, disk, interrupt, undo_directory)
    return Applied(plan, journal.folder)


def demand_settled(places: Places) -> None:
    """Refuse to change a store on which a repair was killed half-way.

    Raises:
        RefusedError: it was.
    """
    if is_fenced(places) or any(journal.state is not JournalState.DONE for journal in journals(places)):
        raise RefusedError(f"{places.root}: an earlier repair is unfinished; take it back with rmqtool undo first")


def demand_log(places: Places) -> None:
    """Refuse to change a store whose log's directory is missing: there would be no place for the fence.

    Raises:
        UnsupportedError: it is.
    """
    for fence in places.fences:
        if not fence.parent.is_dir():
            raise UnsupportedError(f"{fence.parent}: no such directory, so brokers cannot be kept out of a repair")


def demand_unchanged(plan: Plan, places: Places) -> None:
    """Refuse a plan that was made for another store, or for this one as it no longer is.

    Raises:
        RefusedError: it was.
        UnreadableError: what is to be changed cannot be read.
    """
    if fingerprint(places) != plan.store_fingerprint:
        raise RefusedError(f"{places.root}: not the store that was planned for, or changed since; plan anew")
    for step in plan.steps:
        if step.before is None:
            continue
        with FileSource.open(places.file(step.path), step.path) as source:
            end = min(source.size, step.file_position + step.length) if isinstance(step, WriteRange) else source.size
            if digest_of(source, step.file_position, end, salvaging=True) != step.before:
                raise RefusedError(f"{step.path}: changed since it was planned; plan anew")


def carry_out(
    plan: Plan, places: Places, disk: Disk, interrupt: Interrupt, undo_directory: Path | None = None
) -> Journal:
    """Journal, fence, steps, check and hand-over, under a lock that the caller holds."""
    before = {journal.number for journal in journals(places)}
    try:
        prepared = prepare(plan, places, disk, undo_directory)
        interrupt.demand_none()
        _change_all(prepared, places, disk, interrupt)
        _hand_over(prepared, places, disk, interrupt)
    except BaseException as error:
        for journal in journals(places):
            if journal.number not in before:
                _take_back_after(error, journal, places, disk)
        with suppress(RmqtoolError):
            remove_empty(places, disk)
        raise
    with suppress(RmqtoolError):  # left-overs of planning are in nobody's way
        disk.remove_tree(places.staging)
    return prepared.journal


def _change_all(prepared: Prepared, places: Places, disk: Disk, interrupt: Interrupt) -> None:
    for directory in prepared.manifest.made_directories:
        place = places.root / directory
        disk.make_directory(place, place.parent)
    for change in prepared.changes:
        if change.saved.path != ABORT_NAME or change.saved.action != "remove":
            _change(change, disk)
            interrupt.demand_none()
    touched = {change.place.parent for change in prepared.changes}
    for touched_directory in sorted(touched | {places.root / made for made in prepared.manifest.made_directories}):
        disk.sync_directory(touched_directory)
        disk.sync_directory(touched_directory.parent)


def _change(change: Change, disk: Disk) -> None:
    """Make one file what the plan says."""
    first, place, saved = change.steps[0], change.place, change.saved
    match first:
        case WriteRange():
            for step in change.steps:
                if isinstance(step, WriteRange):
                    disk.write(place, step.file_position, step.content)
            if saved.metadata is not None:
                disk.set_times(place, saved.metadata.atime_ns, saved.metadata.mtime_ns)
            disk.sync(place)
        case Replace() | Create():
            _build(change, first, disk)
            if saved.is_moved and isinstance(first, Replace):
                disk.rename(place, saved.saved)
                disk.sync_directory(saved.saved.parent)
            disk.rename(change.staged, place)
        case Remove():
            if saved.is_moved:
                disk.rename(place, saved.saved)
                disk.sync_directory(saved.saved.parent)
            else:
                disk.remove(place)


def _build(change: Change, step: Replace | Create, disk: Disk) -> None:
    """The new file, whole and on the disk, in the place from which it is renamed."""
    if not change.adopts:
        disk.create(change.staged, step.length)
        disk.write(change.staged, 0, step.content)
    disk.give_metadata(change.staged, change.saved.metadata or _metadata_of_new(change.place, step))
    disk.sync(change.staged)


def _metadata_of_new(place: Path, step: Replace | Create) -> Metadata:
    """Like its neighbours; its directory says whose it is."""
    directory = Metadata.of(place.parent)
    neighbour = next((entry for entry in sorted(place.parent.iterdir()) if _is_plain_file(entry)), None)
    mode = Metadata.of(neighbour).mode if neighbour is not None else FILE_MODE
    mtime_ns = step.mtime_ns if isinstance(step, Create) else None
    now_ns = time.time_ns()
    return Metadata(step.length, mode, directory.user_id, directory.group_id, now_ns, mtime_ns or now_ns)


def _is_plain_file(place: Path) -> bool:
    return not place.name.startswith(".") and place.is_file() and not place.is_symlink()


def _hand_over(prepared: Prepared, places: Places, disk: Disk, interrupt: Interrupt) -> None:
    """Check what was written, remove `abort`, say that it is done, let brokers in."""
    written = {change.saved.path: _checked(change) for change in prepared.changes}
    for change in prepared.changes:
        if change.saved.path == ABORT_NAME and change.saved.action == "remove":
            _change(change, disk)
            disk.sync_directory(places.root)
    interrupt.demand_none()
    record = done_record(file_states(places), written, time.time_ns() // 1_000_000)
    disk.publish(prepared.journal.done_place, record, places.root)
    lower_fences(places, disk)


def _checked(change: Change) -> list[tuple[int, int, str]]:
    """What a file holds now, read from the disk; (position, length, digest) of each range that was written.

    Raises:
        WriteError: it is not what was written.
    """
    found: list[tuple[int, int, str]] = []
    for step in change.steps:
        if step.after is None:
            continue
        with FileSource.open(change.place, step.path) as source:
            with suppress(OSError):  # advice only: the bytes on the disk and not those in memory
                os.posix_fadvise(source.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            is_whole = isinstance(step, WriteRange) or source.size == step.length
            if not is_whole or digest_of(source, step.file_position, step.file_position + step.length) != step.after:
                raise WriteError(f"{step.path}: reads back as something else than was written")
        found.append((step.file_position, step.length, step.after))
    return found


def _take_back_after(error: BaseException, journal: Journal, places: Places, disk: Disk) -> None:
    """Roll a repair back that failed, were it in the last moment.

    Raises:
        WriteError: that failed too; the text says how the store is left.
    """
    try:
        if journal.state is JournalState.DONE:
            reopen(journal, places, disk)
        take_back(journal, places, disk)
    except (RmqtoolError, OSError) as second:
        raise WriteError(
            f"{str(error) or 'interrupted'}; it could not be taken back now ({second}): "
            f"no broker loads the store until you run rmqtool undo {places.root}"
        ) from error

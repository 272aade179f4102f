"""Carries a plan out: lock, check, journal, fence, steps, read back, hand over. What fails half-way is rolled back."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Hashable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rmqtool.errors import RefusedError, RmqtoolError, UnreadableError, UnsupportedError, UsageError, WriteError
from rmqtool.memory import THREAD_BYTES, memory_budget
from rmqtool.repair.machine.digest import digest_of
from rmqtool.repair.machine.disk import Disk, Metadata
from rmqtool.repair.machine.fingerprint import file_states, fingerprint
from rmqtool.repair.machine.interrupt import Interrupt, held_interrupts
from rmqtool.repair.machine.journal import Done, Journal, JournalState, journals, record
from rmqtool.repair.machine.journal_writer import (
    FileChange,
    PreparedJournal,
    check_undo_directory,
    demand_own_kinds,
    write_journal,
)
from rmqtool.repair.machine.plan import ABORT_NAME, Plan
from rmqtool.repair.machine.root import RootPath
from rmqtool.repair.machine.session import Session, remove_empty
from rmqtool.repair.machine.steps import Create, Remove, Replace, Step, WriteRange, step_json
from rmqtool.repair.machine.store_paths import StorePaths, is_fenced, lower_fences, own_file_like
from rmqtool.repair.machine.undo import how_left, reopen, roll_back
from rmqtool.scan.runner import ThreadRunner

FILE_MODE: Final = 0o644
"""Of a new file that has no neighbor to be like."""


@dataclass(frozen=True)
class Applied:
    """A repair that is done."""

    plan: Plan
    journal: Journal
    read_back: dict[Hashable, str]
    """The files that were written whole, as they were when they were read back, with the digest of each."""

    @property
    def undo(self) -> Path:
        """Where its journal lies."""
        return self.journal.folder.shown

    def to_json(self, verify: dict[str, Any] | None = None) -> dict[str, Any]:
        """The plan's JSON and how it was carried out; `verify` is the summary of a verification afterwards."""
        return {**self.plan.to_json(), "applied": True, "undo": str(self.undo), "verify": verify}


def apply_plan(plan: Plan, places: StorePaths, *, disk: Disk | None = None, session: Session | None = None) -> Applied:
    """Carry a plan out in place.

    Args:
        plan: not an empty one.
        session: of the run that made the plan, if it holds the store's lock already.

    Raises:
        RefusedError: a broker holds the store, it has changed since it was planned, or a repair is unfinished.
        UsageError: the plan contradicts itself.
        UnsupportedError: the store has no directory of the log.
        WriteError: something cannot be written; all is rolled back, or the text says that it is not.
        UnreadableError: something cannot be read; likewise.
        KeyboardInterrupt: asked for during a step; all is rolled back.
    """
    plan.check(places.log_directories)
    if plan.is_empty:
        raise UsageError("the plan has no changes")
    check_undo_directory(places)
    for directory in places.log_directories:
        if not (places.root / directory).is_dir():  # there would be no place for the fence
            raise UnsupportedError(
                f"{places.root / directory}: no such directory, so the repair cannot keep brokers out"
            )
    demand_own_kinds(plan, places)
    with nullcontext(session) if session is not None else Session(places, disk) as held, held_interrupts() as interrupt:
        held.lock.complete()
        demand_settled(held.places)
        demand_unchanged(plan, held.places)
        return carry_out(plan, held, interrupt)


def demand_settled(places: StorePaths) -> None:
    """Refuse to change a store on which a repair was killed half-way, with RefusedError."""
    if is_fenced(places) or any(journal.state is not JournalState.DONE for journal in journals(places)):
        raise RefusedError(f"{places.root}: an earlier repair is unfinished; roll it back with rmqtool undo first")


def demand_unchanged(plan: Plan, places: StorePaths) -> None:
    """Refuse a plan that was made for another store, or for this one as it no longer is.

    Raises:
        RefusedError: it was.
    """
    if fingerprint(places) != plan.store_fingerprint:
        raise RefusedError(f"{places.root}: not the store of this plan, or changed since; make the plan again")
    for step in plan.steps:
        if step.before is None:
            continue
        with places.file(step.path).source(step.path) as source:
            end = min(source.size, step.file_position + step.length) if isinstance(step, WriteRange) else source.size
            if digest_of(source, step.file_position, end, salvaging=True) != step.before:
                raise RefusedError(f"{step.path}: changed since the plan was made; make the plan again")


def _demand_fit(plan: Plan, session: Session) -> None:
    """Refuse a store that a broker has changed or loads, though not served: the lock stops it only after its load."""
    session.lock.demand_unused()
    if fingerprint(session.places) != plan.store_fingerprint:
        raise RefusedError(f"{session.places.root}: changed since the plan was made; make the plan again")


def carry_out(plan: Plan, session: Session, interrupt: Interrupt) -> Applied:
    """Journal, fence, steps, check and hand-over, under the lock that the session holds."""
    places, disk = session.places, session.disk
    before = {journal.number for journal in journals(places)}
    read_back: dict[Hashable, str] = {}
    try:
        for step in plan.steps:  # read what no check has read, while all of it is as the planner left it
            step_json(step)
        try:
            prepared = write_journal(plan, session, lambda: _demand_fit(plan, session))
        except (UnreadableError, WriteError):
            _demand_fit(plan, session)  # a file that a broker has just removed is no error of the disk
            raise
        interrupt.demand_none()
        _change_all(prepared, places, disk, interrupt)
        _hand_over(prepared, places, disk, interrupt, read_back)
    except BaseException as error:
        for journal in journals(places):
            if journal.number not in before:
                _take_back_after(error, journal, places, disk)
        if isinstance(error, KeyboardInterrupt):
            error.add_note("the repair was rolled back, and the store is as it was before")
        with suppress(RmqtoolError):
            remove_empty(places, disk)
        raise
    with suppress(RmqtoolError):  # what planners left is in nobody's way
        remove_empty(places, disk)
    return Applied(plan, prepared.journal, read_back)


def _change_all(prepared: PreparedJournal, places: StorePaths, disk: Disk, interrupt: Interrupt) -> None:
    new_directories = [places.directory(path) for path in prepared.manifest.made_directories]
    for directory in new_directories:
        disk.make_directory(directory, Metadata.of(directory.parent))
    for change in prepared.changes:
        if change.entry.saved.path != ABORT_NAME or change.entry.saved.action != "remove":
            _change(change, disk)
            interrupt.demand_none()
    for directory in sorted({*(change.entry.file.parent for change in prepared.changes), *new_directories}, key=str):
        disk.sync_directory(directory)
        disk.sync_directory(directory.parent)


def _change(change: FileChange, disk: Disk) -> None:
    first, file, old, saved = change.steps[0], change.entry.file, change.entry.old, change.entry.saved
    if saved.action == "write":
        for step in change.steps:
            if isinstance(step, WriteRange):
                disk.write(file, step.file_position, step.content)
        if saved.metadata is not None:
            disk.set_times(file, saved.metadata.atime_ns, saved.metadata.mtime_ns)
        disk.sync(file)
    elif isinstance(first, Remove):
        if saved.is_moved:
            disk.rename(file, old)
            disk.sync_directory(old.parent)
        else:
            disk.remove(file)
    else:
        # The new file is whole and on the disk before it is renamed.
        staged = change.staged
        if change.is_copied:
            with file.source() as source:
                disk.copy(source, staged, salvaging=True)
            for step in change.steps:
                if isinstance(step, WriteRange):
                    disk.write(staged, step.file_position, step.content)
        elif isinstance(first, Replace | Create) and not change.adopts:
            disk.create(staged, first.length)
            disk.write(staged, 0, first.content)
        disk.give_metadata(staged, saved.metadata or _metadata_of_new(file, first))
        disk.sync(staged)
        if saved.is_moved and saved.action == "replace":
            disk.rename(file, old)
            disk.sync_directory(old.parent)
        disk.rename(staged, file)


def _metadata_of_new(file: RootPath, step: Step) -> Metadata:
    """Metadata like that of its neighbors; its directory shows the owner."""
    directory = Metadata.of(file.parent)
    neighbors = (file.with_name(name).lstat() for name in file.parent.names() if not name.startswith("."))
    modes = (state.st_mode for state in neighbors if state is not None and stat.S_ISREG(state.st_mode))
    mode = stat.S_IMODE(next(modes, FILE_MODE))
    mtime_ns = step.mtime_ns if isinstance(step, Create) else None
    now_ns = time.time_ns()
    return Metadata(step.length, mode, directory.user_id, directory.group_id, now_ns, mtime_ns or now_ns)


def _hand_over(
    prepared: PreparedJournal, places: StorePaths, disk: Disk, interrupt: Interrupt, read_back: dict[Hashable, str]
) -> None:
    """Check the written files, remove `abort`, mark the journal as done, let brokers in."""
    threads = ThreadRunner(memory_budget().threads(os.cpu_count() or 1, THREAD_BYTES))
    largest_first = sorted(prepared.changes, key=lambda change: -sum(step.length for step in change.steps))
    paths = (change.entry.saved.path for change in largest_first)
    checked = dict(zip(paths, threads.map(partial(_checked, read_back=read_back), largest_first), strict=True))
    written = {change.entry.saved.path: checked[change.entry.saved.path] for change in prepared.changes}
    for change in prepared.changes:
        if change.entry.saved.path == ABORT_NAME and change.entry.saved.action == "remove":
            _change(change, disk)
            disk.sync_directory(places.top)
    interrupt.demand_none()
    files = {path: (state.size, state.mtime_ns, state.inode) for path, state in file_states(places).items()}
    done = Done(time.time_ns() // 1_000_000, files, written)
    disk.publish(prepared.journal.folder / "done", record(done), own_file_like(places.top))
    lower_fences(places, disk)


def _checked(change: FileChange, read_back: dict[Hashable, str]) -> tuple[tuple[int, int, str], ...]:
    """Read a changed file back from the disk; return (position, length, digest) of each range that was written."""
    written: list[tuple[int, int, str]] = []
    for step in change.steps:
        if step.after is None:
            continue
        with change.entry.file.source(step.path) as source:
            with suppress(OSError):  # advice only: the bytes on the disk and not those in memory
                os.posix_fadvise(source.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            identity = source.identity  # a file that is written to meanwhile gets another one
            has_size = isinstance(step, WriteRange) or source.size == step.length
            if not has_size or digest_of(source, step.file_position, step.file_position + step.length) != step.after:
                raise WriteError(f"{step.path}: read-back verification failed")
            if not isinstance(step, WriteRange) and identity is not None:
                read_back[identity] = step.after
        written.append((step.file_position, step.length, step.after))
    return tuple(written)


def _take_back_after(error: BaseException, journal: Journal, places: StorePaths, disk: Disk) -> None:
    """Roll a repair back that failed, even in the last moment."""
    try:
        if journal.state is JournalState.DONE:
            reopen(journal, places, disk)
        roll_back(journal, places, disk)
    except (RmqtoolError, OSError) as second:
        raise WriteError(
            f"{str(error) or 'interrupted'}; the repair could not be rolled back ({second}): "
            f"{how_left(journal, places)}"
        ) from error

"""Makes a repaired copy of a store and leaves the store alone: nothing of it is written, not even its lock.

The copy shares blocks with the store where the file system can, keeps its holes, and never shares a file with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from rmqtool.errors import RefusedError, RmqtoolError, UnreadableError, UnsupportedError, UsageError, WriteError
from rmqtool.repair.machine.apply import carry_out, demand_settled, demand_unchanged
from rmqtool.repair.machine.disk import Disk, Metadata
from rmqtool.repair.machine.fingerprint import file_states, fingerprint
from rmqtool.repair.machine.interrupt import Interrupt, held_interrupts
from rmqtool.repair.machine.plan import OWN_DIRECTORY, Plan
from rmqtool.repair.machine.root import Root
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.store_paths import DEFAULT_LOG, StorePaths, raise_fences
from rmqtool.repair.machine.undo import discard
from rmqtool.store.acquire_lock import demand_free
from rmqtool.store.list_files import list_files
from rmqtool.store.source import FileSource, reason
from rmqtool.store.view import DirectoryView


def apply_to_copy(
    plan: Plan,
    places: StorePaths,
    output: Path,
    disk: Disk | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> StorePaths:
    """Copy a store and carry a plan out in the copy; where the copy lies.

    Until it is finished the copy has a fence. What was begun is removed where it fails.

    Args:
        plan: made for the store; an empty one makes a plain copy.
        output: a directory that is not there yet, or is empty.
        on_progress: is told the bytes of files that are copied, and how many there are.

    Raises:
        RefusedError: a broker uses the store, or it changed since it was planned for, or while it was copied.
        UsageError: the directory is not free, or lies in the store.
        UnsupportedError: the log has several directories outside of the store.
        KeyboardInterrupt: asked for during the copy.
    """
    plan.check(places.log_directories)
    check_output(places, output)
    if places.outer_logs and len(places.log_directories) > 1:
        raise UnsupportedError(
            f"{places.root}: --output cannot copy a commit log in several directories outside the store"
        )
    # A log's directory that lay outside comes home.
    copy = StorePaths(output, DEFAULT_LOG if places.outer_logs else places.log_directories)
    demand_free(places.root, places.outer_logs)
    demand_settled(places)
    demand_unchanged(plan, places)
    disk = disk or Disk()
    is_new = not output.exists()
    itself = Root.open(output.absolute().parent) / output.name
    with held_interrupts() as interrupt:
        try:
            disk.make_directory(itself, Metadata.of(places.top))
            _copy(plan, places, copy, disk, interrupt, on_progress)
            steps = tuple(replace(step, path=_copied_path(step.path, places)) for step in plan.steps)
            plan_of_copy = replace(plan, steps=steps, store_fingerprint=fingerprint(copy))
            with Session(copy, disk) as session:
                discard(carry_out(plan_of_copy, session, interrupt).journal, copy, disk, lower=True)
        except BaseException as error:
            with suppress(RmqtoolError):
                if is_new:
                    disk.remove_tree(itself)
                for name in () if is_new else itself.names():
                    if (itself / name).is_directory():
                        disk.remove_tree(itself / name)
                    else:
                        disk.remove(itself / name)
                if isinstance(error, KeyboardInterrupt):
                    error.add_note("the copy was removed, and the store was not changed")
            raise
    return copy


def check_output(places: StorePaths, output: Path) -> None:
    """Refuse a directory that is in use, or is in the store.

    Raises:
        UsageError, WriteError: it is, or may not be looked at.
    """
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise UsageError(f"{output}: already exists; use a new directory")
    except OSError as error:
        raise WriteError(f"{output}: {reason(error)}") from error
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output.parent}: no such directory")
    for inside in (places.root, *places.outer_logs):
        if output.resolve().is_relative_to(inside.resolve()):
            raise UsageError(f"{output}: inside the store")


def _copy(
    plan: Plan,
    places: StorePaths,
    copy: StorePaths,
    disk: Disk,
    interrupt: Interrupt,
    on_progress: Callable[[int, int], None] | None,
) -> None:
    """Directories first, then the fences, then files, then the times of the directories."""
    # In these the plan answers what the disk does not give; others have to be readable.
    repaired = {step.path for step in plan.steps}
    listing = list_files(DirectoryView(places.root))
    directories = {
        path: places.root / path
        for path in listing.directories
        if path.split("/", maxsplit=1)[0] != OWN_DIRECTORY and path not in listing.unknown_directories
    }
    for outer in places.outer_logs:
        directories[DEFAULT_LOG[0]] = outer
    inner = (PurePosixPath(named) for named in places.log_directories if not named.startswith("/"))
    for folder in {str(folder) for log in inner for folder in (log, *log.parents) if folder.name}:
        if (places.root / folder).is_dir():
            directories[folder] = places.root / folder
    for path, source in sorted(directories.items()):
        disk.make_directory(copy.top / path, _metadata(source))
    for path in copy.log_directories:
        disk.make_directory(copy.top / path, Metadata.of(places.top))
    raise_fences(copy, disk)
    states = file_states(places)
    done, total = 0, sum(state.size for state in states.values())
    for path, state in states.items():
        file, target = places.root / path, copy.top / _copied_path(path, places)
        if file.is_file() and target.parent.is_directory() and not target.exists():
            with FileSource.open(file) as opened:
                disk.copy(opened, target, salvaging=path in repaired)
                disk.give_metadata(target, Metadata.from_stat(os.fstat(opened.descriptor)))
            disk.sync(target)
            interrupt.demand_none()
        done += state.size
        if on_progress is not None:
            on_progress(done, total)
    for path, source in sorted(directories.items(), reverse=True):
        metadata = _metadata(source)
        disk.set_times(copy.top / path, metadata.atime_ns, metadata.mtime_ns)
        disk.sync_directory(copy.top / path)
    if fingerprint(places) != plan.store_fingerprint:
        raise RefusedError(f"{places.root}: changed while it was copied")


def _metadata(directory: Path) -> Metadata:
    """Metadata of a directory of the store, which may be reached by a link."""
    try:
        return Metadata.from_stat(directory.stat())
    except OSError as error:
        raise UnreadableError(f"{directory}: {reason(error)}") from error


def _copied_path(path: str, places: StorePaths) -> str:
    """Path of a store's file in the copy, where a log outside the store is inside."""
    return f"{DEFAULT_LOG[0]}/{path.rpartition('/')[2]}" if path.startswith("/") and places.outer_logs else path

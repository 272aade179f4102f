"""Makes a repaired copy of a store and leaves the store alone: nothing of it is written, not even its lock.

The copy shares blocks with the store where the file system can, keeps its holes, and never shares a file with it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rmqtool.errors import RefusedError, RmqtoolError, UnsupportedError, UsageError, WriteError
from rmqtool.repair.apply import carry_out, demand_settled, demand_unchanged
from rmqtool.repair.disk import Disk, Metadata
from rmqtool.repair.fence import raise_fences
from rmqtool.repair.fingerprint import file_states, fingerprint
from rmqtool.repair.interrupt import Interrupt, held_interrupts
from rmqtool.repair.places import DEFAULT_LOG, Places
from rmqtool.repair.plan import OWN_DIRECTORY, Plan
from rmqtool.repair.restore import discard
from rmqtool.store.hold import StoreLock
from rmqtool.store.kinds import is_broker_directory
from rmqtool.store.lock import lock_report
from rmqtool.store.source import reason
from rmqtool.store.view import DirectoryView
from rmqtool.store.walk import walk


def apply_to_copy(plan: Plan, places: Places, output: Path, disk: Disk | None = None) -> Places:
    """Copy a store and carry a plan out in the copy; where the copy lies.

    Until it is finished the copy has a fence. What was begun is removed where it fails.

    Args:
        plan: made for the store; an empty one makes a plain copy.
        places: the store.
        output: a directory that is not there yet, or is empty.
        disk: makes the changes; another one in a test.

    Raises:
        RefusedError: a broker uses the store, or it changed since it was planned for, or while it was copied.
        UsageError: the directory is not free, or lies in the store.
        UnsupportedError: the log has several directories outside of the store.
        WriteError: the copy cannot be written.
        UnreadableError: the store cannot be read.
        KeyboardInterrupt: asked for during the copy.
    """
    plan.check(places.log_directories)
    _check_output(places, output)
    copy = Places(output, _log_directories(places))
    if lock_report(places.root, places.outer_logs).is_in_use:
        raise RefusedError(f"{places.root}: a broker uses the store; stop it first")
    demand_settled(places)
    demand_unchanged(plan, places)
    disk = disk or Disk()
    is_new = not output.exists()
    with held_interrupts() as interrupt:
        try:
            _copy(places, copy, disk, interrupt, {step.path for step in plan.steps})
            _demand_still_unchanged(plan, places)
            _repair_copy(_moved(plan, places, copy), copy, disk, interrupt)
        except BaseException:
            with suppress(RmqtoolError):
                _remove_copy(output, disk, whole=is_new)
            raise
    return copy


def _demand_still_unchanged(plan: Plan, places: Places) -> None:
    if fingerprint(places) != plan.store_fingerprint:
        raise RefusedError(f"{places.root}: changed while it was copied")


def _check_output(places: Places, output: Path) -> None:
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise UsageError(f"{output}: is there already; a repaired copy goes into a new directory")
    except OSError as error:
        raise WriteError(f"{output}: {reason(error)}") from error
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output.parent}: no such directory")
    for inside in (places.root, *places.outer_logs):
        if output.resolve().is_relative_to(inside.resolve()):
            raise UsageError(f"{output}: lies in the store")


def _log_directories(places: Places) -> tuple[str, ...]:
    """The log's directories of the copy; one that lay outside comes home."""
    if not places.outer_logs:
        return places.log_directories
    if len(places.log_directories) > 1:
        raise UnsupportedError(f"{places.root}: a copy of a log in several directories, some of them elsewhere")
    return DEFAULT_LOG


def _copy(places: Places, copy: Places, disk: Disk, interrupt: Interrupt, mended: AbstractSet[str]) -> None:
    """Directories first, then the fences, then files, then the times of the directories.

    Args:
        mended: paths of files in which the plan answers what the disk does not give; others have to be readable.
    """
    root = copy.root
    disk.make_directory(root, places.root)
    directories = {
        path: places.root / path
        for path in walk(DirectoryView(places.root)).directories
        if path.split("/", maxsplit=1)[0] != OWN_DIRECTORY and not _is_foreign_link(places, path)
    }
    for outer in places.outer_logs:
        directories[DEFAULT_LOG[0]] = outer
    for path, source in sorted(directories.items()):
        disk.make_directory(root / path, source)
    for directory in copy.log_directories:
        disk.make_directory(root / directory, places.root)
    raise_fences(copy, disk)
    for path in file_states(places):
        source, target = places.root / path, root / _copied_path(path, places)
        if source.is_file() and target.parent.is_dir() and not target.exists():
            disk.copy(source, target, salvaging=path in mended)
            disk.give_metadata(target, Metadata.of(source.resolve()))
            disk.sync(target)
            interrupt.demand_none()
    for path, source in sorted(directories.items(), reverse=True):
        found = Metadata.of(source.resolve())
        disk.set_times(root / path, found.atime_ns, found.mtime_ns)
        disk.sync_directory(root / path)


def _is_foreign_link(places: Places, path: str) -> bool:
    return (places.root / path).is_symlink() and not is_broker_directory(path)


def _copied_path(path: str, places: Places) -> str:
    """Where a file of the store lies in the copy; a log outside of the store stands for the one inside."""
    return f"{DEFAULT_LOG[0]}/{path.rpartition('/')[2]}" if path.startswith("/") and places.outer_logs else path


def _moved(plan: Plan, places: Places, copy: Places) -> Plan:
    steps = tuple(replace(step, path=_copied_path(step.path, places)) for step in plan.steps)
    return replace(plan, steps=steps, store_fingerprint=fingerprint(copy))


def _repair_copy(plan: Plan, copy: Places, disk: Disk, interrupt: Interrupt) -> None:
    with StoreLock(copy.root):
        journal = carry_out(plan, copy, disk, interrupt)
        discard(journal, copy, disk, lower=True)


def _remove_copy(output: Path, disk: Disk, *, whole: bool) -> None:
    if whole:
        disk.remove_tree(output)
        return
    for entry in sorted(output.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            disk.remove_tree(entry)
        else:
            disk.remove(entry)

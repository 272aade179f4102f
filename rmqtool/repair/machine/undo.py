"""Rolls repairs back, the latest first, and completes or reverts a killed one.

A store is made what a journal says it was, however far the repair came, and as often as it is tried: each file is
restored for itself and finding it restored already is no error, so this may be killed and run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from rmqtool.errors import RefusedError, RmqtoolError, UnreadableError, WriteError
from rmqtool.repair.machine.digest import digest_of
from rmqtool.repair.machine.disk import Disk, Metadata
from rmqtool.repair.machine.fingerprint import file_states
from rmqtool.repair.machine.interrupt import held_interrupts
from rmqtool.repair.machine.journal import UNDONE_SUFFIX, Journal, JournalState, journals
from rmqtool.repair.machine.journal_check import (
    CheckedJournal,
    JournalEntry,
    checked,
    demand_restorable,
    holds_ranges,
    is_as_before,
)
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.root import RootPart, RootPath
from rmqtool.repair.machine.session import Session, demand_own_directories, remove_empty
from rmqtool.repair.machine.store_paths import (
    STAGING,
    UNDO,
    StorePaths,
    is_fenced,
    lower_fences,
    own_file_like,
    raise_fences,
)
from rmqtool.store.file_kinds import FENCE_NAME

STAGED_OLD = ".rmqtool-restored"
"""Name, beside a file, under which a copy is completed before it takes its place; the store is fenced meanwhile."""

SHOWN_MAX: Final = 3
"""Changed files that a refusal names."""


@dataclass(frozen=True)
class UndoableRepair:
    """One repair that can be rolled back, as `undo --list` shows it."""

    number: int
    command: str | None
    """None where it was killed before it said so."""
    state: str
    began_ms: int | None
    steps: int
    kept_bytes: int
    """Room that its journal takes: old files and old bytes of changed ones."""
    journal: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def repairs(places: StorePaths) -> list[UndoableRepair]:
    """All repairs that can be rolled back, the latest first.

    Raises:
        UnreadableError: a journal may not be read, or is damaged.
    """
    return [_repair(journal, places) for journal in reversed(journals(places))]


def last_repair(places: StorePaths) -> tuple[UndoableRepair, bool] | None:
    """The latest repair, and whether it can be rolled back as far as lengths and times of the files tell.

    Raises:
        UnreadableError, RefusedError: the journal may not be read, is damaged, or somebody else's.
    """
    known = journals(places)
    if not known:
        return None
    latest = known[-1]
    is_undoable = latest.state is not JournalState.DONE or is_fenced(places) or not _differing(latest, places)
    return _repair(latest, places), is_undoable


def undo_latest(places: StorePaths, disk: Disk | None = None) -> UndoableRepair | None:
    """Restore the store from before its latest repair; None where there is none.

    A repair that was killed half-way is rolled back whatever happened since: no broker could load the store.

    Raises:
        RefusedError: a broker holds the store, something was written into it since the repair, or the journal is not
            the work of a repair of this store.
        WriteError: something cannot be written; the store stays fenced, and this can be tried again.
    """
    if not journals(places):
        _demand_no_lost_journal(places)
        if places.own_top.exists():
            with Session(places, disk, makes_file=False) as session:
                session.remove_left()
        return None
    with Session(places, disk) as session, held_interrupts():
        latest = journals(places)[-1]
        shown = _repair(latest, places)
        known = demand_undoable(latest, places)
        if latest.state is JournalState.DONE:
            if not is_fenced(places):  # a broker that was kept out has written no message, whatever else it touched
                demand_untouched(latest, places)
            with _telling(latest, places):
                reopen(latest, places, session.disk)
        session.clear_staging()
        _roll_back_known(known, places, session)
        return shown


def settle(places: StorePaths, disk: Disk | None = None, session: Session | None = None) -> UndoableRepair | None:
    """Bring a killed repair to an end: rolled back where steps were left to do, brokers let in where none were.

    Args:
        session: of the run that holds the store's lock already.

    Returns:
        What was settled; None where nothing was left behind.

    Raises:
        RefusedError: a broker holds the store, the fence is there without its journal or the journal without its
            fence, or the journal is not the work of a repair of this store.
        WriteError: something cannot be written; this can be tried again.
    """
    if not is_unsettled(places):
        return None
    with nullcontext(session) if session is not None else Session(places, disk) as held, held_interrupts():
        held.lock.complete()
        known = journals(places)
        left = [journal for journal in known if journal.state is not JournalState.DONE]
        shown = _repair((left or known)[-1], places) if known else None
        takeable = [demand_undoable(journal, places) for journal in left]
        for journal in left:
            _demand_fenced(journal, places)
        held.clear_staging()
        for checked_journal in reversed(takeable):
            _roll_back_known(checked_journal, places, held)
        if left:
            held.note_times()
        else:
            if not known:
                _demand_no_lost_journal(places)
            lower_fences(places, held.disk)
        return shown


def is_unsettled(places: StorePaths) -> bool:
    """True if a repair was killed on this store; read only, nothing is changed.

    Raises:
        RefusedError: a directory of the tool's own is a link, or somebody else's.
    """
    demand_own_directories(places)
    return is_fenced(places) or any(journal.state is not JournalState.DONE for journal in journals(places))


def discard_all(places: StorePaths, disk: Disk | None = None) -> list[UndoableRepair]:
    """Remove the journals of all repairs that are done, so that none of them can be rolled back; which they were.

    Raises:
        RefusedError: a broker is being kept out of the store, for a repair is unfinished; or one holds it.
    """
    if not journals(places):
        return []
    with Session(places, disk) as session, held_interrupts():
        if is_unsettled(places):
            raise RefusedError(f"{places.root}: a repair is unfinished, and undo needs its journal")
        known = list(reversed(journals(places)))
        shown = [_repair(journal, places) for journal in known]
        for journal in known:
            checked(journal, places)
        for journal in reversed(known):  # the oldest first: what is left can still be rolled back
            discard(journal, places, session.disk, lower=False)
        return shown


def _roll_back_known(known: CheckedJournal, places: StorePaths, session: Session) -> None:
    """Roll a repair back; in the end `lock` goes too where a killed repair has made it."""
    if known.manifest is not None and known.manifest.made_lock:
        session.lock.was_missing = True
    with _telling(known.journal, places):
        roll_back(known.journal, places, session.disk, known)


@contextmanager
def _telling(journal: Journal, places: StorePaths) -> Iterator[None]:
    """Add the state of the store and the next command to an error."""
    try:
        yield
    except (WriteError, UnreadableError) as error:
        raise type(error)(f"{error}; {how_left(journal, places)}") from error


def _demand_fenced(journal: Journal, places: StorePaths) -> None:
    """Refuse an implicit rollback of a repair whose fence is gone, as a broker may have written since."""
    manifest = journal.manifest()
    if manifest is None or journal.state is not JournalState.UNFINISHED:
        return
    for directory in manifest.log_directories:
        if not (places.directory(directory) / FENCE_NAME).exists():
            raise RefusedError(
                f"{places.root}: an earlier repair is unfinished and its fence in {directory} is gone, so a broker "
                f"may have written since; rmqtool undo {places.root} still rolls the repair back"
            )


def demand_untouched(journal: Journal, places: StorePaths) -> None:
    """Refuse to take a repair back once anything was written since: a broker's messages would go with it.

    Raises:
        RefusedError: something was; the text names it.
    """
    differing = _differing(journal, places)
    if not differing:
        for path, parts in journal.when_done().written.items():
            if not parts:
                continue
            with places.file(path).source() as source:
                if any(digest_of(source, start, start + length) != digest for start, length, digest in parts):
                    differing.append(path)
    if differing:
        named = ", ".join(differing[:SHOWN_MAX]) + (", ..." if len(differing) > SHOWN_MAX else "")
        raise RefusedError(
            f"{places.root}: written to since the repair ({len(differing)} files differ: {named}); undo would "
            f"lose this, so nothing was changed"
        )


def _differing(journal: Journal, places: StorePaths) -> list[str]:
    """Files that came, went, or have another length or time than the repair left them with."""
    # The inode may differ: a later repair may have been rolled back.
    then = {path: (size, mtime_ns) for path, (size, mtime_ns, _) in journal.when_done().files.items()}
    now = {path: (state.size, state.mtime_ns) for path, state in file_states(places).items()}
    return [path for path in sorted(then.keys() | now.keys()) if then.get(path) != now.get(path)]


def _demand_no_lost_journal(places: StorePaths) -> None:
    if is_fenced(places):
        raise RefusedError(
            f"{places.root}: a repair is unfinished and its journal in {places.undo} is gone, so it cannot be rolled "
            f"back; restore the journal, or the store from a copy"
        )


def _repair(journal: Journal, places: StorePaths) -> UndoableRepair:
    manifest = journal.manifest()
    kept_bytes = journal.folder.allocated_bytes()
    if manifest is not None and manifest.folders:
        with suppress(RefusedError):  # what this call does not name is not looked at
            kept_bytes += sum(folder.allocated_bytes() for folder in checked(journal, places).folders)
    return UndoableRepair(
        number=journal.number,
        command=manifest.command if manifest is not None else None,
        state=journal.state.value,
        began_ms=manifest.began_ms if manifest is not None else None,
        steps=manifest.step_count if manifest is not None else 0,
        kept_bytes=kept_bytes,
        journal=str(journal.folder),
    )


def roll_back(journal: Journal, places: StorePaths, disk: Disk, known: CheckedJournal | None = None) -> None:
    """Restore every file, lower the fences and remove the journal.

    Args:
        known: what `demand_undoable` has just looked at.

    Raises:
        RefusedError: the journal names something that this call does not; nothing was changed.
        WriteError: something cannot be written; the fences stay and the journal is whole.
        UnreadableError: the journal, or what it saved, cannot be read or is not what was saved; likewise.
    """
    known = known or demand_undoable(journal, places)
    if journal.state is JournalState.UNFINISHED:
        _restore(known, places, disk)
    discard(journal, places, disk, lower=True)


def demand_undoable(journal: Journal, places: StorePaths) -> CheckedJournal:
    """Make sure that `roll_back` can go through, before anything is changed.

    Raises:
        RefusedError, WriteError, UnreadableError: it cannot.
    """
    known = checked(journal, places)
    if journal.state in (JournalState.UNFINISHED, JournalState.DONE):
        demand_restorable(known, places)
    return known


def reopen(journal: Journal, places: StorePaths, disk: Disk) -> None:
    """Put the fences up and say that a repair which is done is going to be rolled back.

    Raises:
        WriteError: something cannot be written; the repair is as good as it was.
    """
    raise_fences(places, disk)
    disk.publish(journal.folder / "undoing", b"{}", own_file_like(places.top))


def discard(journal: Journal, places: StorePaths, disk: Disk, *, lower: bool) -> None:
    """Remove a journal that is no longer needed, with its files elsewhere.

    Args:
        lower: take the fences away once the journal no longer asks for anything to be done.
    """
    known = checked(journal, places)
    undone = Journal(journal.number, journal.folder.with_name(f"{journal.number}{UNDONE_SUFFIX}"))
    if journal.folder != undone.folder:
        disk.rename(journal.folder, undone.folder)
        disk.sync_directory(undone.folder.parent)
    if lower:
        lower_fences(places, disk)
        _restore_times(known, places, disk)
    for folder in known.folders:
        disk.remove_tree(folder)
        for directory in (folder.parent, folder.parent.parent):  # what somebody else put there stays
            if directory.name not in (OWN_DIRECTORY, UNDO) or not directory.is_directory() or directory.names():
                break
            disk.remove_directory(directory)
    # The manifest goes last, for it alone knows the other folders.
    for name in sorted(undone.folder.names(), key=lambda name: name == "manifest"):
        if (undone.folder / name).is_directory():
            disk.remove_tree(undone.folder / name)
        else:
            disk.remove(undone.folder / name)
    disk.remove_directory(undone.folder)
    remove_empty(places, disk)
    if lower:
        _restore_times(known, places, disk)  # the tool's own directory may have gone from the store's


def how_left(journal: Journal, places: StorePaths) -> str:
    """Current state of a store, and the next command."""
    run = f"rmqtool undo {places.root}"
    try:
        if is_fenced(places):
            return f"no broker loads the store until you run {run}"
        if journal.state in (JournalState.PREPARING, JournalState.UNDONE) or not journal.folder.exists():
            return f"the store is unchanged; {run} removes the rest of the journal"
        if journal.state is JournalState.DONE:
            return f"the repair is complete and brokers load the store; {run} rolls it back"
    except RmqtoolError as error:
        return f"whether a broker would load the store cannot be determined ({error}); do not start it, and run {run}"
    return f"nothing keeps brokers from loading the store: do not start one, and run {run}"


def _restore(known: CheckedJournal, places: StorePaths, disk: Disk) -> None:
    manifest = known.manifest
    assert manifest is not None, "a journal without a manifest is not restored"
    for entry in known.files:
        # What was built and not used; the staging is another's to clear, who may not look into it either.
        is_in_staging = entry.staged is not None and entry.staged.path.startswith(f"{OWN_DIRECTORY}/{STAGING}/")
        if entry.staged is not None and not is_in_staging and entry.staged.exists():
            disk.remove(entry.staged)
        match entry.saved.action:
            case "create":
                if entry.file.exists():
                    disk.remove(entry.file)
            case "write":
                _restore_ranges(entry, disk)
            case _:
                _restore_whole(entry, disk)
    for path in reversed(manifest.made_directories):
        directory = places.directory(path)
        if directory.is_directory() and not directory.names():
            disk.sync_directory(directory)  # a file system may keep a directory of which it still knows a name
            disk.remove_directory(directory)
    for path in manifest.directory_times:
        disk.sync_directory(places.directory(path))


def _restore_ranges(entry: JournalEntry, disk: Disk) -> None:
    saved, file, metadata = entry.saved, entry.file, _known(entry)
    _make_own(file, disk)
    for part in saved.ranges:
        disk.write(file, part.file_position, RootPart(entry.ranges, part.saved_position, part.length))
    disk.truncate(file, metadata.size)
    disk.set_times(file, metadata.atime_ns, metadata.mtime_ns)
    disk.sync(file)
    with file.source() as source:
        if not holds_ranges(entry, source, saved=False):
            raise UnreadableError(f"{saved.path}: restored bytes differ from the old content; the journal is damaged")


def _restore_whole(entry: JournalEntry, disk: Disk) -> None:
    saved, file, metadata = entry.saved, entry.file, _known(entry)
    if saved.is_moved:
        if entry.old.exists():
            disk.rename(entry.old, file)
            disk.sync_directory(file.parent)
    elif not is_as_before(entry, file):
        beside = file.with_name(STAGED_OLD)
        if beside.exists():
            disk.remove(beside)
        disk.create(beside, metadata.size)
        disk.write(beside, 0, RootPart(entry.old, 0, metadata.size))
        # The copy has the owner and the mode that the file had; what the journal says of them proves nothing.
        like = Metadata.of(entry.old)
        disk.give_owner(beside, like.user_id, like.group_id, like.mode)
        disk.set_times(beside, metadata.atime_ns, metadata.mtime_ns)
        disk.sync(beside)
        disk.rename(beside, file)
        disk.sync_directory(file.parent)
        if not is_as_before(entry, file):
            raise UnreadableError(f"{saved.path}: the journal no longer has the old content of this file")


def _make_own(file: RootPath, disk: Disk) -> None:
    """Give a file that has other names a copy of its own, so that writes do not show under those."""
    state = file.lstat()
    if state is None or state.st_nlink == 1:
        return
    beside = file.with_name(STAGED_OLD)
    if beside.exists():
        disk.remove(beside)
    with file.source() as source:
        disk.copy(source, beside)
    disk.give_metadata(beside, Metadata.from_stat(state))
    disk.sync(beside)
    disk.rename(beside, file)
    disk.sync_directory(file.parent)


def _known(entry: JournalEntry) -> Metadata:
    if entry.saved.metadata is None:
        raise UnreadableError(f"{entry.saved.path}: the journal has no description of this file")
    return entry.saved.metadata


def _restore_times(known: CheckedJournal, places: StorePaths, disk: Disk) -> None:
    """Restore times of directories, last, as every name that comes or goes changes them. A failure leaves nothing
    undone.
    """
    times = known.manifest.directory_times if known.manifest is not None else {}
    for path, (atime_ns, mtime_ns) in times.items():
        directory = places.directory(path)
        if not places.is_linked(directory) or directory.root.identity in known.vouched:
            with suppress(WriteError):
                disk.set_times(directory, atime_ns, mtime_ns)

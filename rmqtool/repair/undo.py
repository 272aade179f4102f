"""Takes repairs back, the latest first, and settles what a killed one left behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rmqtool.errors import RefusedError
from rmqtool.repair.digest import digest_of
from rmqtool.repair.disk import Disk
from rmqtool.repair.fence import is_fenced, lower_fences
from rmqtool.repair.fingerprint import FileState, file_states
from rmqtool.repair.interrupt import held_interrupts
from rmqtool.repair.journal import Journal, JournalState, journals
from rmqtool.repair.places import Places
from rmqtool.repair.restore import discard, reopen, take_back
from rmqtool.store.hold import StoreLock
from rmqtool.store.source import FileSource

SHOWN_MAX: Final = 3
"""Changed files that a refusal names."""


@dataclass(frozen=True)
class Repair:
    """One repair that can be taken back, as `undo --list` shows it."""

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


def repairs(places: Places) -> list[Repair]:
    """All repairs that can be taken back, the latest first.

    Raises:
        UnreadableError: a journal may not be read, or is damaged.
    """
    return [_repair(journal) for journal in reversed(journals(places))]


def undo_latest(places: Places, disk: Disk | None = None) -> Repair | None:
    """Make the store what it was before its latest repair; None where there is none.

    A repair that was killed half-way is taken back whatever happened since: no broker could load the store.

    Raises:
        RefusedError: a broker holds the store, or something was written into it since the repair.
        WriteError: something cannot be written; the store stays fenced, and this can be tried again.
        UnreadableError: the journal cannot be read.
    """
    disk = disk or Disk()
    if not journals(places):
        _demand_no_lost_journal(places)
        return None
    with StoreLock(places.root, places.outer_logs), held_interrupts():
        latest = journals(places)[-1]
        shown = _repair(latest)
        if latest.state is JournalState.DONE:
            if not is_fenced(places):  # a broker that was kept out has written no message, whatever else it touched
                demand_untouched(latest, places)
            reopen(latest, places, disk)
        take_back(latest, places, disk)
        return shown


def settle(places: Places, disk: Disk | None = None) -> Repair | None:
    """Bring a killed repair to an end: taken back where steps were left to do, brokers let in where none were.

    Returns:
        What was settled; None where nothing was left behind.

    Raises:
        RefusedError: a broker holds the store, or the fence is there without its journal.
        WriteError: something cannot be written; this can be tried again.
        UnreadableError: the journal cannot be read.
    """
    if not is_unsettled(places):
        return None
    disk = disk or Disk()
    with StoreLock(places.root, places.outer_logs), held_interrupts():
        found = journals(places)
        left = [journal for journal in found if journal.state is not JournalState.DONE]
        shown = _repair((left or found)[-1]) if found else None
        for journal in reversed(left):
            take_back(journal, places, disk)
        if not left:
            if not found:
                _demand_no_lost_journal(places)
            lower_fences(places, disk)
        return shown


def is_unsettled(places: Places) -> bool:
    """Whether a repair was killed on this store; looked at only, nothing is changed."""
    return is_fenced(places) or any(journal.state is not JournalState.DONE for journal in journals(places))


def discard_all(places: Places, disk: Disk | None = None) -> list[Repair]:
    """Remove the journals of all repairs that are done, so that none of them can be taken back; which they were.

    Raises:
        RefusedError: a broker is being kept out of the store, for a repair is unfinished; or one holds it.
        WriteError: something cannot be removed.
        UnreadableError: a journal cannot be read.
    """
    disk = disk or Disk()
    if not journals(places):
        return []
    with StoreLock(places.root, places.outer_logs), held_interrupts():
        if is_unsettled(places):
            raise RefusedError(f"{places.root}: a repair is unfinished; its journal is needed to take it back")
        found = list(reversed(journals(places)))
        shown = [_repair(journal) for journal in found]
        for journal in reversed(found):  # the oldest first: what is left can still be taken back
            discard(journal, places, disk, lower=False)
        return shown


def demand_untouched(journal: Journal, places: Places) -> None:
    """Refuse to take a repair back once anything was written since: a broker's messages would go with it.

    Raises:
        RefusedError: something was; the text names it.
        UnreadableError: the journal or the store cannot be read.
    """
    then, now = journal.states_when_done(), file_states(places)
    differing = [path for path in sorted(then.keys() | now.keys()) if not _is_same(then.get(path), now.get(path))]
    if not differing:
        for path, parts in journal.digests_when_done().items():
            if parts and not _holds(places.file(path), parts):
                differing.append(path)
    if differing:
        named = ", ".join(differing[:SHOWN_MAX]) + (", ..." if len(differing) > SHOWN_MAX else "")
        raise RefusedError(
            f"{places.root}: written since the repair ({len(differing)} files differ: {named}), so it is not taken back"
        )


def _is_same(then: FileState | None, now: FileState | None) -> bool:
    """Whether a file is as the repair left it; the inode may differ, for a later repair may have been taken back."""
    return then is not None and now is not None and (then.size, then.mtime_ns) == (now.size, now.mtime_ns)


def _holds(place: Path, parts: list[tuple[int, int, str]]) -> bool:
    with FileSource.open(place) as source:
        return all(digest_of(source, start, start + length) == digest for start, length, digest in parts)


def _demand_no_lost_journal(places: Places) -> None:
    if is_fenced(places):
        raise RefusedError(
            f"{places.root}: a repair is unfinished and its journal in {places.undo} is gone, so it cannot be taken "
            f"back; restore the journal, or the store from a copy"
        )


def _repair(journal: Journal) -> Repair:
    manifest = journal.manifest()
    folders = [journal.folder, *(Path(folder) for folder in (manifest.folders if manifest is not None else ()))]
    return Repair(
        number=journal.number,
        command=manifest.command if manifest is not None else None,
        state=journal.state.value,
        began_ms=manifest.began_ms if manifest is not None else None,
        steps=manifest.step_count if manifest is not None else 0,
        kept_bytes=sum(_bytes_below(folder) for folder in folders),
        journal=str(journal.folder),
    )


def _bytes_below(folder: Path) -> int:
    """Allocated bytes; a folder that is gone takes none."""
    return sum(place.lstat().st_blocks * 512 for place in folder.rglob("*") if place.is_file())

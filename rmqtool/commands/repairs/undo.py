"""`rmqtool undo`: roll a repair back, list what can be rolled back, or throw the kept files away."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.store import CommitlogOption, FormatOption, StorePath
from rmqtool.commands.screen import write_rows
from rmqtool.errors import RefusedError, UsageError
from rmqtool.repair.machine.journal import recorded_places
from rmqtool.repair.machine.store_paths import StorePaths, is_fenced
from rmqtool.repair.machine.undo import UndoableRepair, discard_all, repairs, undo_latest
from rmqtool.report.text import counted, escaped
from rmqtool.report.writers import OutputFormat
from rmqtool.store.location import relative_to_store, survey_store
from rmqtool.store.log_owner import foreign_directory
from rmqtool.store.view import open_directory
from rmqtool.times import time_text

FIELDS: Final = ("number", "command", "state", "began_ms", "steps", "kept_bytes", "journal")


def undo(
    context: typer.Context,
    store: StorePath,
    list_only: Annotated[
        bool, option("--list", "List the repairs that can be rolled back, and change nothing.")
    ] = False,
    throw_away: Annotated[
        bool, option("--discard", "Remove the kept files of all repairs; no repair can be rolled back after that.")
    ] = False,
    is_agreed: Annotated[bool, option("--yes", "Do not ask for confirmation.")] = False,
    commitlog: CommitlogOption = None,
    undo_dir: Annotated[
        Path | None, option("--undo-dir DIR", "Directory where the repair kept replaced files, if not in the store.")
    ] = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Roll the latest repair back, byte for byte.

    Several repairs are rolled back one by one, the latest first. undo refuses once anything was written to the store
    after the repair, because it would lose the new messages. It also rolls back a repair that was killed.

    Example: rmqtool undo /home/rocketmq/store --list
    """
    if list_only and throw_away:
        raise UsageError("--list shows what --discard would remove; use one of them")
    open_directory(store)
    named = tuple(relative_to_store(directory, store) for directory in commitlog or ())
    places = recorded_places(StorePaths(store, named, undo_dir))
    undoable_repairs = repairs(places)
    if not undoable_repairs and not is_fenced(places):
        survey_store(store, commitlog)  # a directory that is no store has nothing to roll back either: said as that
    if list_only:
        _show(undoable_repairs, output, "No repair can be rolled back.")
        return
    if throw_away:
        if undoable_repairs:
            _demand_consent(is_agreed, f"Remove the kept files of {counted(len(undoable_repairs), 'repair')} for good?")
        _show(discard_all(places), output, "No repair can be rolled back; nothing to remove.", "discarded")
        return
    if undoable_repairs and (foreign := foreign_directory(store, named)) is not None:
        foreign.demand_usable(store, "undo")
    if undoable_repairs:
        _demand_consent(is_agreed, f"Roll back {_named(undoable_repairs[0])}?")
    undone = undo_latest(places)
    _show([undone] if undone is not None else [], output, "No repair to roll back; nothing was changed.", "undone")
    if left := len(repairs(places)):
        messages_of(context).note(f"{counted(left, 'repair')} left to roll back")


def _demand_consent(is_agreed: bool, question: str) -> None:
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise RefusedError("confirmation required: pass --yes to apply, or --list to preview")
    if not typer.confirm(question, err=True):
        raise RefusedError("aborted; nothing was changed")


def _show(shown_repairs: list[UndoableRepair], output: OutputFormat, nothing: str, became: str | None = None) -> None:
    """Repairs as sentences or rows, with their result."""
    if output is OutputFormat.TABLE:
        for repair in shown_repairs:
            named = _named(repair)
            kept = f", {repair.kept_bytes} bytes kept in {repair.journal}" if became is None else ""
            sys.stdout.write(escaped(f"{named[:1].upper()}{named[1:]}: {became or repair.state}{kept}") + "\n")
        if not shown_repairs:
            sys.stdout.write(f"{nothing}\n")
        return
    rows = [repair.to_json() | ({} if became is None else {"state": became}) for repair in shown_repairs]
    write_rows([{name: row[name] for name in FIELDS} for row in rows], output, FIELDS)


def _named(repair: UndoableRepair) -> str:
    if repair.began_ms is None:
        return f"repair {repair.number}, which was killed before it changed anything"
    return f"repair {repair.number} ({repair.command}, {counted(repair.steps, 'step')}, {time_text(repair.began_ms)})"

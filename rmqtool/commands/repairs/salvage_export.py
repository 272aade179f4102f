"""`rmqtool salvage --export`: every message that can be read, as `append` takes it; nothing is changed."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NoReturn

import typer

from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.messages import Messages
from rmqtool.commands.repairs.repair_run import RepairRun
from rmqtool.dump.log import LogDump
from rmqtool.dump.request import Request
from rmqtool.dump.target import DumpKind, Target
from rmqtool.errors import RefusedError, UnsupportedError, WriteError
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.repair.salvage.plan import SalvageOptions, plan_salvage
from rmqtool.repair.salvage.report import outcome_json
from rmqtool.report.bodies import BodyChoice, BodyForm
from rmqtool.report.rows import single_rows
from rmqtool.report.writers import JsonLinesWriter, OutputFormat, json_text
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import reason

NAME: Final = "messages.jsonl"
_BODY: Final = BodyChoice(BodyForm.BASE64, (1 << 31) - 1, raw=True)


def export_messages(repair: RepairRun, options: SalvageOptions, directory: Path) -> NoReturn:
    """Write the messages of the store as it would be after the salvage, and end the command.

    Raises:
        typer.Exit: with 3 where messages are lost for good, else with 0.
        RefusedError: there is a file of that name already.
        WriteError: the directory does not take it.
        UnsupportedError: damage is left that nothing bridges.
    """
    with tempfile.TemporaryDirectory(prefix="rmqtool-") as staging:
        with repair.messages.progress("salvage") as progress:
            planned_salvage = plan_salvage(
                repair.opened.store, repair.opened.rules, Path(staging), options, progress.show
            )
        if planned_salvage.recovery.damage:
            raise UnsupportedError(
                f"{planned_salvage.recovery.damage[0].message}: salvage cannot continue after this; see --dry-run"
            )
        place = directory / NAME
        count = _write(planned_salvage.drafted, repair.opened.rules.version, place, repair.messages)
    summary = {"exported": str(place), "messages": count, **outcome_json(planned_salvage.outcome)}
    if repair.request.output is OutputFormat.TABLE:
        lost = planned_salvage.outcome.lost_messages
        sys.stdout.write(f"Messages written to {place}: {count}. Lost for good: {lost}\n")
    else:
        sys.stdout.write(json_text(summary, indent=2 if repair.request.output is OutputFormat.JSON else None) + "\n")
    raise typer.Exit(
        ExitCode.FINDINGS if planned_salvage.outcome.lost_messages or planned_salvage.outcome.unknown_bytes else 0
    )


def _write(store: Store, version: str, place: Path, messages: Messages) -> int:
    """Write the messages, and count them; a file that is not whole is removed, for nobody could tell it from one."""
    entries = store.files.get(FileKind.COMMITLOG, ())
    target = Target(DumpKind.COMMITLOG, store.view, entries, store.commitlog_file_size)
    dump = LogDump(target, Request(body=_BODY, broker_version=version))
    count = 0
    new_directories = [directory for directory in place.parents if not directory.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file, messages.progress("salvage: export", total=dump.readable_bytes):
            messages.interrupted = f"the store was not changed, and the incomplete {place} was removed"
            try:
                writer = JsonLinesWriter(file)
                for row in filter(_is_message, single_rows(dump.rows())):
                    writer.write(row)
                    count += 1
                file.flush()
            except BaseException:
                place.unlink(missing_ok=True)
                for directory in new_directories:
                    directory.rmdir()
                raise
            messages.interrupted = f"the store was not changed; {place} is complete"
    except FileExistsError:
        raise RefusedError(f"{place}: already exists; nothing was written") from None
    except OSError as error:
        raise WriteError(f"{place}: {reason(error)}") from error
    return count


def _is_message(row: dict[str, Any]) -> bool:
    return bool(row["type"] == "message" and row["prepared_transaction_offset"] != TOMBSTONE)

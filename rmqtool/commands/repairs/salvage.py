"""`rmqtool salvage`: keeps what lies after damage. What is kept, and how, is decided in `repair`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.messages import Messages
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import refuse_dash
from rmqtool.commands.options.run import thread_count
from rmqtool.commands.repairs.repair_command import repair_command
from rmqtool.commands.repairs.repair_plan import Planner, RepairRun
from rmqtool.dump.log import LogDump
from rmqtool.dump.request import Request
from rmqtool.dump.target import DumpKind, Target
from rmqtool.errors import RefusedError, UnsupportedError, UsageError, WriteError
from rmqtool.formats.tombstone import TOMBSTONE
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.salvage.plan import SalvageOptions, plan_salvage
from rmqtool.repair.salvage.record_repair import RepairedRecord
from rmqtool.repair.salvage.replica import Replica
from rmqtool.repair.salvage.report import outcome_json, write_lost_found
from rmqtool.report.bodies import BodyChoice, BodyForm
from rmqtool.report.rows import single_rows
from rmqtool.report.writers import JsonWriter, OutputFormat, json_text
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.source import reason


@repair_command
def salvage(
    repair: RepairRun,
    replica: Annotated[
        list[Path] | None,
        option("--from PATH", "A replica of the commit log: a store, or one commit log file; repeatable."),
    ] = None,
    show_lost: Annotated[
        bool, option("--show-lost", "Let consumers receive a tombstone for each lost message.")
    ] = False,
    fix_bits: Annotated[bool, option("--fix-bits", "Correct bodies whose wrong CRC one flipped bit explains.")] = False,
    as_is: Annotated[
        bool, option("--as-is", "Keep damaged bodies that follow an intact header, with a new CRC.")
    ] = False,
    lost_found: Annotated[bool, option("--lost-found", "Also save the damaged bytes in .rmqtool/lost+found/.")] = False,
    export: Annotated[
        Path | None,
        option("--export DIR", "Write every readable message to this directory, for `rmqtool append --from`."),
    ] = None,
) -> Planner:
    """Repair damage inside the commit log, and keep the messages after it.

    A broker would discard them. Records that consumers do not see replace lost messages; every other message keeps
    its queue offset. salvage also repairs all that recover repairs. The exit code of --dry-run is 3 if there is
    something to do.

    Example: rmqtool salvage /home/rocketmq/store --from /backup/store --dry-run
    """
    if export is not None and (repair.request.save or repair.request.apply or repair.request.copy or lost_found):
        raise UsageError("--export changes nothing; do not combine it with --plan, --apply, --output or --lost-found")
    if export is not None:
        refuse_dash("--export", export)
    options = SalvageOptions(
        repair.build_options,
        tuple(map(Replica.open, replica or ())),
        frozenset(
            how
            for how, is_agreed in ((RepairedRecord.FLIPPED_BIT, fix_bits), (RepairedRecord.AS_IS, as_is))
            if is_agreed
        ),
        show_lost=show_lost,
        threads=thread_count(),
    )
    if export is not None:
        export_messages(repair, options, export)

    return salvage_planner(repair, options, saves_lost=lost_found)


def salvage_planner(repair: RepairRun, options: SalvageOptions, *, saves_lost: bool = False) -> Planner:
    """Makes the plan of `salvage`; the bytes that it takes away may be kept in a directory of the tool's own."""

    def plan(store: Store, staging: Path, on_progress: OnProgress) -> PlannedRepair:
        planned_salvage = plan_salvage(store, repair.opened.rules, staging, options, on_progress)
        keep = partial(write_lost_found, planned_salvage.drafted_from, planned_salvage.outcome)
        return replace(
            planned_salvage.recovery,
            steps=planned_salvage.steps,
            notes=(*planned_salvage.notes, *planned_salvage.recovery.notes),
            details=outcome_json(planned_salvage.outcome),
            keep=keep if saves_lost else None,
            corrects_log=True,
        )

    return plan


# `rmqtool salvage --export`: every message that can be read, as `append` takes it; nothing is changed.


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
    """Write the messages, and count them; an incomplete file is removed, as it looks like a whole one."""
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
                writer = JsonWriter(file)
                for row in single_rows(dump.rows()):
                    if row["type"] == "message" and row["prepared_transaction_offset"] != TOMBSTONE:
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

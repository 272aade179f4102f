"""`rmqtool salvage`: keeps what lies after damage. What is kept, and how, is decided in `repair`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from rmqtool.commands.options.memory import thread_count
from rmqtool.commands.options.output_files import refuse_dash
from rmqtool.commands.repairs.repair_command import repair_command
from rmqtool.commands.repairs.repair_run import Planner, RepairRun
from rmqtool.commands.repairs.salvage_export import export_messages
from rmqtool.errors import UsageError
from rmqtool.repair.machine.planned_repair import PlannedRepair
from rmqtool.repair.salvage.plan import SalvageOptions, plan_salvage
from rmqtool.repair.salvage.record_repair import RepairedRecord
from rmqtool.repair.salvage.replica import Replica
from rmqtool.repair.salvage.report import outcome_json, write_lost_found
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store


@repair_command
def salvage(
    repair: RepairRun,
    replica: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", metavar="PATH", help="A replica of the commit log: a store, or one commit log file; repeatable."
        ),
    ] = None,
    show_lost: Annotated[
        bool, typer.Option("--show-lost", help="Let consumers receive a tombstone for each lost message.")
    ] = False,
    fix_bits: Annotated[
        bool, typer.Option("--fix-bits", help="Correct bodies whose wrong CRC one flipped bit explains.")
    ] = False,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Keep damaged bodies that follow an intact header, with a new CRC.")
    ] = False,
    lost_found: Annotated[
        bool, typer.Option("--lost-found", help="Also save the damaged bytes in .rmqtool/lost+found/.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="DIR",
            help="Write every readable message to this directory, for `rmqtool append --from`.",
        ),
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
    """Makes the plan of `salvage`.

    Args:
        saves_lost: whether the bytes that the plan takes away are kept in a directory of the tool's own.
    """

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

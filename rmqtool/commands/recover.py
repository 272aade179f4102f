"""`rmqtool recover`: mends a store after a crash. What has to be done is decided in `repair`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rmqtool.commands.forecast import forecast_options
from rmqtool.commands.repair_command import repair_command
from rmqtool.commands.repair_plan import PlannedRepair, Planner, RepairRun
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store


@repair_command
def recover(
    repair: RepairRun,
    cut_at_damage: Annotated[
        bool,
        typer.Option(
            "--cut-at-damage", help="End the log at its first damage, as a broker would; needs --accept-loss."
        ),
    ] = False,
    clamp_offsets: Annotated[
        bool, typer.Option("--clamp-offsets", help="Reset consumer offsets that are past the end of their queue.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Look at all of the store, not only at what a broker's start would read.")
    ] = False,
) -> Planner:
    """Mend a store after a crash, before a broker is started on it.

    No message that can be read is lost. What the broker would read is looked at, and the log from the lowest incomplete
    queue on; the plan says what was not. It is shown first, with what each broker version would do on the store
    afterwards. Damage inside the log is named and left. The exit code of --dry-run is 3 where there is something to do;
    it is 3 in any case where a check of the repaired store would still find something, which the plan then names.

    Example: rmqtool recover /home/rocketmq/store --dry-run
    """
    options = RecoverOptions(
        repair.build_options,
        cut_at_damage,
        clamp_offsets,
        full,
        os.cpu_count() or 1,
        forecast_options(repair.opened.conf),
    )

    def plan(store: Store, staging: Path, on_progress: OnProgress) -> PlannedRepair:
        planned_recovery = plan_recover(store, repair.opened.rules, staging, options, on_progress)
        return PlannedRepair(
            planned_recovery.steps,
            planned_recovery.loss,
            planned_recovery.notes,
            planned_recovery.damage,
            planned_recovery.abort_stays,
            planned_recovery.begin,
            findings=planned_recovery.findings,
        )

    return plan

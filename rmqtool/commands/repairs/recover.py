"""`rmqtool recover`: repairs a store after a crash. What has to be done is decided in `repair`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.run import thread_count
from rmqtool.commands.repairs.repair_command import repair_command
from rmqtool.commands.repairs.repair_plan import Planner, RepairRun
from rmqtool.errors import UsageError
from rmqtool.forecast.options import forecast_options
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.repair.recover.plan import RecoverOptions, plan_recover, with_side_state
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store


@repair_command
def recover(
    repair: RepairRun,
    cut_at_damage: Annotated[
        bool,
        option("--cut-at-damage", "End the commit log at its first damage, as a broker would; needs --accept-loss."),
    ] = False,
    cut_at: Annotated[
        int | None,
        option(
            "--cut-at OFFSET",
            "End the commit log at this physical offset, where a record starts; needs --accept-loss.",
            min=0,
        ),
    ] = None,
    clamp_offsets: Annotated[
        bool, option("--clamp-offsets", "Reset consumer offsets that are past the end of their queue.")
    ] = False,
    full: Annotated[
        bool, option("--full", "Check the whole store, not only the part that a broker's start would read.")
    ] = False,
) -> Planner:
    """Repair a store after a crash, before a broker starts on it.

    No readable message is lost without --accept-loss. recover checks what the broker would read, and the commit log
    from the first incomplete queue. It prints its plan first: the changes, what was not checked, and what each broker
    version would do afterwards. It reports damage inside the commit log and does not change it. The exit code is 3 if
    --dry-run shows something to do, if findings remain after the repair, or if a part was not checked; the plan names
    them.

    Example: rmqtool recover /home/rocketmq/store --dry-run
    """
    if cut_at_damage and cut_at is not None:
        raise UsageError("--cut-at-damage and --cut-at exclude each other; use one of them")
    options = RecoverOptions(cut_at_damage=cut_at_damage, clamp_offsets=clamp_offsets, full=full, cut_at=cut_at)
    return recover_planner(repair, options)


def recover_planner(repair: RepairRun, options: RecoverOptions) -> Planner:
    """Makes the plan of `recover` by what a person chose; the rest of the options follows from the run."""
    options = replace(
        options, build=repair.build_options, threads=thread_count(), forecast=forecast_options(repair.opened.conf)
    )

    def plan(store: Store, staging: Path, on_progress: OnProgress) -> PlannedRepair:
        planned = plan_recover(store, repair.opened.rules, staging, options, on_progress)
        return with_side_state(store, repair.opened.rules, planned, staging, on_progress)

    return plan

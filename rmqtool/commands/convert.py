"""`rmqtool convert`: consume queues from files to RocksDB and back. How they are built is decided in `repair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmqtool.commands.repair_command import repair_command
from rmqtool.commands.repair_plan import PlannedRepair, Planner, RepairRun
from rmqtool.repair.convert import QueueSide, plan_convert
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store


@repair_command
def convert(
    repair: RepairRun,
    queues: Annotated[
        QueueSide,
        typer.Option("--queues", help="Where the consume queues are to be: RocksDB, files, or both."),
    ],
) -> Planner:
    """Convert consume queues between files and RocksDB, from the commit log.

    Changing storeType alone loses messages: brokers from 5.4.0 on read at most the last ten commit log files for the
    new queues. Convert the stopped store first, then change the setting that the plan names. The plan comes first.

    Example: rmqtool convert /home/rocketmq/store --queues rocksdb --dry-run
    """

    def plan(store: Store, staging: Path, on_progress: OnProgress) -> PlannedRepair:
        conversion = plan_convert(store, repair.opened.rules, queues, staging, repair.build_options, on_progress)
        return PlannedRepair(conversion.steps, notes=conversion.notes, covers=lambda _finding: False)

    return plan

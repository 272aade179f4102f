"""`rmqtool convert`: consume queues from files to RocksDB and back. How they are built is decided in `repair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rmqtool.commands.options.help_groups import option
from rmqtool.commands.repairs.repair_command import repair_command
from rmqtool.commands.repairs.repair_plan import Planner, RepairRun
from rmqtool.errors import UsageError
from rmqtool.repair.convert import QueueSide, plan_convert, plan_from_dledger
from rmqtool.repair.machine.plan import PlannedRepair
from rmqtool.scan.runner import OnProgress
from rmqtool.store.directory import Store


@repair_command(infers_queue_kind=True)
def convert(
    repair: RepairRun,
    queues: Annotated[
        QueueSide | None, option("--queues", "Where the consume queues are to be: RocksDB, files, or both.")
    ] = None,
    from_dledger: Annotated[
        bool, option("--from-dledger", "Write a store with a plain commit log to the directory of --output.")
    ] = False,
) -> Planner:
    """Convert consume queues between files and RocksDB, or a store of DLedger to one with a plain commit log.

    Changing storeType alone loses messages: brokers from 5.4.0 on read at most the last ten commit log files for the
    new queues. Convert the stopped store first, then change the setting that the plan names. The plan comes first.
    With --from-dledger the store is not changed: the plan is about the copy in --output.

    Example: rmqtool convert /home/rocketmq/store --queues rocksdb --dry-run
    """
    if from_dledger == (queues is not None):
        raise UsageError("pass either --queues or --from-dledger")
    if from_dledger and repair.request.copy is None:
        raise UsageError("--from-dledger: pass --output DIR for the new store; the old one is not changed")

    def plan(store: Store, staging: Path, on_progress: OnProgress) -> PlannedRepair:
        if queues is None:
            return plan_from_dledger(store, repair.opened.rules, staging, repair.build_options, on_progress)
        return plan_convert(store, repair.opened.rules, queues, staging, repair.build_options, on_progress)

    return plan

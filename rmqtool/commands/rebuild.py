"""`rmqtool rebuild`: queues, index and checkpoint anew from the log. How they are built is decided in `repair`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import (
    BrokerConfOption,
    BrokerVersionOption,
    CommitlogOption,
    FormatOption,
    IndexSlotsOption,
    OutputFormat,
    StorePath,
)
from rmqtool.commands.repair_plan import (
    AcceptLossOption,
    ApplyOption,
    DryRunOption,
    Made,
    OutputOption,
    SaveOption,
    UndoDirOption,
    Wish,
    YesOption,
    build_options,
    carry_out,
    opened_for_repair,
)
from rmqtool.repair.rebuild import RebuildChoice, plan_rebuild
from rmqtool.report.progress import ByteProgress
from rmqtool.store.directory import Store


def rebuild(
    context: typer.Context,
    store: StorePath,
    queues: Annotated[bool, typer.Option("--queues", help="The consume queues.")] = False,
    index: Annotated[bool, typer.Option("--index", help="The index.")] = False,
    checkpoint: Annotated[bool, typer.Option("--checkpoint", help="The checkpoint.")] = False,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="T", help="Queues of this topic only; repeatable.")
    ] = None,
    dry_run: DryRunOption = False,
    save: SaveOption = None,
    apply: ApplyOption = None,
    yes: YesOption = False,
    accept_loss: AcceptLossOption = False,
    copy: OutputOption = None,
    undo_dir: UndoDirOption = None,
    commitlog: CommitlogOption = None,
    index_slots: IndexSlotsOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Consume queues, index and checkpoint anew from the log: all of them, or what is named.

    Only files that differ from what the log says are touched. The plan is shown first; the exit code of --dry-run is 3
    where there is something to do.

    Example: rmqtool rebuild /home/rocketmq/store --queues --topic Orders --dry-run
    """
    messages = messages_of(context)
    wish = Wish("rebuild", store, dry_run, save, apply, yes, accept_loss, undo_dir, output, copy)
    opened = opened_for_repair(wish, commitlog, index_slots, broker_conf, broker_version, messages)
    choice = RebuildChoice(queues, index, checkpoint, frozenset(topic) if topic else None)

    def plan(found: Store, staging: Path) -> Made:
        with ByteProgress("rebuild", quiet=messages.quiet) as progress:
            made = plan_rebuild(found, opened.rules, choice, staging, build_options(opened), progress.show)
        return Made(made.steps, notes=made.notes, abort_stays=made.abort_stays)

    carry_out(wish, opened, plan, messages)

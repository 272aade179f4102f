"""`rmqtool recover`: mends a store after a crash. What has to be done is decided in `repair`."""

from __future__ import annotations

import os
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
from rmqtool.repair.recover import RecoverOptions, plan_recover
from rmqtool.report.progress import ByteProgress
from rmqtool.store.directory import Store


def recover(
    context: typer.Context,
    store: StorePath,
    cut_at_damage: Annotated[
        bool,
        typer.Option(
            "--cut-at-damage", help="End the log at its first damage, as a broker would; needs --accept-loss."
        ),
    ] = False,
    clamp_offsets: Annotated[
        bool, typer.Option("--clamp-offsets", help="Set consumers that are beyond a queue's end back to it.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Check the whole log. It is checked whole in any case.")] = False,
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
    """Mend a store after a crash, before a broker is started on it.

    No message that can be read is lost. The plan is shown first, with what each broker version would do on the store
    afterwards. Damage inside the log is named and left. The exit code of --dry-run is 3 where there is something to do;
    it is 3 in any case where damage is left.

    Example: rmqtool recover /home/rocketmq/store --dry-run
    """
    del full
    messages = messages_of(context)
    wish = Wish("recover", store, dry_run, save, apply, yes, accept_loss, undo_dir, output, copy)
    opened = opened_for_repair(wish, commitlog, index_slots, broker_conf, broker_version, messages)
    options = RecoverOptions(build_options(opened), cut_at_damage, clamp_offsets, os.cpu_count() or 1)

    def plan(found: Store, staging: Path) -> Made:
        with ByteProgress("recover", quiet=messages.quiet) as progress:
            made = plan_recover(found, opened.rules, staging, options, progress.show)
        return Made(made.steps, made.loss, made.notes, made.damage, made.abort_stays)

    carry_out(wish, opened, plan, messages)

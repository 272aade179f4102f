"""The frame of every command that repairs: the options they share, and the store opened as they say.

A command adds options of its own and returns its planner; what becomes of the plan is decided in `repair_plan`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rmqtool.commands.help_groups import REPAIR
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import (
    BrokerConfOption,
    BrokerVersionOption,
    CommitlogOption,
    IndexEntriesOption,
    IndexSlotsOption,
    LogFileSizeOption,
    ObjectFormatOption,
    QueueFileSizeOption,
    StoreOptions,
    StorePath,
    command_line,
    file_sizes,
)
from rmqtool.commands.repair_plan import Planner, RepairRun, carry_out, opened_for_repair
from rmqtool.commands.repair_request import RepairRequest
from rmqtool.report.writers import ObjectFormat, OutputFormat
from rmqtool.scan.log_digest import LogDigest

_OF_THE_FRAME: Final = ("command", "stack")
"""Parameters that no person says."""
_IN_FRONT: Final = ("context", "store")
"""Parameters that stand before a command's own ones; the rest of the shared ones stand behind."""


def repair_command(function: Callable[..., Planner]) -> Callable[..., None]:
    """Make a command, named like the function, of what is special about it.

    Args:
        function: takes the `RepairRun` and the command's own options, returns its planner. Its docstring is the help.
    """
    shared = inspect.signature(_opened, eval_str=True).parameters
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

    @functools.wraps(function)
    def command(**options: Any) -> None:
        shared_options = {name: options.pop(name) for name in shared if name not in _OF_THE_FRAME}
        with ExitStack() as stack:
            repair = replace(_opened(function.__name__, stack, **shared_options), flags=_flags(options))
            carry_out(repair, function(repair, **options))

    front = [shared[name] for name in _IN_FRONT]
    behind = [shared[name] for name in shared if name not in (*_OF_THE_FRAME, *_IN_FRONT)]
    command.__signature__ = inspect.Signature([*front, *own, *behind])  # type: ignore[attr-defined]
    return command


def _flags(options: Mapping[str, Any]) -> str | None:
    """The command's own options as they are typed; None where some have values that a person types again."""
    flags = {name: value for name, value in options.items() if value is not False and (value or value == 0)}
    if any(not isinstance(value, int) for value in flags.values()):
        return None
    return " ".join(
        f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}" for name, value in flags.items()
    )


def _opened(
    command: str,
    stack: ExitStack,
    context: typer.Context,
    store: StorePath,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and change nothing.", rich_help_panel=REPAIR)
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Save the plan and change nothing.", rich_help_panel=REPAIR),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            "--apply",
            metavar="FILE",
            help="Apply a saved plan, if the store has not changed since.",
            rich_help_panel=REPAIR,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Apply the plan without asking.", rich_help_panel=REPAIR)] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Agree to a plan that discards messages which can be read now.",
            rich_help_panel=REPAIR,
        ),
    ] = False,
    copy: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Write a repaired copy to this directory; the store is not changed.",
            rich_help_panel=REPAIR,
        ),
    ] = None,
    undo_dir: Annotated[
        Path | None,
        typer.Option(
            "--undo-dir",
            metavar="DIR",
            help="Directory for replaced files, if not in the store.",
            rich_help_panel=REPAIR,
        ),
    ] = None,
    commitlog: CommitlogOption = None,
    log_file_size: LogFileSizeOption = None,
    queue_file_size: QueueFileSizeOption = None,
    index_slots: IndexSlotsOption = None,
    index_entries: IndexEntriesOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    form: ObjectFormatOption = ObjectFormat.TABLE,
) -> RepairRun:
    """What a person said with the shared options; their parameters are those of every repair command."""
    messages = messages_of(context)
    request = RepairRequest(command, store, dry_run, save, apply, yes, accept_loss, undo_dir, OutputFormat(form), copy)
    sizes = file_sizes(log_file_size, queue_file_size, index_entries)
    store_options = StoreOptions(commitlog, index_slots, broker_conf, broker_version, sizes)
    opened, session = opened_for_repair(request, store_options, messages, stack)
    line = command_line(store, store_options)
    return RepairRun(request, opened, messages, line, "", session, stack.enter_context(LogDigest()))

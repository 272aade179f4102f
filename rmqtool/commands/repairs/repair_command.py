"""The frame of every command that repairs: the options they share, and the store opened as they say.

A command adds options of its own and returns its planner; the plan is shown, agreed to and applied in `carry_out`.
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

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.help_groups import REPAIR, option
from rmqtool.commands.options.store import ObjectFormatOption, StoreOptions, StorePath, command_line, with_store_options
from rmqtool.commands.repairs.carry_out import add_saved_options, carry_out, open_for_repair, options_to_save
from rmqtool.commands.repairs.repair_plan import Planner, RepairCommand, RepairRequest, RepairRun
from rmqtool.report.writers import ObjectFormat, OutputFormat
from rmqtool.scan.row_cache import RowCache

_OF_THE_FRAME: Final = ("command", "stack")
"""Parameters that no person says."""
_IN_FRONT: Final = ("context", "store")
"""Parameters that stand before a command's own ones; the rest of the shared ones stand after."""


def repair_command(
    function: Callable[..., Planner] | None = None,
    *,
    store_of: Callable[[Path], Path] | None = None,
    infers_queue_kind: bool = False,
) -> Callable[..., Any]:
    """Make a command, named like the function, of what is special about it.

    Args:
        function: takes the `RepairRun` and the command's own options, returns its planner. Its docstring is the help.
        store_of, infers_queue_kind: see `RepairCommand`.
    """
    if function is None:
        return functools.partial(repair_command, store_of=store_of, infers_queue_kind=infers_queue_kind)
    described = RepairCommand(name=function.__name__, store_of=store_of, infers_queue_kind=infers_queue_kind)
    shared = inspect.signature(_opened, eval_str=True).parameters
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    front = [shared[name] for name in _IN_FRONT if name != "store" or store_of is None]

    @functools.wraps(function)
    def command(**options: Any) -> None:
        if store_of is not None:
            options["store"] = store_of(options["file"])
        shared_options = {name: options.pop(name) for name in shared if name not in _OF_THE_FRAME}
        with ExitStack() as stack:
            run = _opened(described, stack, **shared_options)
            if run.request.apply is not None:
                add_saved_options(own, options, run.request.apply)
            run = replace(run, flags=_flags(options), options=options_to_save(own, options))
            carry_out(run, function(run, **options))

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


@with_store_options()
def _opened(
    command: RepairCommand,
    stack: ExitStack,
    context: typer.Context,
    store: StorePath,
    dry_run: Annotated[bool, option("--dry-run", "Print the plan and change nothing.", REPAIR)] = False,
    save: Annotated[Path | None, option("--plan FILE", "Save the plan and change nothing.", REPAIR)] = None,
    apply: Annotated[
        Path | None, option("--apply FILE", "Apply a saved plan, if the store has not changed since.", REPAIR)
    ] = None,
    yes: Annotated[bool, option("--yes", "Apply the plan without asking.", REPAIR)] = False,
    accept_loss: Annotated[
        bool, option("--accept-loss", "Agree to a plan that discards messages which can be read now.", REPAIR)
    ] = False,
    copy: Annotated[
        Path | None,
        option("--output DIR", "Write a repaired copy to this directory; the store is not changed.", REPAIR),
    ] = None,
    undo_dir: Annotated[
        Path | None, option("--undo-dir DIR", "Directory for replaced files, if not in the store.", REPAIR)
    ] = None,
    *,
    store_options: StoreOptions,
    form: ObjectFormatOption = ObjectFormat.TABLE,
) -> RepairRun:
    """What a person said with the shared options; their parameters are those of every repair command."""
    messages = messages_of(context)
    request = RepairRequest(
        command=command,
        store=store,
        dry_run=dry_run,
        save=save,
        apply=apply,
        is_agreed=yes,
        accept_loss=accept_loss,
        undo_dir=undo_dir,
        copy=copy,
        output=OutputFormat(form),
    )
    opened, session = open_for_repair(request, store_options, messages, stack)
    line = command_line(store, store_options)
    return RepairRun(request, opened, messages, line, "", session, stack.enter_context(RowCache()))

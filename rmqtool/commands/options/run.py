"""Options that every command has: what it says on standard error, and the time zone of what it prints and takes."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import Annotated, Any, Final

import typer

from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options.completion import time_zones
from rmqtool.commands.options.help_groups import EVERY
from rmqtool.errors import UsageError
from rmqtool.report.progress import ProgressForm
from rmqtool.times import show_in, zone_named

_POSIX_ZONE: Final = re.compile(r":?(?:<[A-Za-z0-9+-]{3,}>|[A-Za-z]{3,})[+-]?\d.*")
"""A zone as TZ can describe it without a database, such as CST-8."""


def _set_quiet(context: typer.Context, chosen: bool) -> bool:
    messages_of(context).quiet |= chosen
    return chosen


def _set_verbose(context: typer.Context, chosen: bool) -> bool:
    messages_of(context).verbose |= chosen
    return chosen


def _set_utc(context: typer.Context, chosen: bool) -> bool:
    if chosen:
        _choose_zone(context, "--utc", UTC)
    return chosen


def _set_timezone(context: typer.Context, name: str | None) -> str | None:
    if name is not None:
        try:
            zone = zone_named(name)
        except UsageError as error:
            raise UsageError(f"--timezone: {error}") from None
        _choose_zone(context, "--timezone", zone)
    return name


def _choose_zone(context: typer.Context, option: str, zone: tzinfo) -> None:
    messages = messages_of(context)
    if messages.zone_option not in (None, option):
        raise UsageError("--utc and --timezone exclude each other; use one of them")
    messages.zone_option = option
    show_in(zone)


def _set_progress(context: typer.Context, form: ProgressForm) -> ProgressForm:
    if form is not ProgressForm.AUTO:
        messages_of(context).progress_form = form
    return form


Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print errors only.", callback=_set_quiet, rich_help_panel=EVERY)
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print more detail.", callback=_set_verbose, rich_help_panel=EVERY)
]
Utc = Annotated[
    bool, typer.Option("--utc", help="Print and read times in UTC.", callback=_set_utc, rich_help_panel=EVERY)
]
Timezone = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="Print and read times in this zone: Asia/Shanghai, +08:00 (default: TZ, else this machine's).",
        callback=_set_timezone,
        autocompletion=time_zones,
        rich_help_panel=EVERY,
    ),
]
ProgressOption = Annotated[
    ProgressForm,
    typer.Option(
        "--progress",
        help="Show progress on standard error: on a terminal only, as JSON objects, or never.",
        callback=_set_progress,
        rich_help_panel=EVERY,
    ),
]
_OF_EVERY_COMMAND: Final = {
    "quiet": (Quiet, False),
    "verbose": (Verbose, False),
    "utc": (Utc, False),
    "timezone": (Timezone, None),
    "progress": (ProgressOption, ProgressForm.AUTO),
}


def with_run_options(function: Callable[..., None]) -> Callable[..., None]:
    """A command with these options after its own ones, where a person adds them to a finished line."""

    @functools.wraps(function)
    def command(*arguments: Any, **options: Any) -> None:
        for name in _OF_EVERY_COMMAND:
            del options[name]  # their callbacks did the work
        function(*arguments, **options)

    signature = inspect.signature(function, eval_str=True)
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OF_EVERY_COMMAND.items()
    ]
    parameters = [*signature.parameters.values(), *own]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def show_in_environments_zone(messages: Messages) -> None:
    """Use the zone of the variable TZ, else the machine's own one."""
    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        show_in(zone_named(name) if name else None)
    except UsageError as error:
        if _POSIX_ZONE.fullmatch(name) or name.startswith("/"):
            show_in(None)
        else:
            show_in(UTC)
            messages.warn(f"the variable TZ: {error}; times are in UTC")

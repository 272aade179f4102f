"""Options that every command has: what it says on standard error, the time zone of times, the limit of memory."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC
from typing import Annotated, Any, Final

import typer

from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options.completion import time_zones
from rmqtool.commands.options.help_groups import EVERY, option
from rmqtool.errors import UsageError
from rmqtool.memory import THREAD_BYTES, keep_to, memory_budget
from rmqtool.report.progress import ProgressForm
from rmqtool.times import show_in, zone_named

_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZE: Final = re.compile(r"(\d{1,15})\s?(?:([KMGT])(iB|B)?)?", re.IGNORECASE)
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


def is_duration(text: str) -> bool:
    """Whether `duration_s` takes a text."""
    return _DURATION.fullmatch(text) is not None


def duration_s(text: str, option: str) -> float:
    """Seconds of a duration: 90s, 20m, 2h, 1d; without a unit they are seconds. UsageError where it is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{option}: {text!r} is not a duration such as 90s, 20m or 2h")
    return float(int(match[1]) * _SECONDS[match[2]])


def byte_count(text: str | None, option: str) -> int | None:
    """What was typed for an option that takes a size: 20M and 20MiB are 20 * 1024 * 1024, 20MB is 20 * 1000 * 1000.
    None stays None; UsageError where it is no size.
    """
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option}: {text!r} is not a number of bytes such as 20M or 1048576")
    unit, suffix = (match[2] or "").upper(), (match[3] or "").upper()
    count = int(match[1])
    for _ in range(_POWERS.get(unit, 0)):
        count *= 1000 if suffix == "B" else 1024
    return count


def pairs(texts: Iterable[str], option: str, form: str = "NAME=VALUE") -> Iterator[tuple[str, str]]:
    """Names and values of an option that may be given several times; UsageError where a text has no name or `=`."""
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option}: {text!r} is not {form}")
        yield name, value


_POSIX_ZONE: Final = re.compile(r":?(?:<[A-Za-z0-9+-]{3,}>|[A-Za-z]{3,})[+-]?\d.*")
"""A zone as TZ can describe it without a database, such as CST-8."""


def _take(context: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """Take an option where it stands in the line, before the command or after it; left out it changes nothing."""
    messages, name = messages_of(context), parameter.opts[0]
    if name == "--quiet":
        messages.quiet |= value
    elif name == "--verbose":
        messages.verbose |= value
    elif name == "--progress" and value is not ProgressForm.AUTO:
        messages.progress_form = value
    elif name in ("--utc", "--timezone") and value:
        try:
            zone = UTC if name == "--utc" else zone_named(value)
        except UsageError as error:
            raise UsageError(f"--timezone: {error}") from None
        if messages.zone_option not in (None, name):
            raise UsageError("--utc and --timezone exclude each other; use one of them")
        messages.zone_option = name
        show_in(zone)
    return value


Quiet = Annotated[bool, option("--quiet -q", "Print errors only.", EVERY, callback=_take)]
Verbose = Annotated[bool, option("--verbose -v", "Print more detail.", EVERY, callback=_take)]
Utc = Annotated[bool, option("--utc", "Print and read times in UTC.", EVERY, callback=_take)]
Timezone = Annotated[
    str | None,
    option(
        "--timezone ZONE",
        "Print and read times in this zone: Asia/Shanghai, +08:00 (default: TZ, else this machine's).",
        EVERY,
        callback=_take,
        autocompletion=time_zones,
    ),
]
ProgressOption = Annotated[
    ProgressForm,
    option(
        "--progress",
        "Show progress on standard error: on a terminal only, as JSON objects, or never.",
        EVERY,
        callback=_take,
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
    return _with_options(function, _OF_EVERY_COMMAND, lambda *_: None)  # their callbacks do the work


def _with_options(
    function: Callable[..., None], options: Mapping[str, tuple[Any, Any]], take: Callable[..., None]
) -> Callable[..., None]:
    """A command with further options, by name their type and default, whose values are taken before it runs."""

    @functools.wraps(function)
    def command(*arguments: Any, **given: Any) -> None:
        take(*(given.pop(name) for name in options))
        function(*arguments, **given)

    signature = inspect.signature(function, eval_str=True)
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]
    parameters = [*signature.parameters.values(), *further]
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


_CHECKS: Final = ("dump", "browse", "verify", "watch", "diff", "replay", "stats", "search")
_REPAIRS: Final = ("recover", "rebuild", "salvage", "patch", "convert", "mirror", "evidence")
"""They keep what they have seen of the log while they build or simulate."""
_WRITERS: Final = ("extract", "merge")
"""They write a new store, whose files are as many as the first one's."""
WORK_BYTES: Final = {
    **dict.fromkeys(_CHECKS, 64 << 20),
    **dict.fromkeys((*_REPAIRS, *_WRITERS, "forecast"), 112 << 20),
    "report": 288 << 20,
}
"""Commands that read a whole store, with what each must hold beside the program and the list of the store's files.

`export` is none of them: it always runs on Spark, whose settings limit its processes."""
FILE_BYTES: Final = {
    **dict.fromkeys(_CHECKS, 1024),
    "forecast": 2048,
    **dict.fromkeys(_REPAIRS, 4608),
    **dict.fromkeys(_WRITERS, 6656),
    "report": 5120,
}
"""Memory for each file of the store beside the list of them: names and ends of queues, and results of checks."""
MaxMemory = Annotated[
    str | None,
    option("--max-memory SIZE", "Hold at most this much memory, and keep the rest in temporary files: 200M, 1G."),
]


def thread_count(chosen: int | None = None) -> int:
    """How many threads read a store: those that a person chose, else one for each core, but no more than have room."""
    return memory_budget().threads(chosen or os.cpu_count() or 1, THREAD_BYTES)


def with_memory_option(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """A command with `--max-memory` after its own options; the limit holds while the command runs."""

    def keep(text: str | None) -> None:
        keep_to(byte_count(text, "--max-memory"), WORK_BYTES[name], FILE_BYTES[name])

    return _with_options(function, {"max_memory": (MaxMemory, None)}, keep)

"""`--max-memory`: how much memory a command may hold; every command that reads a whole store has it."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from rmqtool.commands.options.option_values import byte_count
from rmqtool.memory import THREAD_BYTES, keep_to, memory_budget

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
"""What they keep of each file of a store beside the list of them: names and ends of queues, and what was checked."""
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Hold at most this much memory, and keep the rest in temporary files: 200M, 1G.",
    ),
]
_NAME: Final = "max_memory"


def thread_count(chosen: int | None = None) -> int:
    """How many threads read a store: those that a person chose, else one for each core, but no more than have room."""
    return memory_budget().threads(chosen or os.cpu_count() or 1, THREAD_BYTES)


def with_memory_option(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """A command with `--max-memory` after its own options; the limit holds while the command runs."""

    @functools.wraps(function)
    def command(*arguments: Any, **options: Any) -> None:
        text = options.pop(_NAME)
        keep_to(byte_count(text, "--max-memory"), WORK_BYTES[name], FILE_BYTES[name])
        function(*arguments, **options)

    signature = inspect.signature(function, eval_str=True)
    own = inspect.Parameter(_NAME, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=MaxMemory)
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), own]
    )
    return command

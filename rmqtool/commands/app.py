"""The command line, and how every run of it ends.

A command's module is imported when the command runs or its own help is asked for, so that `rmqtool --help` and the
completion of a command's name stay fast.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import rmqtool
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.closed_pipe import surviving
from rmqtool.commands.command_list import COMMANDS
from rmqtool.commands.messages import Messages
from rmqtool.commands.options import run as run_options
from rmqtool.commands.options.help_groups import GroupedCommand, option
from rmqtool.errors import RmqtoolError
from rmqtool.memory import keep_freed_memory
from rmqtool.report.progress import ProgressForm
from rmqtool.scan.kernels.compile_notice import ON_COMPILE, ON_PLAIN_READING

_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""Imports and rows make objects by the hundred thousand and hardly a cycle: with 700 one looks for them in vain."""
_COMPLETING: Final = "_RMQTOOL_COMPLETE"
_UNBROKEN: Final = "1000"
_ONE_BLAS_THREAD: Final = ("OPENBLAS_NUM_THREADS", "1")
"""numpy's linear algebra, which nothing here uses, else starts a thread a core that looks for work without pause."""
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


def _show_version(chosen: bool) -> None:
    if chosen:
        typer.echo(f"rmqtool {rmqtool.__version__}")
        raise typer.Exit


def _compile(chosen: bool) -> None:
    if chosen:
        from rmqtool.commands.compile_kernels import compile_kernels

        typer.echo(f"compiled; the code is kept in {compile_kernels()}")
        raise typer.Exit


class _LazyGroup(TyperGroup):
    """Commands that are known by name and one line; the rest of one is imported once it is chosen."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, (_, short_help) in COMMANDS.items():
            self.add_command(TyperCommand(name, short_help=short_help))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, stub, rest = super().resolve_command(ctx, args)
        return name, load(name) if stub is not None and name in COMMANDS else stub, rest


def application() -> TyperGroup:
    """The whole command line as one command."""
    app = typer.Typer(
        name="rmqtool", cls=_LazyGroup, no_args_is_help=True, rich_markup_mode=None, context_settings=_SETTINGS
    )

    @app.callback()
    def rmqtool(
        _version: Annotated[
            bool, option("--version", "Show the version.", callback=_show_version, is_eager=True)
        ] = False,
        _compile: Annotated[
            bool,
            option(
                "--compile", "Compile the fast readers now, not during the first run.", callback=_compile, is_eager=True
            ),
        ] = False,
        _quiet: run_options.Quiet = False,
        _verbose: run_options.Verbose = False,
        _utc: run_options.Utc = False,
        _timezone: run_options.Timezone = None,
        _progress: run_options.ProgressOption = ProgressForm.AUTO,
    ) -> None:
        """Inspect, verify and repair the store directory of an Apache RocketMQ broker, offline.

        Example: rmqtool info /home/rocketmq/store
        """

    group: TyperGroup = get_command(app)  # type: ignore[assignment]
    return group


def load(name: str) -> TyperCommand | TyperGroup:
    """Import a command of the list; one that is several has a mapping of their names to functions."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    entry_point = getattr(importlib.import_module(f"rmqtool.commands.{module}"), attribute)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    if isinstance(entry_point, dict):
        examples = [inspect.getdoc(action) or "" for action in entry_point.values()]
        text = f"{COMMANDS[name][1]}\n\n{examples[0].rpartition(chr(10))[2]}"
        app.callback(help=text, no_args_is_help=True, context_settings=_SETTINGS)(lambda: None)
        for action, function in entry_point.items():
            app.command(action, cls=GroupedCommand, context_settings=_SETTINGS)(run_options.with_run_options(function))
        group: TyperGroup = get_command(app)  # type: ignore[assignment]
        return group
    has_memory_option = name in run_options.WORK_BYTES
    function = run_options.with_memory_option(name, entry_point) if has_memory_option else entry_point
    takes_arguments = name != "formats"  # which alone lists something; every other command has a path to be told
    app.command(name, cls=GroupedCommand, context_settings=_SETTINGS, no_args_is_help=takes_arguments)(
        run_options.with_run_options(function)
    )
    command: TyperCommand = get_command(app)  # type: ignore[assignment]
    return command


def run(arguments: Sequence[str]) -> int:
    """Run a command line; its exit code."""
    messages = Messages()
    try:
        # A name that the terminal's character set lacks must not end a command.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        ON_COMPILE[:] = [messages.compiling] if sys.stderr is not None and sys.stderr.isatty() else []
        ON_PLAIN_READING[:] = [messages.plain_reading]
        run_options.show_in_environments_zone(messages)
        if _COMPLETING in os.environ:
            os.environ["COLUMNS"] = _UNBROKEN  # else a shell takes the second line of a long description for a name
        application()(args=list(arguments), prog_name="rmqtool", obj=messages)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        # Typer makes an exit of ^C, and of a question that nobody answers.
        error: BaseException | None = ended
        while error is not None:
            if isinstance(error, KeyboardInterrupt):
                messages.interrupt(error)
                code = ExitCode.INTERRUPTED
            elif isinstance(error, EOFError):
                messages.error(f"no answer; {messages.interrupted}")
                code = ExitCode.REFUSED
            error = error.__cause__ or error.__context__
        if isinstance(ended.__context__, BrokenPipeError):  # of another pipe, and Typer makes a silent exit of it
            messages.error(ended.__context__)
            code = ExitCode.FAILED
    except RmqtoolError as error:
        messages.error(error)
        code = error.exit_code
    except OSError as error:
        # Reads name their file and are errors of ours by now; what has no name was written.
        messages.error(f"{error.filename or 'standard output'}: {error.strerror or error}")
        code = ExitCode.FAILED
    except KeyboardInterrupt as error:
        messages.interrupt(error)
        code = ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place where a person can be told what to do
        messages.bug(error)
        code = ExitCode.CRASHED
    # What is left is written here and not at the interpreter's end, where a failure can no longer be told well.
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        messages.error(f"standard output: {error.strerror or error}")
        with suppress(OSError, ValueError):  # what is still buffered goes nowhere, so that nobody tries again
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        return code or ExitCode.FAILED
    return code


def main() -> None:
    """What the console script `rmqtool` runs."""
    sys.stdout, sys.stderr = surviving(sys.stdout), surviving(sys.stderr)
    keep_freed_memory()
    os.environ.setdefault(*_ONE_BLAS_THREAD)
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    code = run(sys.argv[1:])
    gc.freeze()  # else the interpreter looks for cycles among all objects once more before it ends
    sys.exit(code)

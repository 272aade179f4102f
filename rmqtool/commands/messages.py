"""Output of a command besides its result, on standard error: warnings, errors and notes, a line each, and progress."""

from __future__ import annotations

import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import typer

from rmqtool.errors import how_to_install
from rmqtool.report.progress import Facts, Progress, ProgressForm


@dataclass
class Messages:
    """Verbosity on standard error; one object for a run of the program, carried by Typer's context."""

    quiet: bool = False
    """Errors only."""
    verbose: bool = False
    """Notes too, and the stack of an error."""
    zone_option: str | None = None
    """The option that chose the time zone."""
    progress_form: ProgressForm = ProgressForm.AUTO
    interrupted: str = "the store was not changed"
    """State that ^C leaves at this point of the command."""
    _progress: list[Progress] = field(default_factory=list)
    """Displays that may have drawn on the next line."""

    def progress(
        self, what: str, *, unit: str = "byte", total: Callable[[], int] | None = None, facts: Facts | None = None
    ) -> Progress:
        """How far the next phase of the command is, as the options say; see `Progress`."""
        from rmqtool.store.source import READS

        form = ProgressForm.NONE if self.quiet and self.progress_form is ProgressForm.AUTO else self.progress_form
        width = shutil.get_terminal_size().columns
        progress = Progress(what, form, lambda: READS.byte_count, unit=unit, total=total, facts=facts, width=width)
        self._progress[:] = [progress]
        return progress

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A question to a person, whose line no progress covers."""
        with ExitStack() as stack:
            for progress in self._progress:
                stack.enter_context(progress.paused())
            yield

    def note(self, text: str) -> None:
        """Something that a person need not know, with `--verbose` only."""
        if self.verbose and not self.quiet:
            self._say(text)

    def compiling(self) -> None:
        """Why a person has to wait, this time only."""
        if not self.quiet:
            self._say("compiling what reads large stores; this takes some seconds, the first time only")

    def plain_reading(self) -> None:
        """Why a large log takes long."""
        self.warn(
            f"numba does not load here, so that large logs are read by plain Python, which takes longer; "
            f"{how_to_install('fast')}, or see docs/install-offline.md"
        )

    def warn(self, text: str) -> None:
        """Something that a person should know, though the command continues."""
        if not self.quiet:
            self._say(f"warning: {text}")

    def error(self, error: BaseException | str) -> None:
        """Why the command ends."""
        self._say(str(error))
        if isinstance(error, BaseException):
            self._stack(error)

    def bug(self, error: BaseException) -> None:
        """A fault of the tool itself: what to report, on one line."""
        kind = type(error).__name__
        advice = "" if self.verbose else "; run again with --verbose to print the details for a bug report"
        self._say(f"internal error: {kind}: {error}{advice}" if str(error) else f"internal error: {kind}{advice}")
        self._stack(error)

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """What ^C has left behind: what the error says of itself, else what the command said last."""
        notes = getattr(error, "__notes__", None) or [self.interrupted]
        self._say(f"interrupted; {'; '.join(notes)}")

    def _say(self, text: str) -> None:
        for progress in self._progress:
            progress.hide()
        with suppress(OSError):  # nobody listens: no reason to fail
            sys.stderr.write(f"rmqtool: {printable(text)}\n")
            sys.stderr.flush()

    def _stack(self, error: BaseException) -> None:
        if self.verbose:
            with suppress(OSError):
                sys.stderr.write("".join(traceback.format_exception(error)))


def messages_of(context: typer.Context) -> Messages:
    """The messages of the running program; default ones where a command runs alone, in a test."""
    messages: Messages = context.ensure_object(Messages)
    return messages


def printable(text: str) -> str:
    """One line without anything that a terminal would obey: file names and topics come from anywhere."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )

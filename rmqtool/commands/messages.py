"""What a command says beside its result: warnings, errors and notes, each one line on standard error."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass

import typer


@dataclass
class Messages:
    """How much is said on standard error; one object for a run of the program, carried by Typer's context."""

    quiet: bool = False
    """Errors only."""
    verbose: bool = False
    """Notes too, and the stack of an error."""
    zone_option: str | None = None
    """The option that chose the time zone."""

    def note(self, text: str) -> None:
        """Something that a person need not know, with `--verbose` only."""
        if self.verbose and not self.quiet:
            _say(text)

    def warn(self, text: str) -> None:
        """Something that a person should know, though the command goes on."""
        if not self.quiet:
            _say(f"warning: {text}")

    def error(self, error: BaseException | str) -> None:
        """Why the command ends."""
        _say(str(error))
        if isinstance(error, BaseException):
            self._stack(error)

    def bug(self, error: BaseException) -> None:
        """A fault of the tool itself: what to report, on one line."""
        kind = type(error).__name__
        advice = "" if self.verbose else "; run again with --verbose to print the details for a bug report"
        _say(f"internal error: {kind}: {error}{advice}" if str(error) else f"internal error: {kind}{advice}")
        self._stack(error)

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


def _say(text: str) -> None:
    with suppress(OSError):  # nobody listens: no reason to fail
        sys.stderr.write(f"rmqtool: {printable(text)}\n")
        sys.stderr.flush()

"""Runs a command line in this process, as the console script would, and says what came out of it."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import pytest

from rmqtool.commands import app
from rmqtool.store import probe_lock

CLEAN_EXITS = (0, 2, 3, 4, 5)
"""What a repair command may end with; 1 is a crash of the tool."""


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    output: str
    errors: str

    @property
    def said(self) -> str:
        """One line for a failure's text."""
        return f"exit {self.code}: {self.errors.strip()[-500:] or self.output.strip()[-200:]}"


def run(*arguments: Any) -> Outcome:
    """Run `rmqtool` with these arguments; nobody sits at a terminal."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = app.run([os.fspath(argument) for argument in arguments])
    return Outcome(code, output.getvalue(), errors.getvalue())


@contextmanager
def ready_commands() -> Iterator[None]:
    """Keep the command line once it is built, and do not look for other processes: that is most of a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_lock, "processes_mapping", lambda _directories: ())
        patch.setattr(probe_lock, "_is_own", lambda _found: True)
        patch.setattr(app, "load", functools.cache(app.load))
        patch.setattr(app, "application", functools.cache(app.application))
        patch.setattr("sys.stdin", io.StringIO())
        yield

"""rmqtool's commands, run in this process: their exit code, output and errors."""

import io
import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from rmqtool.commands.app import run

SECONDS_MAX = 600
"""A command that runs longer has no end, and shall not keep the run from its own."""


class TooLongError(BaseException):
    """No error that a command could handle."""


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as JSON; None where there is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    @property
    def trouble(self) -> str:
        """The last line of the errors without paths and numbers, to group by."""
        lines = [line for line in self.err.strip().splitlines() if line.strip()]
        line = next((line for line in reversed(lines) if "rror" in line or ": " in line), "")
        return re.sub(r"\d+", "N", re.sub(r"\S*/\S*", "PATH", line))[:110]


def rmqtool(*arguments: object) -> Answer:
    """Run a command line; one that does not end answers as one that broke off."""
    texts = tuple(map(str, arguments))
    out, err = io.StringIO(), io.StringIO()
    code = 1
    try:
        with _limited(), redirect_stdout(out), redirect_stderr(err):
            code = run(texts)
    except TooLongError:
        err.write(f"error: no end in {SECONDS_MAX} s\n")
    return Answer(texts, code, out.getvalue(), err.getvalue())


@contextmanager
def _limited() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

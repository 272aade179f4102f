"""rmqtool's commands, run in this process: their exit code, output and errors."""

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from rmqtool.commands.app import run


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
    """Run a command line."""
    texts = tuple(map(str, arguments))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(texts)
    return Answer(texts, code, out.getvalue(), err.getvalue())

"""Transcripts: what a person types, what is printed, the exit code; kept as text, rewritten with `pytest --rewrite`.

A file holds steps: a line `$ rmqtool ...`, a line of dashes, the output (lines of standard error begin with `! `), and
`exit N`; an empty line ends a step, and lines that begin with `#` in front of a command say what it is about. Commands
run in a folder in which the golden stores that they name lie. Width and color are fixed; what differs from machine to
machine stands as `...`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqtool.commands.app import run

DASHES = "-" * 20
WIDTH = 80
STDERR = "! "
MACHINE = re.compile(r"""(^Owner +|^Free space +|"owner": |"free_bytes": )[^,\n]*""", re.MULTILINE)
"""What the machine says and not the store."""


class Ran(NamedTuple):
    """How a command line ended, run in this process."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Step:
    """One command line of a transcript."""

    comment: str
    command: str
    expected: str

    def text(self, output: str) -> str:
        return f"{self.comment}$ {self.command}\n{DASHES}\n{output}"


def rmqtool(*arguments: object) -> Ran:
    """Run a command line as the console script does, at 80 columns, in UTC and without color."""
    with pytest.MonkeyPatch.context() as patch, _captured() as (out, err):
        patch.setenv("COLUMNS", str(WIDTH))
        patch.setenv("NO_COLOR", "1")
        patch.setenv("TZ", "UTC")
        code = run([str(argument) for argument in arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def json_answer(*arguments: object) -> tuple[int, dict[str, Any]]:
    """The exit code of a command line, and its answer."""
    ran = rmqtool(*arguments, "--format", "json")
    assert ran.err == "" or ran.out, ran.err
    return ran.code, json.loads(ran.out)


def read_transcript(path: Path) -> list[Step]:
    """The steps of a transcript; those without output yet have none to compare with."""
    comment = r"(?P<comment>(?:#.*\n)*)"
    output = rf"{DASHES}\n(?P<output>(?:.*\n)*?exit \d+\n)"
    pattern = re.compile(rf"^{comment}\$ (?P<command>.*)\n(?:{output})?", re.MULTILINE)
    matches = pattern.finditer(path.read_text("utf-8"))
    return [Step(match["comment"], match["command"], match["output"] or "") for match in matches]


def stores_named(path: Path, known: Collection[str]) -> set[str]:
    """The golden stores that a transcript's commands look into."""
    words = {word for step in read_transcript(path) for word in shlex.split(step.command)}
    return {name for name in known if any(Path(word).parts[:1] == (name,) for word in words)}


def check_transcript(path: Path, folder: Path, *, rewrite: bool) -> None:
    """Run every step in a folder and compare, or write down what they print."""
    steps = read_transcript(path)
    assert steps, f"{path.name} has no step"
    found = []
    for step in steps:
        program, *words = shlex.split(step.command)
        assert program == "rmqtool", step.command
        with contextlib.chdir(folder):
            found.append(step.text(_shown(rmqtool(*words))))
    if rewrite:
        path.write_text("\n".join(found), "utf-8")
        return
    for step, text in zip(steps, found, strict=True):
        assert text == step.text(step.expected), f"{path.name}: {step.command}"


@contextmanager
def _captured() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        yield out, err


def _shown(ran: Ran) -> str:
    errors = "".join(f"{STDERR}{line}\n" for line in ran.err.splitlines())
    out = ran.out if not ran.out or ran.out.endswith("\n") else f"{ran.out}\n"
    return MACHINE.sub(r"\1...", f"{out}{errors}") + f"exit {ran.code}\n"

"""Follows the advice of `next_step`, from `info` on, as a person who types each command and agrees to what it asks."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.commands.transcripts import rmqtool

STEPS_MAX: Final = 4
"""Commands after `info`, or after a person's consent, until the verdict is OK or a person must decide again."""
COMMANDS_MAX: Final = 5
"""Commands after `info` in all: a store may need two decisions."""
CONSENT: Final = "--accept-loss"
REPAIRS: Final = ("recover", "rebuild", "salvage")


@dataclass
class Walk:
    """Where the advice about a store has led: the commands, and the last one's answer."""

    path: Path
    commands: list[str] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def needs_decision(self) -> bool:
        return bool(self.answer["needs_decision"])

    @property
    def is_ok(self) -> bool:
        return bool(self.answer["verdict"] == "ok")

    def __str__(self) -> str:
        step = self.answer.get("next_step")
        text = f"{' > '.join(self.commands)}: {self.answer.get('headline')} | {step}"
        return text.replace(str(self.path), "STORE")


def follow(path: Path, *options: str) -> Walk:
    """Follow the advice about a store, which is changed, to its end: OK, or what a person must decide.

    Args:
        options: that a person gives with the first command, and each later one repeats.

    Raises:
        AssertionError: a command does not accept the store or has nothing to do, or there is no end.
    """
    walk, command = Walk(path), shlex.join(["rmqtool", "info", str(path), *options])
    steps = 0
    for _ in range(1 + COMMANDS_MAX):
        walk.commands.append(command)
        words = shlex.split(command)
        _take_step(walk, words[1:])
        step = walk.answer["next_step"]
        assert step["reason"], walk
        if step["command"] is None:
            assert walk.is_ok or walk.needs_decision, f"neither OK nor a decision: {walk}"
            return walk
        command = step["command"].replace("NEW_STORE", str(path.with_name("new")))
        steps = 0 if CONSENT in words else steps + 1
        assert steps <= STEPS_MAX, walk
        if shlex.split(command)[0] != "rmqtool":
            assert walk.needs_decision, f"not a command of rmqtool: {walk}"
            return walk
    raise AssertionError(f"no end after {COMMANDS_MAX} commands: {walk}")


def _take_step(walk: Walk, words: list[str]) -> None:
    if words[0] in (*REPAIRS, "convert"):
        _ask(walk, [*words, "--dry-run"])
        assert walk.answer["steps"], f"{words[0]} has nothing to do: {walk}"
        if walk.needs_decision and CONSENT not in words:
            return  # the next step is the same command with the consent of a person
        words = [*words, "--yes"]
    elif words[0] == "undo":
        ran = rmqtool(*words, "--yes")
        assert ran.code == 0, f"undo: exit {ran.code}, {ran.err}: {walk}"
        words = ["info", words[1]]
    _ask(walk, words)


def _ask(walk: Walk, words: list[str]) -> None:
    ran = rmqtool(*words, "--format", "json")
    assert ran.out, f"{words[0]}: exit {ran.code}, {ran.err}: {walk}"
    answer = json.loads(ran.out)
    walk.answer = answer.get("summary", answer)
    assert ran.code in (0, 3) or walk.answer["verdict"] == "not-readable", f"{words[0]}: exit {ran.code}: {walk}"
    if words[0] != "info" and "--dry-run" not in words:
        assert (ran.code == 0) == walk.is_ok, f"{words[0]}: exit {ran.code}: {walk}"

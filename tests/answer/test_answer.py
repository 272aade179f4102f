"""The next step: a command with something to do, or what a person has to decide."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.answer.answer import (
    Assessment,
    MissingLog,
    NextStep,
    blocked_step,
    repair_step,
    undecoded_step,
)
from rmqtool.answer.opened_store import CommandLine
from rmqtool.sides.unread import ReadBy, UnreadFiles

LINE, ELSEWHERE = CommandLine("/store"), CommandLine("s3://bucket", is_local=False)


@pytest.mark.parametrize(
    ("facts", "is_blocked"),
    [
        ({"log_missing": MissingLog("no")}, True),
        ({"unreadable": ("a",), "reader": "Run."}, True),
        ({"damaged": 1}, False),
        ({}, False),
    ],
)
def test_nothing_is_judged_before_a_person_has_acted(facts: dict[str, Any], is_blocked: bool) -> None:
    step = blocked_step(Assessment(**facts))
    assert (step is not None) is is_blocked
    assert step is None or (step.needs_decision and step.command is None)


def test_a_repair_is_a_command_for_a_local_store_whose_settings_are_known() -> None:
    assert repair_step(LINE, "recover", "why:") == NextStep("rmqtool recover /store", "why:")
    assert repair_step(ELSEWHERE, "recover", "why:").command is None
    unknown = repair_step(LINE, "recover", "why:", ["give the size"])
    assert unknown == NextStep(None, "why; give the size. Then run: rmqtool recover /store", needs_decision=True)


@pytest.mark.parametrize(
    ("read_by", "command"),
    [(ReadBy.VERIFY, "rmqtool verify /store"), (ReadBy.DRIVER, None), (ReadBy.SIZES, None), (ReadBy.BROKER, None)],
)
def test_files_that_were_not_looked_at(read_by: ReadBy, command: str | None) -> None:
    step = undecoded_step(Assessment(not_looked_at=(UnreadFiles("a", "b", "any words", read_by),)), LINE)
    assert (step.command, step.needs_decision) == (command, command is None)


def test_json_of_a_step() -> None:
    assert NextStep("a", "b", needs_decision=True).as_json() == {
        "next_step": {"command": "a", "reason": "b"},
        "needs_decision": True,
    }

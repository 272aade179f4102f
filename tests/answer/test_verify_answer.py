"""The next step after `verify`: what repairs most, then what a person decides, then what was left out."""

from __future__ import annotations

import pytest

from rmqtool.answer.answer import Assessment, FindingTally, MissingLog, NextStep
from rmqtool.answer.opened_store import CommandLine
from rmqtool.answer.verify_answer import step_after_verify
from rmqtool.findings.finding import Finding, Severity

LINE, ELSEWHERE = CommandLine("/store"), CommandLine("s3://bucket", is_local=False)
DAMAGED = Assessment(damaged=1)


@pytest.mark.parametrize(
    ("assessment", "repair", "left_out", "command"),
    [
        (DAMAGED, "salvage", True, "rmqtool salvage /store"),
        (Assessment(log_missing=MissingLog("no")), "salvage", True, None),
        (Assessment(), None, True, "rmqtool verify /store"),
        (Assessment(), None, False, None),
        (Assessment(start_failures={"5.5.0": "x"}), None, False, None),
    ],
)
def test_after_verify(assessment: Assessment, repair: str | None, left_out: bool, command: str | None) -> None:
    step = step_after_verify(LINE, assessment, repair, FindingTally(), (), left_out=left_out)
    assert step.command == command


def test_a_finding_that_no_command_answers_comes_before_more_checks() -> None:
    tally = FindingTally()
    tally.add(Finding("a.b", Severity.ERROR, "file", "text"), "do it by hand")
    step = step_after_verify(LINE, DAMAGED, None, tally, (), left_out=True)
    assert step == NextStep(None, "a.b: do it by hand", needs_decision=True)


def test_a_tail_that_came_back_is_cut_on_a_decision_and_on_this_machine_only() -> None:
    tally = FindingTally()
    cut = Finding("commitlog.resurrected-tail", Severity.WARNING, "file", "text", repair="recover --cut-at 7")
    tally.add(cut)
    step = step_after_verify(LINE, DAMAGED, None, tally, (), left_out=False)
    assert (step.command, step.needs_decision) == ("rmqtool recover /store --cut-at 7", True)
    assert step_after_verify(ELSEWHERE, DAMAGED, None, tally, (), left_out=False).command is None

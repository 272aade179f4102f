"""The next step: a command with something to do, or what a person has to decide."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.findings.finding import Finding, Severity
from rmqtool.sides.unread import ReadBy, UnreadFiles
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.next_step import (
    NextStep,
    blocked_step,
    repair_step,
    step_after_forecast,
    step_after_verify,
    undecoded_step,
)
from rmqtool.verdict.tally import FindingTally
from rmqtool.verdict.verdict import Assessment, MissingLog

LINE, ELSEWHERE = CommandLine("/store"), CommandLine("s3://bucket", is_local=False)
DAMAGED = Assessment(damaged=1)


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


def test_after_forecast() -> None:
    assert step_after_forecast(LINE, Assessment(), "recover").reason.startswith("nothing to do")
    assert step_after_forecast(LINE, Assessment(lost=1), "recover").command == "rmqtool recover /store"
    assert step_after_forecast(LINE, Assessment(log_missing=MissingLog("no")), "recover").command is None
    unread = Assessment(not_looked_at=(UnreadFiles("a", "b", "any words", ReadBy.VERIFY),))
    assert step_after_forecast(LINE, unread, "recover").command == "rmqtool verify /store"


def test_json_of_a_step() -> None:
    assert NextStep("a", "b", needs_decision=True).as_json() == {
        "next_step": {"command": "a", "reason": "b"},
        "needs_decision": True,
    }

"""The answer of `verify`, from its findings and the files that it did not check; tasks of Spark give it too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rmqtool.answer.answer import (
    Answer,
    Assessment,
    FindingTally,
    NextStep,
    blocked_step,
    cut_step,
    repair_step,
    undecoded_step,
    unknown_to_repair,
)
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.start import assessment_of_files
from rmqtool.findings.finding import StoreVerdict
from rmqtool.repair.derived.result import abort_reason
from rmqtool.sides.kinds import unread_files
from rmqtool.sides.unread import ReadBy
from rmqtool.store.dledger_files import reads_dledger
from rmqtool.verify.survey.result import Summary

UNREADABLE: Final = ("commitlog.unreadable-range", "consumequeue.unreadable-range", "store.unreadable")


def answer_of_verify(opened: OpenedStore, line: CommandLine, tally: FindingTally, summary: Summary) -> Answer:
    """Answer of findings and coverage."""
    store = opened.store
    assessment = assessment_of_files(opened, line, "verify", tally, summary.not_looked_at, is_log_decoded=True)
    repair = tally.repair(abort_stays=store.has_abort and abort_reason(store, opened.rules) is not None)
    if (not store.commitlog or reads_dledger(store)) and (repair == "recover" or tally.damaged):
        repair = None  # nothing is rebuilt from a damaged log of DLedger
    unknown = unknown_to_repair(
        opened,
        queues=tally.is_about("consumequeue"),
        index=tally.is_about("index"),
        timer=tally.is_about("timer"),
        compaction=tally.is_about("compaction"),
    )
    undecoded = {files.path for files in unread_files(store)}
    left_out = any(files.path not in undecoded for files in summary.not_looked_at)
    step = step_after_verify(line, assessment, repair, tally, tuple(unknown), left_out=left_out)

    exit_code = ExitCode.OK if assessment.verdict is StoreVerdict.OK else ExitCode.FINDINGS
    is_unreadable = bool(store.problems) or any(summary.findings[kind] for kind in UNREADABLE)
    if is_unreadable and assessment.verdict is not StoreVerdict.LOG_MISSING:
        exit_code = ExitCode.FAILED
    return Answer(assessment, step, exit_code)


def step_after_verify(
    line: CommandLine, assessment: Assessment, repair: str | None, tally: FindingTally, unknown: Sequence[str],
    *, left_out: bool,
) -> NextStep:  # fmt: skip
    """Next step for the findings, of which the repair repairs most; `unknown` as of `repair_step`. Where options or a
    time limit left something out, verify itself can continue.
    """
    if (step := blocked_step(assessment)) is not None:
        return step
    if repair is not None:
        return repair_step(line, repair, "repair what was found:", unknown)
    if tally.cut is not None and line.is_local:
        return cut_step(line, tally.cut)
    if tally.remedy is not None:
        return NextStep(None, tally.remedy, True)
    if left_out and all(files.read_by is not ReadBy.SIZES for files in assessment.not_looked_at):
        return NextStep(line("verify"), "check what was left out:")
    if assessment.verdict is StoreVerdict.WILL_NOT_START:
        return NextStep(None, "rmqtool does not repair this: correct by hand what keeps the broker from starting", True)
    if assessment.verdict is not StoreVerdict.OK:
        return undecoded_step(assessment, line)
    return NextStep(None, "nothing to do")
